package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// Options choose what of a profile is drawn.
type Options struct {
	Name   string   // of the policy, a title
	Layers []string // rules of these layers alone; empty: of all
	Depth  int      // components of a path; rules further down are counted; 0: all
	Fold   bool     // count rules that fragments alone have, by fragment
}

// Graph is a profile as a picture shows it.
type Graph struct {
	Name   string
	Digest string
	ABI    int
	Layers []Layer // that are shown
	Free   []Free  // rights that no layer handles
	Root   *Node
	Nodes  int // all beneath Root, and it
	Rules  int // rows of paths that are shown or counted
	Folded []Folded
	Ports  []Row
	Other  string // what is allowed on all other ports; "" when no layer handles ports
	Scopes []Row
	Mount  bool // mounts may be changed
}

// Layer is a column of the picture.
type Layer struct {
	Name    string
	Handles Text
}

// Free are rights of a kind that are allowed everywhere.
type Free struct{ Kind, Rights string }

// Folded are rules of a fragment that are counted in the picture's head alone. What
// they grant counts for the paths beneath.
type Folded struct {
	Fragment string
	Rules    int
}

// String is "std/shell: 120 rules for paths".
func (f Folded) String() string { return f.Fragment + ": " + counted(f.Rules) }

// Node is a path with a rule, or where two such paths part.
type Node struct {
	Name   string // beneath the node above; "/" for the root
	Row           // Row.What is the whole path
	Rule   bool   // a layer that is shown has a rule here
	Depth  int    // nodes above it
	Below  int    // rules further down that are not shown
	Nodes  []*Node
	row    int
	childs map[string]*Node
}

// Row is what holds for a path, a range of ports or a scope.
type Row struct {
	What    string
	Cells   []Cell // one for each layer
	Allowed Text   // by all layers, shown or not
}

// Cell is what one layer says.
type Cell struct {
	Own     Text   // granted by a rule right here
	Granted Text   // with what is granted above; of those the layer handles
	Place   string // of the rule: "web.yaml:12", with "missing: skip" where it says that
}

// Text are rights, short and in full.
type Text struct {
	Short, Full string
	Changes     bool // some let a program change files or be reached by others
}

type maker struct {
	p       *profile.Profile
	o       Options
	layers  []int // that are shown
	handled []profile.Access
	places  map[place][]string
	from    map[place][]string // fragments of the rules; "" for the policy's own
}

type place struct {
	table      apiv1.Origin_Table
	row, layer int
}

// New makes the picture of a valid profile; origins may be nil.
func New(p *profile.Profile, origins []*apiv1.Origin, o Options) (*Graph, error) {
	m := &maker{p: p, o: o, places: map[place][]string{}, from: map[place][]string{}}
	for i := range p.Layers {
		m.handled = append(m.handled, p.Layers[i].FS)
		if p.HandlesFS() {
			m.handled[i] |= profile.FSRefer
		}
		if len(o.Layers) == 0 || slices.Contains(o.Layers, p.Layers[i].Name) {
			m.layers = append(m.layers, i)
		}
	}
	for _, name := range o.Layers {
		if !slices.ContainsFunc(p.Layers, func(l profile.Layer) bool { return l.Name == name }) {
			return nil, fmt.Errorf("no layer %q: want one of %s", name, strings.Join(layerNames(p), ", "))
		}
	}
	for _, g := range origins {
		k := place{g.GetTable(), int(g.GetRow()), int(g.GetLayer())}
		m.from[k] = append(m.from[k], g.GetFragment())
		if text := origin(g); !slices.Contains(m.places[k], text) {
			m.places[k] = append(m.places[k], text)
		}
	}
	g := &Graph{Name: Visible(o.Name), Digest: profile.Digest(p.Encode()), ABI: p.ABI, Mount: !p.HandlesFS()}
	m.head(g)
	m.paths(g)
	m.ports(g)
	m.scopes(g)
	return g, nil
}

func layerNames(p *profile.Profile) []string {
	var names []string
	for i := range p.Layers {
		names = append(names, p.Layers[i].Name)
	}
	return names
}

