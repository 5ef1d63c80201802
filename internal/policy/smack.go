package policy

import (
	"errors"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
)

// CompiledSmack is a SmackPolicy as rows of masks. It is never changed and safe
// for use by many goroutines.
type CompiledSmack struct {
	// Policy holds the layers, the rows and, in Policy.Settings, what is not a rule.
	Policy *smack.Policy
	// Warnings are on rules that say something twice or to no effect, in the order of the text.
	Warnings []*apiv1.Finding

	builder *smack.Builder
	texts   *smackTexts
	used    map[string]bool // variables that a template names: name, or "field.name" for one of the template
}

// SmackOrigin is a rule that a row comes from.
type SmackOrigin struct {
	Layer  int    // index in Policy.Layers
	Rule   string // "A B rw", with 4 columns for a rule that modifies
	File   string // "" when the document came as a message
	Line   uint32 // of the file, from 1; 0 when not known
	Column uint32
	Field  string // spec.layers[0].rules, spec.layers[0].list[3]
}

// CompileSmack turns a SmackPolicy into its rows. The result depends on the
// policy alone; d, which may be nil, gives the places in errors, warnings and
// origins. The error is an [*Errors].
func CompileSmack(p *apiv1.SmackPolicy, d *Document) (*CompiledSmack, error) {
	r := reporter{errors: &Errors{}}
	if d != nil {
		r.origin = d.origin
	}
	r.metadata(p.GetMetadata(), isName)
	out := r.smack(p)
	if err := r.errors.err(); err != nil {
		return nil, err
	}
	return out, nil
}

// CompileSmackVersion compiles a stored version. Its text gives the places;
// without one the fields do.
func CompileSmackVersion(v *apiv1.Version) (*CompiledSmack, error) {
	var d *Document
	if v.GetSource() != "" {
		// The empty lines put the text where it stood in its file.
		text := strings.Repeat("\n", max(int(v.GetSourceLine()), 1)-1) + v.GetSource()
		if docs, err := Parse(v.GetSourceName(), []byte(text)); err == nil && len(docs) == 1 {
			d = docs[0]
		}
	}
	return CompileSmack(v.GetResource().GetSmackPolicy(), d)
}

// Origins gives the rules that name a pair, layer by layer in the order in which
// they merge.
func (c *CompiledSmack) Origins(subject, object string) []SmackOrigin {
	var out []SmackOrigin
	for _, s := range c.builder.Sources(subject, object) {
		f := c.texts.finding("", s.At, "")
		rule := subject + " " + object + " " + s.Allow.String()
		if s.Modify {
			rule += " " + s.Deny.String()
		}
		out = append(out, SmackOrigin{Layer: s.Layer, Rule: rule, File: f.GetFile(), Line: f.GetLine(), Column: f.GetColumn(), Field: f.GetField()})
	}
	return out
}

// smack checks a SmackPolicy and compiles it; nil when there were errors.
func (r *reporter) smack(policy *apiv1.SmackPolicy) *CompiledSmack {
	p := (*place)(nil).key("spec")
	spec := policy.GetSpec()
	if spec == nil {
		r.addf(codeMissingKey, nil, "spec is missing")
		return nil
	}
	before := len(r.errors.findings)
	c := &smackCompiler{
		reporter: r, spec: spec, builder: smack.NewBuilder(policy.GetMetadata().GetName()),
		texts: &smackTexts{origin: r.origin, places: map[string]*smackText{}}, room: MaxSmackExpansion,
		used: map[string]bool{},
	}
	c.values = r.smackVariables(spec.GetVariables(), nil, &p, "variables")
	settings, remarks := r.smackSettings(spec.GetSettings(), &p)
	list := p.key("layers")
	switch n := len(spec.GetLayers()); {
	case n == 0:
		r.addf(codeMissingKey, &p, "layers is missing: at least one")
		return nil
	case n > smack.MaxLayers:
		r.addf(codeTooLarge, &list, "%d layers, at most %d", n, smack.MaxLayers)
		return nil
	}
	names := map[string]bool{}
	for i, l := range spec.GetLayers() {
		at := list.at(i)
		name := r.smackName(l, i, names, &at)
		c.layer(name, l, &at)
	}
	if len(r.errors.findings) > before {
		return nil
	}
	compiled, warnings, err := c.builder.Build()
	if err != nil {
		r.addf(smackCode(err), &list, "%s", smackMessage(err))
		return nil
	}
	compiled.Settings = settings
	out := &CompiledSmack{Policy: compiled, Warnings: remarks, builder: c.builder, texts: c.texts, used: c.used}
	for _, w := range warnings {
		out.Warnings = append(out.Warnings, c.texts.warning(w))
	}
	sortFindings(out.Warnings)
	return out
}

// smackCode is the code of an error of package smack.
func smackCode(err error) string {
	switch {
	case errors.Is(err, smack.ErrLimit):
		return codeTooLarge
	case errors.Is(err, smack.ErrLabel):
		return codeBadLabel
	case errors.Is(err, smack.ErrAccess):
		return codeBadAccess
	case errors.Is(err, smack.ErrSyntax):
		return codeBadRule
	}
	return codeBadValue
}

// smackMessage is the text of an error of package smack; the code says the rest.
func smackMessage(err error) string {
	text := strings.TrimPrefix(err.Error(), smack.ErrInvalid.Error()+": ")
	return strings.TrimPrefix(text, smack.ErrLimit.Error()+": ")
}
