package exchange

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// JSON writes a configuration in landlockconfig's JSON spelling. Rights stand by name, without groups, so no abi is
// needed.
func (c *Config) JSON() []byte {
	var sections []string
	section := func(key string, items []string) {
		if len(items) > 0 {
			sections = append(sections, fmt.Sprintf("  %s: [\n    %s\n  ]", quoted(key), strings.Join(items, ",\n    ")))
		}
	}
	pairs := func(pairs ...string) string {
		var parts []string
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				parts = append(parts, quoted(pairs[i])+": "+pairs[i+1])
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	k := jsonKeys
	var items []string
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		items = append(items, pairs("name", quoted(name), "literal", quotedList(c.Variables[name])))
	}
	section(k.variable, items)
	section(k.ruleset, []string{pairs(k.handledFS, quotedList(profile.FS.Names(c.FS)), k.handledNet, quotedList(profile.Net.Names(c.Net)), "scoped", quotedList(profile.Scope.Names(c.Scope)))})
	items = nil
	for _, g := range c.pathGroups() {
		items = append(items, pairs(k.allowed, quotedList(profile.FS.Names(g.access)), "parent", quotedList(g.parents)))
	}
	section(k.pathBeneath, items)
	items = nil
	for _, g := range c.portGroups() {
		items = append(items, pairs(k.allowed, quotedList(profile.Net.Names(g.access)), "port", "["+strings.Join(g.parents, ", ")+"]"))
	}
	section(k.netPort, items)
	return []byte("{\n" + strings.Join(sections, ",\n") + "\n}\n")
}

// TOML writes a configuration in landlockconfig's TOML spelling, with lines of comment before it.
func (c *Config) TOML(comment string) []byte {
	var b strings.Builder
	for line := range strings.Lines(comment) {
		b.WriteString("# " + strings.TrimRight(line, "\n") + "\n")
	}
	table := func(name string, pairs ...string) {
		fmt.Fprintf(&b, "\n[[%s]]\n", name)
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				fmt.Fprintf(&b, "%s = %s\n", pairs[i], pairs[i+1])
			}
		}
	}
	k := tomlKeys
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		table(k.variable, "name", quoted(name), "literal", quotedList(c.Variables[name]))
	}
	table(k.ruleset, k.handledFS, quotedList(profile.FS.Names(c.FS)), k.handledNet, quotedList(profile.Net.Names(c.Net)), "scoped", quotedList(profile.Scope.Names(c.Scope)))
	for _, g := range c.pathGroups() {
		table(k.pathBeneath, k.allowed, quotedList(profile.FS.Names(g.access)), "parent", quotedList(g.parents))
	}
	for _, g := range c.portGroups() {
		table(k.netPort, k.allowed, quotedList(profile.Net.Names(g.access)), "port", "["+strings.Join(g.parents, ", ")+"]")
	}
	return []byte(strings.TrimPrefix(b.String(), "\n"))
}

// accessGroup is what one rule of a file names.
type accessGroup struct {
	access  profile.Access
	parents []string // or ports
}

// pathGroups unites the templates with the same rights, in the order of the first of each.
func (c *Config) pathGroups() (groups []accessGroup) {
	for _, p := range c.Paths {
		groups = group(groups, p.Access, p.Parent.String())
	}
	return groups
}

func (c *Config) portGroups() (groups []accessGroup) {
	for _, port := range slices.Sorted(maps.Keys(c.Ports)) {
		groups = group(groups, c.Ports[port], decimal(port))
	}
	return groups
}

func group(groups []accessGroup, access profile.Access, member string) []accessGroup {
	i := slices.IndexFunc(groups, func(g accessGroup) bool { return g.access == access })
	if i < 0 {
		return append(groups, accessGroup{access, []string{member}})
	}
	groups[i].parents = append(groups[i].parents, member)
	return groups
}

// quoted writes a text as both JSON and TOML read it.
func quoted(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""` // a string always encodes
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`) // must not stand bare in TOML
}

func quotedList(list []string) string {
	if len(list) == 0 {
		return ""
	}
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = quoted(s)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
