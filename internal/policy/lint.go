package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// maxLintDepth is how deep a path may be for its folders to be looked at.
const maxLintDepth = 64

// Lint gives warnings on a checked document: things that are allowed and
// rarely meant. Codes are stable and stand in docs/policy-language.md. frags
// may be nil: the shipped fragments. Fragments that cannot be found are left
// out; Pin and Compile report them.
func Lint(d *Document, frags FragmentSource) []*apiv1.Finding {
	l := &linter{reporter: reporter{d.origin, &Errors{}}, resolver: newResolver(frags), used: make(map[string]bool)}
	p := (*place)(nil).key("spec")
	switch k := d.Resource.GetKind().(type) {
	case *apiv1.Resource_LandlockPolicy:
		l.policy(k.LandlockPolicy.GetSpec(), &p)
	case *apiv1.Resource_Fragment:
		l.fragment(k.Fragment.GetSpec(), &p)
	case *apiv1.Resource_SmackPolicy:
		return lintSmack(d, k.SmackPolicy)
	case *apiv1.Resource_Binding:
		l.binding(k.Binding.GetSpec().GetMatch(), &p)
	}
	for _, f := range l.errors.findings {
		f.Severity = apiv1.Finding_SEVERITY_WARNING
	}
	sortFindings(l.errors.findings)
	return l.errors.findings
}

// linter collects warnings as errors and turns them around at the end.
type linter struct {
	reporter
	resolver *resolver
	used     map[string]bool
}

// lintRule is a path rule of a layer.
type lintRule struct {
	path   string
	access profile.Access
	quiet  bool
	rule   int
	at     int
	from   string // fragment; "" for the document itself
}

// lintLayer is all that a layer grants.
type lintLayer struct {
	profile.Layer
	rules []lintRule // fragments' first, in their order
}

func (l *linter) policy(spec *apiv1.LandlockSpec, p *place) {
	quietly := reporter{origin{}, &Errors{}} // the document was checked before
	abi := int(spec.GetAbi())
	values := quietly.variables(spec.GetVariables(), spec.GetParameters(), p)
	for _, param := range spec.GetParameters() {
		if _, ok := spec.GetVariables()[param.GetName()]; !ok {
			// Not one of the folders it must lie in, or rules on those would seem to cover it.
			values[param.GetName()] = []string{standIn(param) + "/${" + param.GetName() + "}"}
		}
	}
	list := p.key("layers")
	if n := len(spec.GetLayers()); n > profile.MaxKernelLayers {
		l.addf(lintTooManyLayers, &list, "%d layers: a kernel takes %d, so they have to be flattened to start anything", n, profile.MaxKernelLayers)
	}
	layers := make([]lintLayer, len(spec.GetLayers()))
	for i, layer := range spec.GetLayers() {
		at := list.at(i)
		layers[i].Layer = quietly.layer(layer, i, abi, &at)
		l.includes(layer.GetInclude(), &at)
		for _, in := range l.resolver.include(&quietly, layer.GetInclude(), &at, make(map[string]bool), nil) {
			l.collect(&layers[i], &in.reporter, in.values, int(in.fragment.GetSpec().GetAbi()), in.fragment.GetSpec().GetPaths(), in.name, false)
		}
		l.collect(&layers[i], &quietly, values, abi, layer.GetPaths(), "", true)
		l.layer(&layers[i], &at)
		l.ports(layer.GetPorts(), &layers[i].Layer, abi, &at)
	}
	l.refer(layers, &list)
	l.unused(slices.Collect(maps.Keys(spec.GetVariables())), spec.GetParameters(), p)
}

