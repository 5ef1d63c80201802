package policy

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

const nameRule = "a name is 1 to 63 characters a-z, 0-9, - and ., and begins and ends with a letter or digit"

// isName checks the rule of names of documents and layers.
func isName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !alnum && (c != '-' && c != '.' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}

// isFragmentName is isName with one collection before it.
func isFragmentName(s string) bool {
	collection, name, ok := strings.Cut(s, "/")
	return len(s) <= MaxNameBytes && isName(collection) && (!ok || isName(name))
}

// resource checks everything of a document that the text alone decides.
func (r *reporter) resource(res *apiv1.Resource) {
	switch k := res.GetKind().(type) {
	case *apiv1.Resource_LandlockPolicy:
		r.metadata(k.LandlockPolicy.GetMetadata(), isName)
		r.policy(k.LandlockPolicy.GetSpec(), nil)
	case *apiv1.Resource_Fragment:
		r.metadata(k.Fragment.GetMetadata(), isFragmentName)
		r.fragment(k.Fragment.GetSpec())
	case *apiv1.Resource_PolicyTest:
		r.metadata(k.PolicyTest.GetMetadata(), isName)
		r.test(k.PolicyTest.GetSpec())
	case *apiv1.Resource_SmackPolicy:
		r.metadata(k.SmackPolicy.GetMetadata(), isName)
		r.smack(k.SmackPolicy)
	case *apiv1.Resource_Binding:
		r.metadata(k.Binding.GetMetadata(), isName)
		r.binding(k.Binding.GetSpec())
	default:
		r.addf(codeUnknownKind, nil, "the document has no kind")
	}
}

func (r *reporter) metadata(m *apiv1.Metadata, ok func(string) bool) {
	p := (*place)(nil).key("metadata")
	name := p.key("name")
	if m.GetName() == "" {
		r.addf(codeMissingKey, &p, "metadata.name is missing")
	} else if !ok(m.GetName()) {
		r.addf(codeBadName, &name, "name %q: %s", clip(m.GetName()), nameRule)
	}
	labels := p.key("labels")
	if len(m.GetLabels()) > MaxLabels {
		r.addf(codeTooLarge, &labels, "%d labels, at most %d", len(m.GetLabels()), MaxLabels)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m.GetLabels())) {
		at := labels.key(k)
		if v := m.GetLabels()[k]; k == "" || !isLabel(k) || !isLabel(v) {
			r.addf(codeBadName, &at, "label %q: %q: keys and values are at most %d letters, digits, -, _, . and /", clip(k), clip(v), MaxNameBytes)
		}
	}
	if d := m.GetDescription(); len(d) > MaxDescription || strings.ContainsFunc(d, unicode.IsControl) {
		at := p.key("description")
		r.addf(codeBadValue, &at, "a description is one line of at most %d bytes", MaxDescription)
	}
}

