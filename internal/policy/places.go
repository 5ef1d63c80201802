package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// maxPlaces bounds the rules that PlacePaths names.
const maxPlaces = 10

// PlacePaths adds to an error about paths of a profile the rules they come from, by its origins, and the way out
// for those that are missing. Any other error, and nil, comes back as it is; what the error wraps stays.
func PlacePaths(err error, p *profile.Profile, origins []*apiv1.Origin) error {
	if !errors.Is(err, errs.ErrPathMissing) && !errors.Is(err, errs.ErrPathRefused) {
		return err
	}
	bad := map[string]bool{}
	for _, e := range errs.Paths(err) {
		bad[e.Path] = true
	}
	var lines []string
	for _, o := range origins {
		if o.GetTable() != apiv1.Origin_TABLE_PATHS || int(o.GetRow()) >= len(p.Paths) {
			continue
		}
		path := p.Paths[o.GetRow()].Path
		if !bad[path] {
			continue
		}
		if line := fmt.Sprintf("%s has %q", ruleOf(o), path); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
		if len(lines) > maxPlaces {
			lines[maxPlaces] = "and more"
			break
		}
	}
	if len(lines) == 0 {
		return err
	}
	if errors.Is(err, errs.ErrPathMissing) {
		lines = append(lines, "a rule with missing: skip is left out while its path does not exist")
	}
	return fmt.Errorf("%w\n%s", err, strings.Join(lines, "\n"))
}

// ruleOf names the rule of an origin: "web.yaml:7: spec.layers[0].paths[1]", with its fragment when it is of one.
func ruleOf(o *apiv1.Origin) string {
	var b strings.Builder
	if o.GetLine() > 0 {
		if o.GetFile() != "" {
			b.WriteString(printable(o.GetFile()) + ":")
		} else {
			b.WriteString("line ")
		}
		fmt.Fprintf(&b, "%d: ", o.GetLine())
	}
	if o.GetFragment() != "" {
		fmt.Fprintf(&b, "fragment %s: ", o.GetFragment())
	}
	b.WriteString(o.GetField())
	return b.String()
}
