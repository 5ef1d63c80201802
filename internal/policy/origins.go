package policy

import (
	"sort"
	"strconv"

	"go.yaml.in/yaml/v4"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// maxOrigins bounds how many origins a profile has. Only many overlapping
// ranges of ports come near it; the origins of the last ones are left out then.
const maxOrigins = 1 << 21

const (
	tablePaths = iota
	tablePorts
)

// scope is a list of rules in a document: a layer of a policy, or a fragment.
type scope struct {
	fragment string
	file     string
	prefix   [2]string     // of the field of a rule, by table: "spec.layers[0].paths["
	list     [2]*yaml.Node // the rules in the text, by table; may be nil
	first    int           // line of the file where the document begins
	last     [2]struct{ rule, source int32 }
}

func newScope(o origin, p *place, fragment string) *scope {
	s := &scope{fragment: fragment}
	s.last[tablePaths].rule, s.last[tablePorts].rule = -1, -1
	for table, name := range [...]string{"paths", "ports"} {
		at := p.key(name)
		s.prefix[table] = at.String() + "["
		if o.seg == nil {
			continue
		}
		s.file, s.first = o.seg.file, o.seg.firstLine
		if n := locate(o.root, &at); n != nil && n.Kind == yaml.SequenceNode {
			s.list[table] = n
		}
	}
	return s
}

// source is a rule that rows come from.
type source struct {
	scope *scope
	table int
	rule  int
}

// source gives the index of a rule; rules come in order, so the last one is enough to look at.
func (c *compilation) source(s *scope, table, rule int) int32 {
	last := &s.last[table]
	if last.rule != int32(rule) {
		last.rule, last.source = int32(rule), int32(len(c.sources))
		c.sources = append(c.sources, source{s, table, rule})
	}
	return last.source
}

// fill writes where the rule stands.
func (s source) fill(o *apiv1.Origin, field string) {
	o.Fragment, o.File, o.Field = s.scope.fragment, s.scope.file, field
	if n := s.scope.list[s.table]; n != nil && s.rule < len(n.Content) {
		rule := n.Content[s.rule]
		o.Line, o.Column = uint32(rule.Line+s.scope.first-1), uint32(rule.Column)
	}
}

// layerPlaces gives where the layers of a policy stand. A policy that compiles
// has as many in its text.
func (o origin) layerPlaces(layers int) []*apiv1.LayerPlace {
	spec := (*place)(nil).key("spec")
	list := spec.key("layers")
	out := make([]*apiv1.LayerPlace, layers)
	for i := range out {
		at := list.at(i)
		out[i] = &apiv1.LayerPlace{Field: at.String()}
		if o.seg == nil {
			continue
		}
		out[i].File = o.seg.file
		if n := locate(o.root, &at); n != nil {
			out[i].Line, out[i].Column = uint32(n.Line+o.seg.firstLine-1), uint32(n.Column)
		}
	}
	return out
}

// fields gives the field of every source, in one piece of memory.
func (c *compilation) fields() []string {
	ends := make([]int, len(c.sources))
	var text []byte
	for i, s := range c.sources {
		text = append(text, s.scope.prefix[s.table]...)
		text = strconv.AppendInt(text, int64(s.rule), 10)
		text = append(text, ']')
		ends[i] = len(text)
	}
	all, from := string(text), 0
	fields := make([]string, len(ends))
	for i, end := range ends {
		fields[i] = all[from:end]
		from = end
	}
	return fields
}

// origins ties the rows of the profile to the rules they come from.
func (c *compilation) origins(p *profile.Profile) []*apiv1.Origin {
	fields := c.fields()
	store := make([]apiv1.Origin, len(c.grants)) // one piece of memory for the paths'
	out := make([]*apiv1.Origin, len(c.grants), len(c.grants)+len(c.ports))

	// Grants come layer by layer; counting them per row and placing them in
	// order keeps that within each row.
	next := make([]int32, len(p.Paths)+1)
	rowOf := make([]int32, len(c.rows))
	for row := range p.Paths {
		rowOf[c.ids[p.Paths[row].Path]] = int32(row)
	}
	for i := range c.grants {
		next[rowOf[c.grants[i].row]+1]++
	}
	for row := range p.Paths {
		next[row+1] += next[row]
	}
	for i := range c.grants {
		g := &c.grants[i]
		row := rowOf[g.row]
		o := &store[next[row]]
		out[next[row]] = o
		next[row]++
		o.Table, o.Row = apiv1.Origin_TABLE_PATHS, uint32(row)
		o.Layer, o.Access = uint32(g.layer), uint32(g.access)
		c.sources[g.source].fill(o, fields[g.source])
	}
	return c.portOrigins(p, fields, out)
}

func (c *compilation) portOrigins(p *profile.Profile, fields []string, out []*apiv1.Origin) []*apiv1.Origin {
	from := len(out)
	for _, g := range c.ports {
		first := sort.Search(len(p.Ports), func(i int) bool { return p.Ports[i].Last >= g.first })
		for row := first; row < len(p.Ports) && p.Ports[row].First <= g.last && len(out) < maxOrigins; row++ {
			o := &apiv1.Origin{Table: apiv1.Origin_TABLE_PORTS, Row: uint32(row), Layer: uint32(g.layer), Access: uint32(g.access)}
			c.sources[g.source].fill(o, fields[g.source])
			out = append(out, o)
		}
	}
	ports := out[from:]
	sort.SliceStable(ports, func(i, j int) bool {
		if ports[i].Row != ports[j].Row {
			return ports[i].Row < ports[j].Row
		}
		return ports[i].Layer < ports[j].Layer
	})
	return out
}