func (l *linter) fragment(spec *apiv1.FragmentSpec, p *place) {
	quietly := reporter{origin{}, &Errors{}}
	abi := int(spec.GetAbi())
	values := quietly.variables(spec.GetVariables(), nil, p)
	layer := lintLayer{Layer: fragmentLayer(abi)}
	l.includes(spec.GetInclude(), p)
	l.collect(&layer, &quietly, values, abi, spec.GetPaths(), "", true)
	l.rules(&layer, p)
	l.ports(spec.GetPorts(), &layer.Layer, abi, p)
	l.unused(slices.Collect(maps.Keys(spec.GetVariables())), nil, p)
}

// collect adds the path rules of a document to a layer.
func (l *linter) collect(layer *lintLayer, r *reporter, values map[string][]string, abi int, rules []*apiv1.PathRule, from string, own bool) {
	room := MaxExpansion
	s := &ruleSet{reporter: r, values: values, abi: abi, layer: &layer.Layer, strict: own, room: &room}
	if own {
		s.used = l.used
	}
	s.path = func(rule, at int, path string, access profile.Access, quiet bool, _ profile.Missing) {
		layer.rules = append(layer.rules, lintRule{path, access, quiet, rule, at, from})
	}
	none := (*place)(nil).key("spec")
	s.paths(rules, &none)
}

func (l *linter) includes(names []string, p *place) {
	at := p.key("include")
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			here := at.at(i)
			l.addf(lintRepeatedInclude, &here, "%s is included twice", name)
		}
	}
}

// layer gives the warnings on one layer alone.
func (l *linter) layer(layer *lintLayer, p *place) {
	l.rules(layer, p)
	if layer.FS&profile.FSExecute == 0 {
		return
	}
	for _, r := range layer.rules {
		if r.access&profile.FSExecute != 0 {
			return
		}
	}
	l.addf(lintNothingToExecute, p, "layer %q handles execute and grants it nowhere: no program can be started", layer.Name)
}

// rules gives the warnings on the path rules of a layer.
func (l *linter) rules(layer *lintLayer, p *place) {
	type granted struct {
		before profile.Access // by the rules looked at so far
		all    profile.Access
		from   string
	}
	paths := make(map[string]*granted, len(layer.rules))
	for _, r := range layer.rules {
		g := paths[r.path]
		if g == nil {
			g = &granted{from: r.from}
			paths[r.path] = g
		}
		g.all |= r.access
	}
	list := p.key("paths")
	for _, r := range layer.rules {
		own := paths[r.path]
		rule := list.at(r.rule)
		ats := rule.key("at")
		at := ats.at(r.at)
		if r.from != "" {
			own.before |= r.access
			continue
		}
		if isProcSelf(r.path) {
			l.addf(lintProcSelf, &at, "%s names whoever builds the rules, not the program that runs under them; a start is refused", r.path)
		}
		if strings.Count(r.path, "/") > maxLintDepth {
			continue
		}
		var above profile.Access
		nearest, by := "", ""
		for dir := parent(r.path); dir != ""; dir = parent(dir) {
			if g := paths[dir]; g != nil {
				above |= g.all
				if nearest == "" {
					nearest, by = dir, g.from
				}
			}
		}
		switch have := above | own.before; {
		case r.access&^have == 0 && !r.quiet:
			if own.before != 0 {
				nearest, by = r.path, own.from
			}
			l.addf(lintRedundantRule, &at, "%s is granted all of this already by the rule on %s%s", r.path, nearest, ofFragment(by))
		case isFileRule(r) && above&(profile.FSMakeReg|profile.FSRemoveFile) != 0:
			l.addf(lintFileInWritable, &at, "%s can be replaced by the program (%s grants that), and the rule stays with the old file: it binds to the inode", r.path, nearest)
		}
		if have := above | own.all; r.access&profile.FSExecute != 0 && layer.FS&^have&profile.FSReadFile != 0 {
			allow := rule.key("allow")
			l.addf(lintExecuteWithoutRead, &allow, "execute without read_file on %s: the kernel asks for both when a program is executed", r.path)
		}
		own.before |= r.access
	}
}

func ofFragment(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" of %s", name)
}

