package exchange

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/policy"
)

// draft is a policy as the readers build it.
type draft struct {
	name      string
	abi       int // of the text; raised to what its rights need
	degrade   bool
	variables map[string][]string
	layers    []*draftLayer
	env       map[string]string
}

// draftLayer is a layer with explicit handled rights.
type draftLayer struct {
	name           string
	fs, net, scope profile.Access // handled
	paths          []draftPaths
	ports          []draftPorts
	log            *apiv1.Log
}

type draftPaths struct {
	allow profile.Access
	skip  bool
	at    []string // policyd's templates
}

type draftPorts struct {
	allow profile.Access
	ports []uint16
}

// grant adds a path to the rule of the same rights, or to a new one.
func (l *draftLayer) grant(path string, allow profile.Access, skip bool) {
	i := slices.IndexFunc(l.paths, func(p draftPaths) bool { return p.allow == allow && p.skip == skip })
	if i < 0 {
		i = len(l.paths)
		l.paths = append(l.paths, draftPaths{allow: allow, skip: skip})
	}
	l.paths[i].at = append(l.paths[i].at, path)
}

func (l *draftLayer) grantPort(port uint16, allow profile.Access) {
	i := slices.IndexFunc(l.ports, func(p draftPorts) bool { return p.allow == allow })
	if i < 0 {
		i = len(l.ports)
		l.ports = append(l.ports, draftPorts{allow: allow})
	}
	l.ports[i].ports = append(l.ports[i].ports, port)
}

// message makes the document of a draft.
func (d *draft) message() *apiv1.LandlockPolicy {
	spec := &apiv1.LandlockSpec{Abi: uint32(d.neededABI())}
	if d.degrade {
		spec.Enforcement = apiv1.Enforcement_ENFORCEMENT_DEGRADE
	}
	for name, values := range d.variables {
		if spec.Variables == nil {
			spec.Variables = map[string]*apiv1.StringList{}
		}
		spec.Variables[name] = &apiv1.StringList{Values: values}
	}
	if len(d.env) > 0 {
		spec.Process = &apiv1.Process{Environment: d.env}
	}
	abi := int(spec.GetAbi())
	for _, l := range d.layers {
		out := &apiv1.Layer{
			Name: l.name, Log: l.log, Scope: handledWords(profile.Scope, l.scope, abi),
			Handles: &apiv1.Handles{Fs: handledWords(profile.FS, l.fs, abi), Net: handledWords(profile.Net, l.net, abi)},
		}
		for _, p := range l.paths {
			rule := &apiv1.PathRule{Allow: words(profile.FS, p.allow, l.fs, abi), At: unique(p.at)}
			if p.skip {
				rule.Missing = apiv1.MissingPath_MISSING_PATH_SKIP
			}
			out.Paths = append(out.Paths, rule)
		}
		for _, p := range l.ports {
			out.Ports = append(out.Ports, &apiv1.PortRule{Allow: words(profile.Net, p.allow, l.net, abi), Port: ranges(p.ports)})
		}
		spec.Layers = append(spec.Layers, out)
	}
	return &apiv1.LandlockPolicy{Metadata: &apiv1.Metadata{Name: d.name}, Spec: spec}
}

// neededABI is the draft's own, or the first that knows all its rights.
func (d *draft) neededABI() int {
	abi := min(max(d.abi, 1), profile.MaxABI)
	for _, l := range d.layers {
		for _, right := range profile.Rights() {
			if [...]profile.Access{l.fs, l.net, l.scope}[right.Kind]&right.Bit != 0 {
				abi = max(abi, right.ABI)
			}
		}
		if l.log != nil {
			abi = max(abi, 7)
		}
	}
	return abi
}

// handledWords names what a layer handles.
func handledWords(kind profile.Kind, handled profile.Access, abi int) []string {
	return words(kind, handled, profile.Handled(kind, abi), abi)
}

// words names rights as short as the groups allow: a group grants those of its rights that are handled.
func words(kind profile.Kind, allow, handled profile.Access, abi int) []string {
	groups := profile.Groups()
	slices.SortStableFunc(groups, func(a, b profile.Group) int { return cmp.Compare(size(b.Access), size(a.Access)) })
	var names []string
	rest := allow
	for _, g := range groups {
		access, _ := profile.ExpandGroup(g.Kind, g.Name, abi)
		if access &= handled; g.Kind == kind && size(access) > 1 && access&^allow == 0 && access&^rest == 0 {
			names = append(names, g.Name)
			rest &^= access
		}
	}
	return append(names, kind.Names(rest)...)
}

func size(a profile.Access) (n int) {
	for ; a != 0; a &= a - 1 {
		n++
	}
	return n
}

// ranges writes ports in order, neighbours as a range.
func ranges(ports []uint16) []string {
	ports = slices.Clone(ports)
	slices.Sort(ports)
	ports = slices.Compact(ports)
	var out []string
	for i := 0; i < len(ports); {
		j := i
		for j+1 < len(ports) && ports[j+1] == ports[j]+1 {
			j++
		}
		if j-i >= 2 {
			out = append(out, decimal(ports[i])+"-"+decimal(ports[j]))
		} else {
			for _, p := range ports[i : j+1] {
				out = append(out, decimal(p))
			}
		}
		i = j + 1
	}
	return out
}

// unique drops texts that stood before.
func unique(texts []string) []string {
	seen := make(map[string]bool, len(texts))
	var out []string
	for _, t := range texts {
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out
}

// nameOf makes a name for a document or layer of a text: what a name may not hold becomes a dash.
func nameOf(s string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' {
			return c
		}
		return '-'
	}, strings.ToLower(s))
	if len(name) > policy.MaxNameBytes {
		name = name[:policy.MaxNameBytes]
	}
	if name = strings.Trim(name, "-."); name == "" {
		return defaultName
	}
	return name
}

// distinct gives a name that none of taken has, and takes it.
func distinct(name string, taken map[string]bool) string {
	out := name
	for i := 2; taken[out]; i++ {
		suffix := "-" + decimal(uint16(i))
		out = strings.TrimRight(name[:min(len(name), policy.MaxNameBytes-len(suffix))], "-.") + suffix
	}
	taken[out] = true
	return out
}
