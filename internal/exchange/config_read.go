package exchange

import (
	"bytes"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// configKeys are the keys of a landlockconfig file in one of its spellings.
type configKeys struct {
	variable, ruleset, pathBeneath, netPort, handledFS, handledNet, allowed string
}

var (
	jsonKeys = configKeys{"variable", "ruleset", "pathBeneath", "netPort", "handledAccessFs", "handledAccessNet", "allowedAccess"}
	tomlKeys = configKeys{"variable", "ruleset", "path_beneath", "net_port", "handled_access_fs", "handled_access_net", "allowed_access"}
)

// configRights are the rights that landlockconfig has names for.
var configRights = [3]profile.Access{
	profile.FS:    profile.Handled(profile.FS, maxConfigABI),
	profile.Net:   profile.Handled(profile.Net, maxConfigABI),
	profile.Scope: profile.Handled(profile.Scope, maxConfigABI),
}

// configReader reads one file.
type configReader struct {
	*report
	configKeys
	c   *Config
	abi int // that groups expand with; 0: there is none
}

// config reads a landlockconfig file, JSON or TOML by its name or else by its first character. nil when it has errors.
func (r *report) config(f File, forceTOML bool) *Config {
	s := newSource(f)
	isJSON := !forceTOML && (strings.HasSuffix(f.Name, ".json") ||
		!strings.HasSuffix(f.Name, ".toml") && bytes.HasPrefix(bytes.TrimSpace(f.Data), []byte("{")))
	var root *node
	d := &configReader{report: r, configKeys: tomlKeys, c: &Config{Name: f.Name, Ports: map[uint16]profile.Access{}, source: s}}
	if isJSON {
		d.configKeys = jsonKeys
		root = r.json(s)
	} else {
		root = r.toml(s)
	}
	if root == nil {
		return nil
	}
	before := len(r.errors)
	d.file(root)
	if len(r.errors) != before {
		return nil
	}
	return d.c
}

func (d *configReader) file(root *node) {
	keys, ok := d.keys(root, "the file", "abi", d.variable, d.ruleset, d.pathBeneath, d.netPort)
	if !ok {
		return
	}
	if n := keys["abi"]; n != nil {
		v, ok := n.integer()
		if !ok || v < 1 || v > 1<<31-1 {
			d.errorf(n.at, codeBadABI, "abi: want a whole number from 1")
			return
		}
		d.c.ABI = int(min(v, profile.MaxABI))
		d.abi = int(min(v, maxConfigABI))
		if v >= 9 {
			d.remarkf(n.at, "landlockconfig knows Landlock up to ABI %d, so its groups hold nothing newer here either", maxConfigABI)
		}
		delete(keys, "abi")
	}
	if len(keys) == 0 {
		d.errorf(root.at, codeMissingKey, "the file says nothing: want one of %s, %s, %s, %s", d.variable, d.ruleset, d.pathBeneath, d.netPort)
	}
	d.each(keys[d.variable], d.variable, d.readVariable)
	d.each(keys[d.ruleset], d.ruleset, d.readRuleset)
	d.each(keys[d.pathBeneath], d.pathBeneath, d.readPathBeneath)
	d.each(keys[d.netPort], d.netPort, d.readNetPort)
}

// each calls f for the members of a list, which must have one; nil is a key that is not there.
func (d *configReader) each(n *node, what string, f func(*node)) {
	if n == nil || !d.filled(n, what) {
		return
	}
	for _, item := range n.items {
		f(item)
	}
}

// filled wants a list that has a member.
func (d *configReader) filled(n *node, what string) bool {
	if !d.want(n, list, what) {
		return false
	}
	if len(n.items) == 0 {
		d.errorf(n.at, codeBadValue, "%s is an empty list", what)
	}
	return len(n.items) > 0
}

// texts reads a list of texts and calls f for each.
func (d *configReader) texts(n *node, what string, f func(*node)) {
	d.each(n, what, func(item *node) {
		if d.want(item, text, "a member of "+what) {
			f(item)
		}
	})
}

// required gives the value of a key that must be there.
func (d *configReader) required(n *node, keys map[string]*node, what, key string) *node {
	if keys[key] == nil {
		d.errorf(n.at, codeMissingKey, "%s: %s is missing", what, key)
	}
	return keys[key]
}

func (d *configReader) readVariable(n *node) {
	keys, ok := d.keys(n, d.variable, "name", "literal")
	if !ok {
		return
	}
	name := d.required(n, keys, d.variable, "name")
	if name == nil || !d.want(name, text, "name") {
		return
	}
	if !isConfigVariable(name.text) {
		d.errorf(name.at, codeBadName, "variable %q: a name is letters, digits and _, and begins with a letter", clip(name.text))
		return
	}
	var values []string
	d.texts(keys["literal"], "literal", func(v *node) { values = append(values, v.text) })
	d.c.extend(name.text, values)
}

func (d *configReader) readRuleset(n *node) {
	keys, ok := d.keys(n, d.ruleset, d.handledFS, d.handledNet, "scoped")
	if !ok {
		return
	}
	if len(keys) == 0 {
		d.errorf(n.at, codeMissingKey, "%s: one of %s, %s, scoped must be there", d.ruleset, d.handledFS, d.handledNet)
	}
	d.c.FS |= d.rights(keys[d.handledFS], d.handledFS, profile.FS)
	d.c.Net |= d.rights(keys[d.handledNet], d.handledNet, profile.Net)
	d.c.Scope |= d.rights(keys["scoped"], "scoped", profile.Scope)
}

func (d *configReader) readPathBeneath(n *node) {
	keys, ok := d.keys(n, d.pathBeneath, d.allowed, "parent")
	if !ok {
		return
	}
	access := d.granted(n, keys, d.pathBeneath, profile.FS)
	parents := d.required(n, keys, d.pathBeneath, "parent")
	d.c.FS |= access
	d.texts(parents, "parent", func(p *node) {
		t, err := parseTemplate(p.text)
		if err != nil {
			d.errorf(p.at, codeBadTemplate, "%v", err)
			return
		}
		if access != 0 {
			d.c.add(t, access, p.at)
		}
	})
}

func (d *configReader) readNetPort(n *node) {
	keys, ok := d.keys(n, d.netPort, d.allowed, "port")
	if !ok {
		return
	}
	access := d.granted(n, keys, d.netPort, profile.Net)
	d.c.Net |= access
	d.each(d.required(n, keys, d.netPort, "port"), "port", func(p *node) {
		v, ok := p.integer()
		switch {
		case p.kind != number:
			d.want(p, number, "a member of port")
		case !ok || v > 65535:
			d.errorf(p.at, codeBadPort, "port %s is not within 0 to 65535 (landlockconfig finds that out when it builds the rules)", clip(p.text))
		case access != 0:
			d.c.Ports[uint16(v)] |= access
		}
	})
}

// granted reads the rights of a rule.
func (d *configReader) granted(n *node, keys map[string]*node, what string, kind profile.Kind) profile.Access {
	allowed := d.required(n, keys, what, d.allowed)
	if allowed == nil {
		return 0
	}
	if allowed.kind == list && len(allowed.items) == 0 {
		d.errorf(allowed.at, codeEmptyAllow, "the rule grants nothing; it does not deny either: a file's rules only add, and nothing is denied below what they allow")
		return 0
	}
	access := d.rights(allowed, d.allowed, kind)
	if access == 0 && len(d.errors) == 0 {
		d.remarkf(allowed.at, "these rights are empty for abi %d, so the rule grants nothing: it is left out, as landlockconfig does without a word", d.abi)
	}
	return access
}

// rights reads a list of rights and groups of a kind.
func (d *configReader) rights(n *node, what string, kind profile.Kind) profile.Access {
	var access profile.Access
	d.texts(n, what, func(item *node) {
		if group, ok := strings.CutPrefix(item.text, "abi."); ok {
			access |= d.group(item, group, kind)
			return
		}
		if right, ok := profile.RightByName(kind, item.text); ok && right.Bit&configRights[kind] != 0 {
			access |= right.Bit
			return
		}
		d.errorf(item.at, codeUnknownRight, "%s: landlockconfig has no %s right %q", what, kind, clip(item.text))
	})
	return access
}

// group expands a group with the file's abi.
func (d *configReader) group(item *node, group string, kind profile.Kind) profile.Access {
	all := profile.Handled(kind, d.abi) & configRights[kind]
	known := []string{"all"}
	if kind == profile.FS {
		known = append(known, "read_execute", "read_write")
	}
	if !slices.Contains(known, group) {
		d.errorf(item.at, codeUnknownRight, "landlockconfig has no group %q of %s rights", clip(item.text), kind)
		return 0
	}
	if d.abi == 0 {
		d.errorf(item.at, codeBadABI, "%s needs the file to say its abi", item.text)
		return 0
	}
	if all == 0 {
		d.remarkf(item.at, "%s holds no %s right at abi %d, so it says nothing", item.text, kind, d.abi)
	}
	switch group {
	case "read_execute":
		return all & (profile.FSExecute | profile.FSReadFile | profile.FSReadDir | profile.FSRefer)
	case "read_write":
		return all &^ profile.FSExecute
	}
	return all
}
