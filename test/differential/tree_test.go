package differential_test

import (
	"path"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// grove is a profile.Tree of the objects on the way to a question's paths, as
// whoever looks at a host builds one.
type grove struct {
	p      *profile.Profile
	t      *profile.Tree
	places map[string]profile.Place
	rows   map[string][]profile.Access
}

func newGrove(p *profile.Profile) *grove {
	g := &grove{p: p, rows: map[string][]profile.Access{}}
	for i := range p.Paths {
		g.rows[p.Paths[i].Path] = p.Paths[i].Access
	}
	return g
}

// decide answers by the tree.
func (g *grove) decide(op profile.Operation, f profile.Facts) (profile.Answer, error) {
	g.t, g.places = profile.NewTree(g.p), map[string]profile.Place{}
	var at profile.Where
	var err error
	if at.Object, at.Parent, err = g.place(op.Path, f.Type); err != nil {
		return profile.Answer{}, err
	}
	if at.NewObject, at.NewParent, err = g.place(op.NewPath, f.NewType); err != nil {
		return profile.Answer{}, err
	}
	return g.t.Decide(op, f, at), nil
}

func (g *grove) place(of string, ft profile.FileType) (object, holder profile.Place, err error) {
	if of == "" {
		return profile.Nowhere, profile.Nowhere, nil
	}
	if of == "/" {
		object, err = g.add(of, ft)
		return object, profile.Nowhere, err
	}
	if holder, err = g.add(path.Dir(of), profile.Directory); err != nil || ft == profile.NoFile {
		return profile.Nowhere, holder, err
	}
	object, err = g.add(of, ft)
	return object, holder, err
}

func (g *grove) add(at string, ft profile.FileType) (profile.Place, error) {
	if p, ok := g.places[at]; ok {
		return p, nil
	}
	up := profile.Nowhere
	if at != "/" {
		var err error
		if up, err = g.add(at[:max(1, strings.LastIndexByte(at, '/'))], profile.Directory); err != nil {
			return up, err
		}
	}
	var rules [][]profile.Access
	if row := g.rows[at]; row != nil {
		rules = append(rules, row)
	}
	p, err := g.t.Add(up, ft, rules...)
	g.places[at] = p
	return p, err
}
