package policy

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// CompilerVersion changes whenever the same document may give another profile.
const CompilerVersion = 3

// CompileOptions are what a compilation needs beside the policy.
type CompileOptions struct {
	Parameters map[string]string // values of spec.parameters, one each
	Fragments  FragmentSource    // nil: the shipped fragments
	Document   *Document         // for files and lines in errors and origins; may be nil
}

// Compiled is a policy as layers.
type Compiled struct {
	Profile *profile.Profile
	Origins []*apiv1.Origin // which rule each row and layer comes from, by table, row, layer
	// LayerPlaces are where the layers of the profile stand, one each. They are no
	// origins: those are of rules, and who counts rules counts origins.
	LayerPlaces []*apiv1.LayerPlace
	Process     *apiv1.Process // of the policy; nil when it has none
}

// Compile turns a policy into a profile. The result depends on the arguments
// alone. The error is an [*Errors], or what the source of fragments gave.
func Compile(p *apiv1.LandlockPolicy, o CompileOptions) (*Compiled, error) {
	r := reporter{errors: &Errors{}}
	if o.Document != nil {
		r.origin = o.Document.origin
	}
	spec := p.GetSpec()
	c := newCompilation(spec, o)
	r.metadata(p.GetMetadata(), isName)
	r.policy(spec, c)
	if c.resolver.err != nil {
		return nil, c.resolver.err
	}
	if err := r.errors.err(); err != nil {
		return nil, err
	}
	prof, err := c.build()
	if err != nil {
		// The checks above leave only the limits of a profile.
		r.addf(codeTooLarge, nil, "%v", err)
		return nil, r.errors.err()
	}
	prof.Name = p.GetMetadata().GetName()
	prof.ABI = int(spec.GetAbi())
	prof.Degrade = spec.GetEnforcement() == apiv1.Enforcement_ENFORCEMENT_DEGRADE
	prof.Flatten = spec.GetFlatten().GetAlways()
	for _, name := range spec.GetFlatten().GetAccept() {
		prof.AcceptSharedInode = prof.AcceptSharedInode || name == "shared_inodes"
		prof.AcceptReferFlatten = prof.AcceptReferFlatten || name == "refer"
	}
	return &Compiled{
		Profile: prof, Origins: c.origins(prof), LayerPlaces: r.layerPlaces(len(prof.Layers)), Process: spec.GetProcess(),
	}, nil
}

// compilation collects the rules of a policy, layer by layer.
type compilation struct {
	given    map[string]string
	bounds   map[string]string // the folder of within that a given value lies in, by parameter
	resolver *resolver
	layers   []profile.Layer

	ids     map[string]int32 // index of a path in rows
	next    int32            // the row after the last one met
	rows    []pathRow
	masks   []profile.Access // len(rows) * cap(layers)
	ports   []portRange
	grants  []pathGrant
	sources []source
}

// newCompilation makes room for the policy's own rules; fragments and variables add to it.
func newCompilation(spec *apiv1.LandlockSpec, o CompileOptions) *compilation {
	width, rules := len(spec.GetLayers()), 0
	for _, l := range spec.GetLayers() {
		for _, r := range l.GetPaths() {
			rules += len(r.GetAt())
		}
	}
	rules = min(rules, MaxRules)
	return &compilation{
		given: o.Parameters, resolver: newResolver(o.Fragments),
		layers: make([]profile.Layer, 0, width),
		ids:    make(map[string]int32, rules),
		rows:   make([]pathRow, 0, rules),
		grants: make([]pathGrant, 0, rules),
	}
}

type pathRow struct {
	path    string
	missing profile.Missing
	within  int
}

// pathGrant is what one rule grants on one path.
type pathGrant struct {
	row, source int32
	layer       int32
	access      profile.Access
}

type portRange struct {
	first, last uint16
	quiet       bool
	source      int32
	layer       int32
	access      profile.Access
}

// collect lets a rule set add its rules to the compilation.
func (c *compilation) collect(s *ruleSet, layer int, from *scope) {
	width := cap(c.layers)
	s.clean = func(text string) bool { return int(c.next) < len(c.rows) && c.rows[c.next].path == text }
	s.path = func(rule, _ int, path string, access profile.Access, quiet bool, missing profile.Missing) {
		// Layers mostly name the same paths in the same order.
		id, ok := c.next, int(c.next) < len(c.rows) && c.rows[c.next].path == path
		if !ok {
			id, ok = c.ids[path]
		}
		if !ok {
			id = int32(len(c.rows))
			c.ids[path] = id
			c.rows = append(c.rows, pathRow{path: path, missing: missing})
			for range width {
				c.masks = append(c.masks, 0)
			}
		}
		c.next = id + 1
		if missing == profile.Fail {
			c.rows[id].missing = profile.Fail
		}
		mask := access
		if quiet {
			mask |= profile.QuietRule
		}
		c.masks[int(id)*width+layer] |= mask
		c.grants = append(c.grants, pathGrant{id, c.source(from, tablePaths, rule), int32(layer), access})
	}
	s.within = func(n int) {
		row := &c.rows[c.next-1]
		row.within = max(row.within, n)
	}
	s.port = func(rule int, first, last uint16, access profile.Access, quiet bool) {
		c.ports = append(c.ports, portRange{first, last, quiet, c.source(from, tablePorts, rule), int32(layer), access})
	}
}

// layer takes a checked layer and its own rules from s, and adds those of its fragments.
func (c *compilation) layer(r *reporter, l *apiv1.Layer, layer profile.Layer, own *ruleSet, p *place) {
	i := len(c.layers)
	c.layers = append(c.layers, layer)
	for _, in := range c.resolver.include(r, l.GetInclude(), p, make(map[string]bool), nil) {
		spec := in.fragment.GetSpec()
		s := &ruleSet{
			reporter: &in.reporter, values: in.values, abi: int(spec.GetAbi()),
			layer: &c.layers[i], room: own.room,
		}
		at := (*place)(nil).key("spec")
		c.collect(s, i, newScope(in.reporter.origin, &at, in.name))
		s.paths(spec.GetPaths(), &at)
		s.ports(spec.GetPorts(), &at)
		if bad := in.reporter.errors.findings; len(bad) > 0 {
			r.addf(bad[0].GetCode(), p, "fragment %s: %s", in.name, bad[0].GetMessage())
			in.reporter.errors.findings = nil
		}
	}
	own.bounds = c.bounds
	c.collect(own, i, newScope(r.origin, p, ""))
}

// build makes the profile.
func (c *compilation) build() (*profile.Profile, error) {
	b := profile.NewBuilder(c.layers)
	width := cap(c.layers)
	b.Grow(len(c.rows))
	for id, row := range c.rows {
		if err := b.AddPathRow(row.path, c.masks[id*width:(id+1)*width], row.missing); err != nil {
			return nil, err
		}
		if row.within > 0 {
			if err := b.KeepWithin(row.path, row.within); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range c.ports {
		if err := b.AddPorts(int(p.layer), p.first, p.last, p.access, p.quiet); err != nil {
			return nil, err
		}
	}
	return b.Build()
}
