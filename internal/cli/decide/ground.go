package decide

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// ground is what the engine decides a question on: the whole profile, or the
// rows that stand on the inodes of this host from the question's objects up.
type ground struct {
	d    *Decider
	p    *profile.Profile
	here [][]bound // per row of p the rows of d.p it is made of; nil: it is d.p
}

// ground makes the rows for real paths ("" for none). An object that is not
// there has no rows; one that may not be looked at is an error.
func (d *Decider) ground(paths ...string) (ground, error) {
	if d.opt.Lexical {
		return ground{d: d, p: d.p}, nil
	}
	g := ground{d: d, p: &profile.Profile{
		Name: d.p.Name, ABI: d.p.ABI, Degrade: d.p.Degrade, Layers: d.p.Layers,
		AcceptSharedInode: d.p.AcceptSharedInode, AcceptReferFlatten: d.p.AcceptReferFlatten, Flatten: d.p.Flatten,
	}}
	rows := map[string][]bound{}
	for _, path := range paths {
		for at := path; at != ""; at = parent(at) {
			if _, known := rows[at]; known {
				break // and all above it
			}
			o, err := lookAt(at, false)
			if err != nil && !isMissing(err) {
				return ground{}, err
			}
			rows[at] = nil
			if err == nil {
				if rows[at], err = d.on(at, o); err != nil {
					return ground{}, err
				}
			}
		}
	}
	for at, here := range rows {
		if len(here) > 0 {
			g.p.Paths = append(g.p.Paths, profile.PathRow{Path: at, Access: d.united(here)})
		}
	}
	slices.SortFunc(g.p.Paths, func(a, b profile.PathRow) int { return strings.Compare(a.Path, b.Path) })
	g.here = make([][]bound, len(g.p.Paths))
	for i := range g.p.Paths {
		g.here[i] = rows[g.p.Paths[i].Path]
	}
	return g, nil
}

// parent is the folder of a clean path; "/" has "".
func parent(path string) string {
	if path == "/" {
		return ""
	}
	return path[:max(strings.LastIndexByte(path, '/'), 1)]
}

// mask is what a row grants in a layer on its inode: of a rule on something
// that is no directory only what may stand there is given to the kernel.
func (d *Decider) mask(b bound, layer int) profile.Access {
	a := d.p.Paths[b.row].Access[layer]
	if b.file {
		a &= profile.FileRights(d.opt.ABI) | profile.QuietRule
	}
	return a
}

// united is what rows of one inode grant together: the kernel has one rule for it.
func (d *Decider) united(rows []bound) []profile.Access {
	masks := make([]profile.Access, len(d.p.Layers))
	for _, b := range rows {
		for l := range masks {
			masks[l] |= d.mask(b, l)
		}
	}
	return masks
}

// sources gives the rows of d.p that a row is made of.
func (g *ground) sources(row int) []bound {
	if g.here == nil {
		return []bound{{row: row}}
	}
	return g.here[row]
}

// walk is what the kernel met on one way up: rows of paths, or one of ports.
type walk struct {
	met []meeting
}

type meeting struct {
	at      string           // path of the row, or its ports
	rows    []bound          // of d.p.Paths
	port    int              // with no rows: row of the given profile's ports
	masks   []profile.Access // per layer, all it grants
	cleared []profile.Access // per layer, what of the request it was the first to grant
}

// walk asks the engine for the way of a request.
func (g *ground) walk(path string, req profile.Access) walk {
	var w walk
	g.p.ExplainPath(path, req, func(row *profile.PathRow, cleared []profile.Access) {
		i := sort.Search(len(g.p.Paths), func(i int) bool { return g.p.Paths[i].Path >= row.Path })
		w.met = append(w.met, meeting{at: row.Path, rows: g.sources(i), masks: row.Access, cleared: slices.Clone(cleared)})
	})
	return w
}

// walkPort is walk for a port.
func (d *Decider) walkPort(port uint16, req profile.Access) walk {
	var w walk
	d.p.ExplainPort(port, req, func(row *profile.PortRow, cleared []profile.Access) {
		i := sort.Search(len(d.given.Ports), func(i int) bool { return d.given.Ports[i].Last >= port })
		w.met = append(w.met, meeting{at: portsText(&d.given.Ports[i]), port: i, masks: row.Access, cleared: slices.Clone(cleared)})
	})
	return w
}

