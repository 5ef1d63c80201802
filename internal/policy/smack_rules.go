package policy

import (
	"errors"
	"fmt"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
)

// smackCompiler puts the rules of a SmackPolicy into a builder.
type smackCompiler struct {
	*reporter
	spec    *apiv1.SmackSpec
	builder *smack.Builder
	texts   *smackTexts
	values  map[string][]string
	room    int             // rules that templates may still stand for
	used    map[string]bool // as CompiledSmack has it
}

// smackName gives the name of a layer.
func (r *reporter) smackName(l *apiv1.SmackLayer, i int, seen map[string]bool, p *place) string {
	name, at := l.GetName(), p.key("name")
	switch {
	case name == "":
		name = fmt.Sprintf("layer-%d", i+1)
	case !isName(name):
		r.addf(codeBadName, &at, "layer %q: %s", clip(name), nameRule)
	}
	if seen[name] {
		r.addf(codeDuplicateName, &at, "two layers are named %q", clip(name))
	}
	seen[name] = true
	return name
}

// handled reads the letters a layer decides on.
func (r *reporter) handled(l *apiv1.SmackLayer, p *place) smack.Access {
	at := p.key("handles")
	if l.GetHandles() == "" {
		if r.seg != nil && locate(r.root, &at) != locate(r.root, p) {
			r.addf(codeHandlesNothing, &at, "no letter; leave handles out for all of them")
		}
		return smack.AllAccess
	}
	a, err := smack.ParseAccess(l.GetHandles())
	switch {
	case err != nil:
		r.addf(codeBadAccess, &at, "%v", err)
	case a == 0:
		r.addf(codeHandlesNothing, &at, "the layer handles no letter, so it would refuse nothing")
	case a&smack.Lock != 0 && a&smack.Write == 0:
		r.addf(codeBadValue, &at, "handles l without w: a rule with w implies l in the kernel, so l could not be refused")
	default:
		return a
	}
	return smack.AllAccess
}

// layer adds a layer with its rules: the text's, then the list's, then those of
// templates.
func (c *smackCompiler) layer(name string, l *apiv1.SmackLayer, p *place) {
	b := c.builder.Layer(name, c.handled(l, p))
	if l.GetRules() != "" {
		at := p.key("rules")
		c.problems(b.Text(c.texts.add(at, l.GetRules(), false), []byte(l.GetRules())))
	}
	if len(l.GetList()) > 0 {
		at := p.key("list")
		name := c.texts.add(at, "", true)
		for i, rule := range l.GetList() {
			here := at.at(i)
			c.rule(b, rule, smack.Place{File: name, Line: i + 1}, &here)
		}
	}
	list := p.key("templates")
	for i, t := range l.GetTemplates() {
		at := list.at(i)
		c.template(b, t, &at)
	}
}

// rule adds a rule of a list.
func (c *smackCompiler) rule(b *smack.LayerBuilder, rule *apiv1.SmackRule, at smack.Place, p *place) {
	ok := true
	label := func(key, value string) {
		here := p.key(key)
		if value == "" {
			c.addf(codeMissingKey, p, "%s is missing: a label", key)
			ok = false
		} else if err := smack.CheckLabel(value); err != nil {
			c.addf(codeBadLabel, &here, "%v", err)
			ok = false
		}
	}
	label("subject", rule.GetSubject())
	label("object", rule.GetObject())
	access := func(key, value string) smack.Access {
		if value == "" {
			return 0
		}
		here := p.key(key)
		a, err := smack.ParseAccess(value)
		if err != nil {
			c.addf(codeBadAccess, &here, "%v", err)
			ok = false
		}
		return a
	}
	set, allow, deny := access("access", rule.GetAccess()), access("allow", rule.GetAllow()), access("deny", rule.GetDeny())
	sets, modifies := rule.GetAccess() != "", rule.GetAllow() != "" || rule.GetDeny() != ""
	switch {
	case sets && modifies:
		c.addf(codeBadValue, p, "access sets what the pair may do, allow and deny change it: a rule has one or the other")
	case !sets && !modifies:
		c.addf(codeMissingKey, p, "access is missing: letters of rwxatlb, or \"-\" for none; or allow and deny")
	case !ok:
	case sets:
		c.problems(b.Set(at, rule.GetSubject(), rule.GetObject(), set))
	default:
		c.problems(b.Modify(at, rule.GetSubject(), rule.GetObject(), allow, deny))
	}
}

// problems adds the errors of package smack.
func (c *smackCompiler) problems(err error) {
	if err == nil {
		return
	}
	all, many := errors.AsType[smack.Problems](err)
	if one, ok := errors.AsType[smack.Problem](err); ok && !many {
		all = smack.Problems{one}
	}
	for _, p := range all {
		code := smackCode(p.Err)
		if code == codeBadValue {
			code = codeNotHandled // all else that a rule can break has a code of its own
		}
		c.errors.add(c.texts.finding(code, p.Place, p.Text))
	}
}

// smackVariables checks sets of strings for templates and gives them by name. A
// name in taken is one already.
func (r *reporter) smackVariables(sets map[string]*apiv1.StringList, taken map[string][]string, p *place, key string) map[string][]string {
	values := make(map[string][]string, len(sets)+len(taken))
	for name, v := range taken {
		values[name] = v
	}
	at := p.key(key)
	if len(sets) > MaxVariables {
		r.addf(codeTooLarge, &at, "%d variables, at most %d", len(sets), MaxVariables)
		return values
	}
	for _, name := range sortedKeys(sets) {
		here := at.key(name)
		set := sets[name].GetValues()
		switch _, again := taken[name]; {
		case !isVariableName(name):
			r.addf(codeBadName, &here, "variable %q: a name is letters, digits and _, at most %d, and begins with no digit", clip(name), MaxNameBytes)
			continue
		case again:
			r.addf(codeDuplicateName, &here, "variable %s is one of the policy already", name)
		case len(set) == 0:
			r.addf(codeBadValue, &here, "variable %s has no member", name)
		case len(set) > MaxMembers:
			r.addf(codeTooLarge, &here, "variable %s has %d members, at most %d", name, len(set), MaxMembers)
			set = nil
		}
		values[name] = set
		seen := make(map[string]bool, len(set))
		for i, v := range set {
			member := here.at(i)
			if err := checkSmackMember(v); err != nil {
				r.addf(codeBadLabel, &member, "variable %s: %v", name, err)
			} else if seen[v] {
				r.addf(codeBadValue, &member, "variable %s has the member %s twice", name, clip(v))
			}
			seen[v] = true
		}
	}
	return values
}

// checkSmackMember checks a member of a variable: a label or a part of one.
func checkSmackMember(v string) error {
	err := smack.CheckLabel(v)
	if e, ok := errors.AsType[*smack.LabelError](err); ok && strings.HasPrefix(v, "-") && e.Offset == 0 {
		return smack.CheckLabel("x" + v[1:]) // behind something else it may begin so
	}
	return err
}
