package preflight

import (
	"errors"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

// By makes a decider of a policy the Grants of a search. Rights are those that
// Find asks for: to execute a file, or to read it.
func By(d *decide.Decider) Grants {
	return func(path string, rights profile.Access) ([]Refusal, error) {
		words := []string{"open", path, "r"}
		if rights&profile.FSExecute != 0 {
			words = []string{"exec", path}
		}
		q, err := decide.Parse(words)
		if err != nil {
			return nil, err
		}
		a, err := d.Explain(q)
		if errors.Is(err, decide.ErrNotAsked) {
			// The file itself was granted: an interpreter of it, a need of its own, is not there.
			return nil, nil
		}
		if err != nil || len(a.Looks) == 0 {
			return nil, err
		}
		var refused []Refusal
		for _, l := range a.Looks[0].Layers { // of the file; the others are its interpreters'
			var missing []string
			for _, name := range l.Missing {
				if r, ok := profile.RightByName(profile.FS, name); ok && r.Bit&rights != 0 {
					missing = append(missing, name)
				}
			}
			if len(missing) > 0 {
				refused = append(refused, Refusal{l.Name, missing})
			}
		}
		return refused, nil
	}
}
