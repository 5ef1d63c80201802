package policy

import (
	"cmp"
	"maps"
	"slices"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
)

// labelBudget is the default of spec.labelBudget.
const labelBudget = 1000

// lintSmack gives the warnings on a checked SmackPolicy.
func lintSmack(d *Document, p *apiv1.SmackPolicy) []*apiv1.Finding {
	c, err := CompileSmack(p, d)
	if err != nil {
		return nil
	}
	spec := (*place)(nil).key("spec")
	found := c.Warnings
	warn := func(code string, p *place, message string) {
		f := d.origin.finding(code, p, message)
		f.Severity = apiv1.Finding_SEVERITY_WARNING
		found = append(found, f)
	}
	budget := int(cmp.Or(p.GetSpec().GetLabelBudget(), labelBudget))
	for _, l := range smack.Lint(c.Policy, smack.LintOptions{Labels: budget}) {
		at, ok := c.builder.FirstUse(l.Label)
		if sources := c.builder.Sources(l.Subject, l.Object); len(sources) > 0 {
			at, ok = sources[len(sources)-1].At, true
		}
		if ok {
			found = append(found, c.texts.warning(smack.Problem{Code: l.Code, Place: at, Text: l.Text}))
			continue
		}
		layers := spec.key("layers")
		warn(string(l.Code), &layers, l.Text)
	}
	variables := spec.key("variables")
	for _, name := range sortedKeys(p.GetSpec().GetVariables()) {
		if !c.used[name] {
			at := variables.key(name)
			warn(lintUnusedVariable, &at, "no template uses the variable "+name)
		}
	}
	layers := spec.key("layers")
	for i, l := range p.GetSpec().GetLayers() {
		layer := layers.at(i)
		templates := layer.key("templates")
		for j, t := range l.GetTemplates() {
			at := templates.at(j)
			sets := at.key("for")
			for _, name := range sortedKeys(t.GetFor()) {
				if !c.used[sets.String()+"."+name] {
					here := sets.key(name)
					warn(lintUnusedVariable, &here, "the template does not use its variable "+name)
				}
			}
		}
	}
	sortFindings(found)
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