func origin(o *apiv1.Origin) string {
	text := o.GetField()
	if o.GetFile() != "" && o.GetLine() > 0 {
		text = fmt.Sprintf("%s:%d", o.GetFile(), o.GetLine())
	}
	if f := o.GetFragment(); f != "" {
		text += " in " + f
	}
	return Visible(text)
}

// of gives what the layers handle of a kind.
func (m *maker) of(k profile.Kind) []profile.Access {
	if k == profile.FS {
		return m.handled
	}
	out := make([]profile.Access, len(m.p.Layers))
	for i := range out {
		out[i] = m.p.Layers[i].Net
		if k == profile.Scope {
			out[i] = m.p.Layers[i].Scope
		}
	}
	return out
}

func union(masks []profile.Access) (a profile.Access) {
	for _, m := range masks {
		a |= m
	}
	return a
}

func (m *maker) head(g *Graph) {
	for _, l := range m.layers {
		var short, full []string
		for _, k := range []profile.Kind{profile.FS, profile.Net, profile.Scope} {
			if a := m.of(k)[l]; a != 0 {
				t := text(k, a, profile.Handled(k, m.p.ABI)|a)
				short, full = append(short, k.String()+" "+t.Short), append(full, k.String()+" "+t.Full)
			}
		}
		g.Layers = append(g.Layers, Layer{
			Visible(m.p.Layers[l].Name),
			Text{Short: strings.Join(short, "; "), Full: strings.Join(full, "; ")},
		})
	}
	for _, k := range []profile.Kind{profile.FS, profile.Net, profile.Scope} {
		if free := profile.Handled(k, m.p.ABI) &^ union(m.of(k)); free != 0 {
			g.Free = append(g.Free, Free{k.String(), strings.Join(k.Names(free), ",")})
		}
	}
}