func portsText(r *profile.PortRow) string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// rulesAt gives the rules of a meeting that grant any of some rights in a layer.
func (d *Decider) rulesAt(kind profile.Kind, m *meeting, layer int, rights profile.Access) []Rule {
	if kind == profile.Net {
		return d.rulesOf(kind, apiv1.Origin_TABLE_PORTS, m.port, m.at, layer, m.masks[layer]&rights)
	}
	var out []Rule
	for _, b := range m.rows {
		a := d.mask(b, layer) & rights
		out = append(out, d.rulesOf(kind, apiv1.Origin_TABLE_PATHS, d.rows[b.row], d.p.Paths[b.row].Path, layer, a)...)
	}
	return out
}

// rulesOf names the rules of the text that a row comes from.
func (d *Decider) rulesOf(kind profile.Kind, table apiv1.Origin_Table, row int, name string, layer int, a profile.Access) []Rule {
	a &^= profile.QuietRule
	if a == 0 {
		return nil
	}
	r := Rule{Layer: d.p.Layers[layer].Name, Rule: name}
	var out []Rule
	for _, o := range d.origins[originKey{table, row, d.layers[layer]}] {
		if got := profile.Access(o.GetAccess()) & a; got != 0 {
			r.Rights, r.Fragment = names(kind, got), o.GetFragment()
			r.File, r.Line, r.Column, r.Field = o.GetFile(), o.GetLine(), o.GetColumn(), o.GetField()
			out = append(out, r)
		}
	}
	if out == nil {
		r.Rights = names(kind, a)
		out = append(out, r)
	}
	return out
}

// grants gives the rules that granted what was asked, the nearest first.
func (d *Decider) grants(kind profile.Kind, w walk) []Rule {
	var out []Rule
	for i := range w.met {
		for l, a := range w.met[i].cleared {
			if a != 0 {
				out = append(out, d.rulesAt(kind, &w.met[i], l, a)...)
			}
		}
	}
	return out
}

// against gives the rules of a denying layer that were met, the nearest first,
// or the layer's own place.
func (d *Decider) against(kind profile.Kind, layer int, w walk) []Rule {
	var out []Rule
	for i := range w.met {
		out = append(out, d.rulesAt(kind, &w.met[i], layer, ^profile.QuietRule)...)
	}
	if out == nil {
		out = append(out, d.places[layer])
	}
	return out
}

// steps shows a walk: the beginning, and each place up to "/" or to where
// nothing is left to grant.
func (d *Decider) steps(kind profile.Kind, req profile.Access, path string, w walk) []Step {
	left := make([]profile.Access, len(d.p.Layers))
	for l := range left {
		left[l] = req & d.handled(kind, l)
	}
	steps := []Step{{At: "", Rules: []Rule{}, Unfulfilled: d.unfulfilled(kind, left)}}
	add := func(at string, m *meeting) {
		s := Step{At: at, Rules: []Rule{}}
		if m != nil {
			for l, a := range m.cleared {
				left[l] &^= a
				rules := d.rulesAt(kind, m, l, a)
				if a == 0 {
					rules = d.rulesAt(kind, m, l, ^profile.QuietRule)
					for i := range rules {
						rules[i].Rights = []string{}
					}
				}
				s.Rules = append(s.Rules, rules...)
			}
		}
		s.Unfulfilled = d.unfulfilled(kind, left)
		steps = append(steps, s)
	}
	if kind != profile.FS {
		for i := range w.met {
			add(w.met[i].at, &w.met[i])
		}
		return steps
	}
	next := 0
	for at := path; at != "" && len(steps[len(steps)-1].Unfulfilled) > 0; at = parent(at) {
		var m *meeting
		if next < len(w.met) && w.met[next].at == at {
			m = &w.met[next]
			next++
		}
		add(at, m)
	}
	return steps
}

// handled is what a layer of d.p denies unless granted.
func (d *Decider) handled(kind profile.Kind, layer int) profile.Access {
	return handledBy(d.p, kind, layer)
}

// handledBy counts in the refer that every layer of a domain with any fs right
// implies.
func handledBy(p *profile.Profile, kind profile.Kind, layer int) profile.Access {
	l := &p.Layers[layer]
	switch {
	case kind == profile.Net:
		return l.Net
	case kind == profile.Scope:
		return l.Scope
	case p.HandlesFS():
		return l.FS | profile.FSRefer
	}
	return 0
}

func (d *Decider) unfulfilled(kind profile.Kind, left []profile.Access) []Layer {
	out := []Layer{}
	for l, a := range left {
		if a != 0 {
			out = append(out, Layer{d.p.Layers[l].Name, names(kind, a)})
		}
	}
	return out
}
