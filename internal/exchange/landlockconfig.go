package exchange

import (
	"maps"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/policy"
)

// landlockconfig reads files of that format: one, or several that are united (Compose) or become a layer each.
func (r *report) landlockconfig(files []File, o Options) []*draft {
	var configs []*Config
	for _, f := range files {
		if c := r.config(f, o.TOML); c != nil {
			configs = append(configs, c)
		}
	}
	if len(configs) != len(files) {
		return nil
	}
	d := &draft{name: nameOf(baseName(files[0].Name)), variables: map[string][]string{}}
	if len(files) > 1 {
		d.name = defaultName
	}
	r.bestEffort(configs[0].source.whole(), "landlockconfig")
	taken := map[string]bool{}
	switch {
	case len(configs) == 1:
		r.configLayer(d, configs[0], o, taken)
	case o.Compose == ComposeUnion:
		r.lostByCompose(configs)
		c := Compose(configs)
		c.Name = defaultName
		r.configLayer(d, c, o, taken)
	default:
		r.stacked(configs)
		for _, c := range configs {
			if !c.Handles() {
				r.remarkf(c.source.whole(), "the file restricts nothing, so it becomes no layer")
				continue
			}
			r.configLayer(d, c, o, taken)
		}
	}
	if len(d.layers) == 0 && len(r.errors) == 0 {
		r.errorf(spot{}, codeHandlesNothing, "nothing is handled: a program would not be confined at all")
	}
	return []*draft{d}
}

// bestEffort remarks on tools that go on with less than was asked.
func (r *report) bestEffort(at spot, tool string) {
	r.remarkf(at, "on a kernel that lacks rights %s goes on without them; this policy is refused there unless it says enforcement: degrade", tool)
}

// lostByCompose tells what composing takes away from each file.
func (r *report) lostByCompose(configs []*Config) {
	common := Compose(configs)
	for _, c := range configs {
		for kind, lost := range [...]profile.Access{c.FS &^ common.FS, c.Net &^ common.Net, c.Scope &^ common.Scope} {
			if lost != 0 {
				r.remarkf(c.source.whole(), "composing drops %s of this file, which not all files handle: denied no longer (--compose layers keeps it)", profile.Kind(kind).Format(lost))
			}
		}
		for _, p := range c.Paths {
			if p.Access&common.FS == 0 {
				r.remarkf(p.at, "nothing of the rule on %s is left, since not all files handle its rights", clip(p.Parent.String()))
			}
		}
		for _, port := range slices.Sorted(maps.Keys(c.Ports)) {
			if c.Ports[port]&common.Net == 0 {
				r.remarkf(c.source.whole(), "nothing of the rule on port %d is left, since not all files handle its rights", port)
			}
		}
	}
	if !common.Handles() {
		r.errorf(spot{}, codeHandlesNothing, "composing leaves nothing handled: a program would not be confined at all; --compose layers keeps what each file denies")
	}
}

// stacked tells what layers mean where it is easily overlooked.
func (r *report) stacked(configs []*Config) {
	r.remarkf(spot{}, "landlockconfig composes files into one layer, which allows more than these layers do")
	var refers bool
	for _, c := range configs {
		for _, p := range c.Paths {
			refers = refers || p.Access&profile.FSRefer != 0
		}
	}
	for _, c := range configs {
		if refers && c.Handles() && c.FS&profile.FSRefer == 0 {
			r.remarkf(c.source.whole(), "this layer grants refer nowhere, so no file can be moved between folders, whatever the other layers grant")
		}
	}
}

// configLayer makes a layer of a configuration.
func (r *report) configLayer(d *draft, c *Config, o Options, taken map[string]bool) {
	if !c.Handles() && len(r.errors) == 0 {
		at := spot{}
		if c.source != nil {
			at = c.source.whole()
		}
		r.errorf(at, codeHandlesNothing, "nothing is handled: a program would not be confined at all")
		return
	}
	d.abi = max(d.abi, c.ABI)
	l := &draftLayer{name: distinct(nameOf(baseName(c.Name)), taken), fs: c.FS, net: c.Net, scope: c.Scope}
	d.layers = append(d.layers, l)
	names := r.carry(d, c)
	room := policy.MaxExpansion
	for _, p := range c.Paths {
		r.configPath(l, c, p, o.Base, names, &room)
	}
	for _, port := range slices.Sorted(maps.Keys(c.Ports)) {
		l.grantPort(port, c.Ports[port])
	}
}

// carry puts the variables that policyd can hold into the draft and gives their names there. A variable of the same name
// and other values, of another file, gets another name.
func (r *report) carry(d *draft, c *Config) map[string]string {
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		values := c.Variables[name]
		if len(name) > policy.MaxNameBytes-4 || len(values) == 0 || len(values) > policy.MaxMembers || !holdsAll(values) {
			continue
		}
		out := name
		for i := 2; d.variables[out] != nil && !slices.Equal(d.variables[out], values); i++ {
			out = name + "_" + decimal(uint16(i))
		}
		d.variables[out] = values
		names[name] = out
		if out != name {
			r.remarkf(c.source.whole(), "variable %s has other values in another file; here it is %s", name, out)
		}
	}
	return names
}

// holdsAll tells whether a policy's variable may have these members.
func holdsAll(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool {
		return v == "" || len(v) > policy.MaxPathBytes || slices.Contains(strings.Split(v, "/"), "..")
	})
}

// configPath grants a rule's rights: on its template, or on each path that it stands for where policyd has no such
// template.
func (r *report) configPath(l *draftLayer, c *Config, p ConfigPath, base string, names map[string]string, room *int) {
	asTemplate := true
	for _, name := range p.Parent.vars {
		if _, ok := c.Variables[name]; !ok {
			r.errorf(p.at, codeUnknownVariable, "unknown variable %q", name)
			return
		}
		asTemplate = asTemplate && names[name] != ""
	}
	n := p.Parent.count(c.Variables, *room)
	if *room -= n; *room < 0 {
		r.errorf(p.at, codeTooLarge, "more than %d paths after variables", policy.MaxExpansion)
		return
	}
	if n == 0 {
		r.remarkf(p.at, "a variable without literals: the rule on %s stands for no path and is left out", clip(p.Parent.String()))
		return
	}
	var paths []string
	ok := p.Parent.expand(c.Variables, func(s string) bool {
		asTemplate = asTemplate && strings.HasPrefix(s, "/")
		path, ok := r.literal(p.at, s, base)
		paths = append(paths, path)
		return ok
	})
	if !ok {
		return
	}
	if asTemplate && len(p.Parent.vars) > 0 {
		t := template{literals: p.Parent.literals}
		for _, name := range p.Parent.vars {
			t.vars = append(t.vars, names[name])
		}
		paths = []string{t.String()}
	}
	for _, path := range paths {
		l.grant(path, p.Access, true)
	}
	r.remarkf(spot{file: p.at.file}, "paths that do not exist are skipped (missing: skip), as landlockconfig does without telling the program")
}