// row puts masks into words: what rules grant right here and with those above.
func (m *maker) row(k profile.Kind, what string, own, granted []profile.Access, at func(layer int) place) Row {
	handled := m.of(k)
	all := union(handled)
	allowed := all
	for l := range handled {
		allowed &= granted[l] | ^handled[l]
	}
	r := Row{What: Visible(what), Allowed: text(k, allowed, all)}
	for _, l := range m.layers {
		c := Cell{Own: text(k, own[l]&handled[l], handled[l]), Granted: text(k, granted[l]&handled[l], handled[l])}
		if own[l] != 0 {
			places := m.places[at(l)]
			if i := at(l).row; k == profile.FS && m.p.Paths[i].Missing == profile.Skip {
				places = append(slices.Clone(places), "missing: skip")
			}
			c.Place = strings.Join(places, ", ")
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func (m *maker) paths(g *Graph) {
	root := &Node{Name: "/", row: -1}
	folded := map[string]int{}
	for i := range m.p.Paths {
		row := &m.p.Paths[i]
		// Rules of layers that are not shown count for what is allowed.
		shown := slices.ContainsFunc(m.layers, func(l int) bool { return row.Access[l] != 0 })
		if shown {
			g.Rules++
		}
		if fragments := m.fragments(i); shown && fragments != nil {
			shown = false
			for _, f := range fragments {
				folded[f]++
			}
		}
		at := root
		var names []string
		if row.Path != "/" {
			names = strings.Split(row.Path[1:], "/")
		}
		for depth, name := range names {
			if m.o.Depth > 0 && depth == m.o.Depth {
				if shown {
					at.Below++
				}
				at = nil
				break
			}
			if at.childs == nil {
				at.childs = map[string]*Node{}
			}
			next := at.childs[name]
			if next == nil {
				next = &Node{Name: name, row: -1}
				at.childs[name] = next
				at.Nodes = append(at.Nodes, next)
			}
			at = next
		}
		if at != nil {
			at.row, at.Rule = i, shown
		}
	}
	for _, name := range slices.Sorted(maps.Keys(folded)) {
		g.Folded = append(g.Folded, Folded{Visible(name), folded[name]})
	}
	root.prune()
	g.Nodes = m.finish(root, "", 0, make([]profile.Access, len(m.p.Layers)))
	g.Root = root
}

// fragments gives those of a row's rules, when it is to be folded: no shown layer
// has one that is the policy's own.
func (m *maker) fragments(row int) (names []string) {
	if !m.o.Fold {
		return nil
	}
	for _, l := range m.layers {
		if m.p.Paths[row].Access[l] == 0 {
			continue
		}
		from := m.from[place{apiv1.Origin_TABLE_PATHS, row, l}]
		if len(from) == 0 || slices.Contains(from, "") {
			return nil
		}
		names = append(names, from...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// prune takes away what has nothing to show.
func (n *Node) prune() (empty bool) {
	n.Nodes = slices.DeleteFunc(n.Nodes, (*Node).prune)
	return !n.Rule && n.Below == 0 && len(n.Nodes) == 0
}

// finish folds folders without a rule of their own into the only one beneath, and
// puts what is granted into words. It gives the number of nodes.
func (m *maker) finish(n *Node, above string, depth int, granted []profile.Access) int {
	own := make([]profile.Access, len(granted))
	granted = slices.Clone(granted)
	unite := func() {
		clear(own)
		if n.row < 0 {
			return
		}
		for l, a := range m.p.Paths[n.row].Access {
			own[l] = a &^ profile.QuietRule
			granted[l] |= own[l]
		}
	}
	unite()
	for above != "" && !n.Rule && n.Below == 0 && len(n.Nodes) == 1 {
		only := n.Nodes[0]
		only.Name = n.Name + "/" + only.Name
		*n = *only
		unite()
	}
	path := strings.TrimSuffix(above, "/") + "/" + n.Name
	if above == "" {
		path = "/"
	}
	n.childs = nil
	n.Row = m.row(profile.FS, path, own, granted, func(l int) place { return place{apiv1.Origin_TABLE_PATHS, n.row, l} })
	slices.SortFunc(n.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	count := 1
	for _, c := range n.Nodes {
		count += m.finish(c, path, depth+1, granted)
	}
	n.Name, n.Depth = Visible(n.Name), depth
	return count
}

func (m *maker) ports(g *Graph) {
	none := make([]profile.Access, len(m.p.Layers))
	handled := m.of(profile.Net)
	all := union(handled)
	if all == 0 {
		return
	}
	other := all
	for _, h := range handled {
		other &^= h
	}
	g.Other = text(profile.Net, other, all).Short
	for i := range m.p.Ports {
		r := &m.p.Ports[i]
		own := slices.Clone(none)
		for l, a := range r.Access {
			own[l] = a &^ profile.QuietRule
		}
		what := fmt.Sprint(r.First)
		if r.Last != r.First {
			what = fmt.Sprintf("%d-%d", r.First, r.Last)
		}
		if len(m.o.Layers) == 0 || slices.ContainsFunc(m.layers, func(l int) bool { return own[l] != 0 }) {
			g.Ports = append(g.Ports, m.row(profile.Net, what, own, own, func(l int) place { return place{apiv1.Origin_TABLE_PORTS, i, l} }))
		}
	}
}

// scopes: a layer that handles a scope lets nothing out of the sandbox.
func (m *maker) scopes(g *Graph) {
	handled := m.of(profile.Scope)
	for _, r := range profile.Rights() {
		if r.Kind != profile.Scope || r.Bit&union(handled) == 0 {
			continue
		}
		row := Row{What: r.Name, Allowed: Text{Short: "inside only", Full: "only to processes inside of the sandbox"}}
		for _, l := range m.layers {
			c := Cell{}
			if handled[l]&r.Bit != 0 {
				c.Own = Text{Short: "inside only", Full: "this layer lets it through to processes inside of the sandbox alone"}
				c.Granted = c.Own
			}
			row.Cells = append(row.Cells, c)
		}
		g.Scopes = append(g.Scopes, row)
	}
}
