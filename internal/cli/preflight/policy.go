package preflight

import (
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

// By makes a decider of a policy the Grants of a search.
func By(d *decide.Decider) Grants {
	return func(path string, rights profile.Access) ([]Refusal, error) {
		layers, err := d.File(path, rights)
		if err != nil {
			return nil, err
		}
		var refused []Refusal
		for _, l := range layers {
			refused = append(refused, Refusal{l.Name, l.Missing})
		}
		return refused, nil
	}
}
