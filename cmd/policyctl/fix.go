package main

import (
	"os"
	"path"
	"slices"
	"strconv"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/cli/preflight"
)

// checked is an answer with the rules that would allow the operation. Its JSON
// names are an interface.
type checked struct {
	*decide.Answer
	Fix []preflight.Rules `json:"fix"` // [] when there are none, or no rule can
}

// fixRounds bounds how often more is refused once something is allowed: a program
// and its interpreters, what is made and then written to.
const fixRounds = 8

// fix gives the least rules with which a refused operation is allowed. There are
// none where that is not so, which is decided with the rules in the profile: for
// what a move would let an object gain, a scope, a mount, or a right that a layer
// refuses without handling it. Nor are there where it cannot be decided: flattened
// layers, say, may refuse to be started with one rule more.
func fix(p *profile.Profile, o decide.Options, q decide.Question) []preflight.Rules {
	none, rules := []preflight.Rules{}, []preflight.Rules{}
	o.LayerPlaces = nil
	for range fixRounds {
		with, err := withRules(p, rules)
		if err != nil {
			return none // no such rule can be written
		}
		dec, err := decide.New(with, nil, o)
		if err != nil {
			return none
		}
		v, err := dec.Explain(q)
		switch {
		case err != nil:
			return none
		case v.Allowed():
			return rules
		case v.Errno == "EPERM" || !propose(&rules, v, o.Lexical):
			return none
		}
	}
	return none
}

// propose adds a rule for each right that a look was refused for; false when it has none to add.
func propose(rules *[]preflight.Rules, v *decide.Answer, lexical bool) (more bool) {
	for i := range v.Looks {
		look := &v.Looks[i]
		if look.Verdict != decide.Deny {
			continue
		}
		at := look.Real
		if look.What != "port" && !lexical {
			if at = ruleAt(at); at == "" {
				return false
			}
		}
		for _, l := range look.Layers {
			r := rulesOf(rules, l.Name)
			if look.What == "port" {
				port, _ := strconv.ParseUint(look.Object, 10, 16) // a number: the question had it
				r.Ports = append(r.Ports, preflight.PortRule{Allow: l.Missing, Port: uint16(port)})
				more = true
				continue
			}
			more = addPath(r, at, l.Missing) || more
		}
	}
	return more
}

func addPath(r *preflight.Rules, at string, rights []string) (more bool) {
	i := slices.IndexFunc(r.Paths, func(p preflight.PathRule) bool { return p.At[0] == at })
	if i < 0 {
		i = len(r.Paths)
		r.Paths = append(r.Paths, preflight.PathRule{At: []string{at}})
	}
	for _, right := range rights {
		if !slices.Contains(r.Paths[i].Allow, right) {
			r.Paths[i].Allow = append(r.Paths[i].Allow, right)
			more = true
		}
	}
	return more
}

// withRules is the profile with rules added.
func withRules(p *profile.Profile, rules []preflight.Rules) (*profile.Profile, error) {
	if len(rules) == 0 {
		return p, nil
	}
	b := profile.NewBuilder(p.Layers)
	for i := range p.Paths {
		row := &p.Paths[i]
		_ = b.AddPathRow(row.Path, row.Access, row.Missing) // errors are kept for Build
		if row.Within > 0 {
			_ = b.KeepWithin(row.Path, row.Within)
		}
	}
	for _, row := range p.Ports {
		for layer, access := range row.Access {
			if access != 0 {
				_ = b.AddPorts(layer, row.First, row.Last, access&^profile.QuietRule, access&profile.QuietRule != 0)
			}
		}
	}
	for _, r := range rules {
		layer := slices.IndexFunc(p.Layers, func(l profile.Layer) bool { return l.Name == r.Layer })
		for _, x := range r.Paths {
			_ = b.AddPath(layer, x.At[0], mask(profile.FS, x.Allow), false, profile.Fail)
		}
		for _, x := range r.Ports {
			_ = b.AddPorts(layer, x.Port, x.Port, mask(profile.Net, x.Allow), false)
		}
	}
	with, err := b.Build()
	if err != nil {
		return nil, err
	}
	with.Name, with.ABI, with.Degrade, with.Flatten = p.Name, p.ABI, p.Degrade, p.Flatten
	with.AcceptSharedInode, with.AcceptReferFlatten = p.AcceptSharedInode, p.AcceptReferFlatten
	return with, nil
}

func mask(kind profile.Kind, names []string) (all profile.Access) {
	for _, name := range names {
		if r, ok := profile.RightByName(kind, name); ok {
			all |= r.Bit
		}
	}
	return all
}

// ruleAt is where a rule for a path can stand: nothing starts with a rule on what
// is not there, so then on its folder. "" when that is not there either.
func ruleAt(name string) string {
	for _, at := range []string{name, path.Dir(name)} {
		if _, err := os.Lstat(at); err == nil {
			return at
		}
	}
	return ""
}

func rulesOf(all *[]preflight.Rules, layer string) *preflight.Rules {
	i := slices.IndexFunc(*all, func(r preflight.Rules) bool { return r.Layer == layer })
	if i < 0 {
		i = len(*all)
		*all = append(*all, preflight.Rules{Layer: layer, Include: []string{}, Paths: []preflight.PathRule{}, Ports: []preflight.PortRule{}})
	}
	return &(*all)[i]
}