func isLabel(s string) bool {
	return len(s) <= MaxNameBytes && strings.IndexFunc(s, func(c rune) bool {
		return !(c == '-' || c == '_' || c == '.' || c == '/' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9')
	}) < 0
}

// abi checks spec.abi; 0 when rights cannot be read.
func (r *reporter) abi(abi uint32, p *place) int {
	at := p.key("abi")
	switch {
	case abi == 0:
		r.addf(codeBadABI, p, "abi is missing: the Landlock ABI whose rights the document knows, 1 to %d", profile.MaxABI)
	case abi > profile.MaxABI:
		r.addf(codeBadABI, &at, "abi %d is not known; this policyd knows 1 to %d", abi, profile.MaxABI)
	default:
		return int(abi)
	}
	return 0
}

// policy checks a policy's body and hands what it read to c, unless c is nil.
func (r *reporter) policy(spec *apiv1.LandlockSpec, c *compilation) {
	p := (*place)(nil).key("spec")
	if spec == nil {
		r.addf(codeMissingKey, nil, "spec is missing")
		return
	}
	abi := r.abi(spec.GetAbi(), &p)
	values := r.variables(spec.GetVariables(), spec.GetParameters(), &p)
	if c != nil {
		c.bounds = r.setParameters(values, spec, c.given, &p)
	}
	r.process(spec.GetProcess(), &p)
	r.flatten(spec.GetFlatten(), &p)
	layers := p.key("layers")
	switch n := len(spec.GetLayers()); {
	case n == 0:
		r.addf(codeMissingKey, &p, "layers is missing: at least one")
		return
	case n > MaxLayers:
		r.addf(codeTooLarge, &layers, "%d layers, at most %d", n, MaxLayers)
		return
	case abi == 0:
		return
	}
	rules := 0
	for _, l := range spec.GetLayers() {
		rules += countRules(l.GetPaths(), l.GetPorts())
	}
	if rules > MaxRules {
		r.addf(codeTooLarge, &layers, "%d paths and port ranges, at most %d", rules, MaxRules)
		return
	}
	names := make(map[string]bool, len(spec.GetLayers()))
	room := MaxExpansion
	for i, l := range spec.GetLayers() {
		at := layers.at(i)
		layer := r.layer(l, i, abi, &at)
		if names[layer.Name] {
			here := at.key("name")
			r.addf(codeDuplicateName, &here, "two layers are named %q", layer.Name)
		}
		names[layer.Name] = true
		r.includes(l.GetInclude(), &at)
		s := r.rules(values, abi, &layer, &room)
		if c != nil {
			c.layer(r, l, layer, s, &at)
		}
		s.paths(l.GetPaths(), &at)
		s.ports(l.GetPorts(), &at)
	}
}

func (r *reporter) fragment(spec *apiv1.FragmentSpec) {
	p := (*place)(nil).key("spec")
	if spec == nil {
		r.addf(codeMissingKey, nil, "spec is missing")
		return
	}
	abi := r.abi(spec.GetAbi(), &p)
	values := r.variables(spec.GetVariables(), nil, &p)
	r.includes(spec.GetInclude(), &p)
	if abi == 0 {
		return
	}
	if n := countRules(spec.GetPaths(), spec.GetPorts()); n > MaxRules {
		r.addf(codeTooLarge, &p, "%d paths and port ranges, at most %d", n, MaxRules)
		return
	}
	layer := fragmentLayer(abi)
	room := MaxExpansion
	s := r.rules(values, abi, &layer, &room)
	s.paths(spec.GetPaths(), &p)
	s.ports(spec.GetPorts(), &p)
}

// fragmentLayer is a layer in which all rules of a fragment have their effect.
func fragmentLayer(abi int) profile.Layer {
	l := profile.Layer{Name: "fragment", FS: profile.Handled(profile.FS, abi), Net: profile.Handled(profile.Net, abi)}
	l.QuietFS, l.QuietNet = l.FS, l.Net
	return l
}

// rules gives a rule set that only checks.
func (r *reporter) rules(values map[string][]string, abi int, layer *profile.Layer, room *int) *ruleSet {
	return &ruleSet{
		reporter: r, values: values, abi: abi, layer: layer, strict: true, room: room,
		path: func(int, int, string, profile.Access, bool, profile.Missing) {},
		port: func(int, uint16, uint16, profile.Access, bool) {},
	}
}

func countRules(paths []*apiv1.PathRule, ports []*apiv1.PortRule) int {
	n := 0
	for _, r := range paths {
		n += max(1, len(r.GetAt()))
	}
	for _, r := range ports {
		n += max(1, len(r.GetPort()))
	}
	return n
}

// includes checks the names of included fragments.
func (r *reporter) includes(names []string, p *place) {
	at := p.key("include")
	if len(names) > MaxIncludes {
		r.addf(codeTooLarge, &at, "%d fragments included, at most %d", len(names), MaxIncludes)
		return
	}
	for i, name := range names {
		if !isFragmentName(name) {
			here := at.at(i)
			r.addf(codeBadName, &here, "fragment name %q: %s; one / may stand between a collection and a name", clip(name), nameRule)
		}
	}
}

// acceptable are the limits of flattening a policy may accept.
var acceptable = []string{"refer", "shared_inodes"}

func (r *reporter) flatten(f *apiv1.Flatten, p *place) {
	at := p.key("flatten")
	accept := at.key("accept")
	for i, name := range f.GetAccept() {
		if !slices.Contains(acceptable, name) {
			here := accept.at(i)
			r.addf(codeBadValue, &here, "unknown limit %q%s", clip(name), suggest(name, acceptable))
		}
	}
}