// parent gives the folder of a clean path, "" for "/".
func parent(path string) string {
	if path == "/" {
		return ""
	}
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// isFileRule guesses from rights and name that a rule is about a file.
func isFileRule(r lintRule) bool {
	dirOnly := r.access &^ profile.FileRights(profile.MaxABI)
	base := r.path[strings.LastIndexByte(r.path, '/')+1:]
	return dirOnly == 0 || dirOnly == profile.FSReadDir && strings.LastIndexByte(base, '.') > 0
}

// isProcSelf tells whether a path means another thing to every process.
func isProcSelf(path string) bool {
	for _, dir := range []string{"/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc/self", "/proc/thread-self"} {
		if beneath(path, dir) {
			return true
		}
	}
	rest, ok := strings.CutPrefix(path, "/proc/")
	first, _, _ := strings.Cut(rest, "/")
	return ok && first != "" && strings.Trim(first, "0123456789") == ""
}

func (l *linter) ports(rules []*apiv1.PortRule, layer *profile.Layer, abi int, p *place) {
	list := p.key("ports")
	quietly := reporter{origin{}, &Errors{}}
	s := &ruleSet{reporter: &quietly, abi: abi, layer: layer}
	for i, rule := range rules {
		// A datagram sent from no port yet is checked as a bind to port 0
		// (current_check_autobind_udp_socket in the kernel's landlock/net.c).
		access, quiet, _ := s.access(profile.Net, rule.GetAllow(), rule.GetQuiet(), p)
		if access&profile.NetBindUDP != 0 || quiet && layer.QuietNet&profile.NetBindUDP != 0 {
			continue
		}
		for j, text := range rule.GetPort() {
			if first, _, err := parsePorts(text); err == nil && first == 0 {
				here := list.at(i)
				ports := here.key("port")
				at := ports.at(j)
				l.addf(lintPortZero, &at, "port 0 in %s: to bind to it lets the kernel choose any free port, to connect to it never works", text)
			}
		}
	}
}

// refer warns of layers that forbid renames between folders without saying so.
func (l *linter) refer(layers []lintLayer, list *place) {
	anyFS, granting := false, ""
	for i := range layers {
		anyFS = anyFS || layers[i].FS != 0
		grants := slices.ContainsFunc(layers[i].rules, func(r lintRule) bool { return r.access&profile.FSRefer != 0 })
		switch {
		case grants:
			granting = layers[i].Name
		case layers[i].FS&profile.FSRefer != 0:
			return // this layer handles refer and grants it nowhere: such renames are meant to be refused
		}
	}
	for i := range layers {
		if !anyFS || layers[i].FS&profile.FSRefer != 0 {
			continue
		}
		at := list.at(i)
		if granting != "" {
			l.addf(lintImplicitRefer, &at, "layer %q refuses the renames and links between folders that layer %q grants: every layer handles refer, listed or not; list it in handles and grant it on /", layers[i].Name, granting)
		} else {
			l.addf(lintImplicitRefer, &at, "layer %q refuses renames and links between folders: every layer handles refer, listed or not", layers[i].Name)
		}
	}
}

func (l *linter) unused(variables []string, params []*apiv1.Parameter, p *place) {
	at := p.key("parameters")
	isParam := make(map[string]bool)
	for i, param := range params {
		isParam[param.GetName()] = true
		here := at.at(i)
		if !l.used[param.GetName()] {
			l.addf(lintUnusedVariable, &here, "no path uses the parameter %s", param.GetName())
		} else if len(param.GetWithin()) == 0 {
			l.addf(lintOpenParameter, &here, "parameter %s may be any path whoever starts the policy chooses; name the folders it must lie in with within ([/] if any path is meant)", param.GetName())
		}
	}
	at = p.key("variables")
	for _, name := range sorted(variables) {
		if !l.used[name] && !isParam[name] {
			here := at.key(name)
			l.addf(lintUnusedVariable, &here, "no path uses the variable %s", name)
		}
	}
}
