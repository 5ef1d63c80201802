package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/binding"
)

// versionSelector is what may follow the @ of a reference: a number, a tag or a digest.
var versionSelector = regexp.MustCompile(`^([1-9][0-9]{0,18}|[a-z]([a-z0-9._-]{0,61}[a-z0-9])?|sha256:[0-9a-f]{8,64})$`)

// binding checks the body of a Binding. Whether the policy is there, and takes the values, is for who stores it.
func (r *reporter) binding(spec *apiv1.BindingSpec) {
	p := (*place)(nil).key("spec")
	if spec == nil {
		r.addf(codeMissingKey, nil, "spec is missing")
		return
	}
	r.bindingMatch(spec.GetMatch(), &p)
	at := p.key("policy")
	name, selector, selected := strings.Cut(spec.GetPolicy(), "@")
	switch {
	case spec.GetPolicy() == "":
		r.addf(codeMissingKey, &p, "policy is missing: web, web@3, web@stable or web@sha256:...")
	case !isName(name):
		r.addf(codeBadName, &at, "policy %q: %s; a version may follow: web@3, web@stable, web@sha256:...", clip(spec.GetPolicy()), nameRule)
	case selected && !versionSelector.MatchString(selector):
		r.addf(codeBadValue, &at, "policy %q: behind the @ stands a number, a tag or sha256: with 8 to 64 digits 0-9 a-f", clip(spec.GetPolicy()))
	}
	set := p.key("set")
	if n := len(spec.GetSet()); n > MaxVariables {
		r.addf(codeTooLarge, &set, "%d values, at most %d", n, MaxVariables)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(spec.GetSet())) {
		here := set.key(k)
		switch v := spec.GetSet()[k]; {
		case !isVariableName(k):
			r.addf(codeBadName, &here, "parameter %q: a name is letters, digits and _, and begins with no digit", clip(k))
		case !strings.HasPrefix(v, "/") || len(v) > MaxPathBytes || strings.IndexByte(v, 0) >= 0:
			r.addf(codeBadParameter, &here, "parameter %s: %q is not an absolute path", k, clip(v))
		}
	}
}

// BindingFinding is an error in a Binding that only who has its policy can see, at a key of its spec: of code
// "bad-parameter" for set, else "bad-value".
func (d *Document) BindingFinding(key, message string) *apiv1.Finding {
	p := (*place)(nil).key("spec")
	at := p.key(key)
	code := codeBadValue
	if key == "set" {
		code = codeBadParameter
	}
	f := d.origin.finding(code, &at, message)
	f.Severity = apiv1.Finding_SEVERITY_ERROR
	return f
}

func (r *reporter) bindingMatch(m *apiv1.BindingMatch, spec *place) {
	p := spec.key("match")
	if m == nil {
		r.addf(codeMissingKey, spec, "match is missing: which workloads get the policy")
		return
	}
	for _, s := range []struct {
		key   string
		pairs map[string]string
	}{{"annotation", m.GetAnnotation()}, {"label", m.GetLabel()}} {
		at := p.key(s.key)
		if !r.selections(len(s.pairs), &at) {
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(s.pairs)) {
			here := at.key(k)
			if k == "" || len(k) > MaxPatternBytes || strings.ContainsFunc(k, unicode.IsControl) {
				r.addf(codeBadName, &here, "%s %q: a key is 1 to %d bytes without control characters", s.key, clip(k), MaxPatternBytes)
			}
			r.pattern(s.key+" "+clip(k), s.pairs[k], &here)
		}
	}
	for _, s := range selectionLists(m) {
		at := p.key(s.key)
		if !r.selections(len(s.values), &at) {
			continue
		}
		for i, v := range s.values {
			here := at.at(i)
			if s.key != "uid" {
				r.pattern(s.key, v, &here)
			} else if err := binding.CheckUID(v); err != nil {
				r.addf(codeBadValue, &here, "uid %q %v", clip(v), err)
			}
		}
	}
	if countSelections(m) == 0 {
		r.addf(codeMissingKey, &p, "match selects on nothing: at least one of %s", strings.Join(matchKeys(), ", "))
	}
}

// selection is a list of match.
type selection struct {
	key    string
	values []string
}

func selectionLists(m *apiv1.BindingMatch) []selection {
	return []selection{
		{"image", m.GetImage()},
		{"namespace", m.GetNamespace()},
		{"unit", m.GetUnit()},
		{"uid", m.GetUid()},
		{"smackLabel", m.GetSmackLabel()},
	}
}

func countSelections(m *apiv1.BindingMatch) int {
	n := len(m.GetAnnotation()) + len(m.GetLabel())
	for _, s := range selectionLists(m) {
		n += len(s.values)
	}
	return n
}

// matchKeys are the keys of match in the order of precedence; the last rule is the name.
func matchKeys() []string {
	rules := binding.Precedence()
	return rules[:len(rules)-1]
}

func (r *reporter) selections(n int, p *place) bool {
	if n > MaxSelections {
		r.addf(codeTooLarge, p, "%d, at most %d", n, MaxSelections)
		return false
	}
	return true
}

func (r *reporter) pattern(what, s string, p *place) {
	if len(s) > MaxPatternBytes {
		r.addf(codeTooLarge, p, "%s: a pattern of %d bytes, at most %d", what, len(s), MaxPatternBytes)
	} else if strings.ContainsFunc(s, unicode.IsControl) {
		r.addf(codeBadValue, p, "%s: pattern %q holds a control character", what, clip(s))
	} else if err := binding.CheckPattern(s); err != nil {
		r.addf(codeBadValue, p, "%s: pattern %q %v", what, clip(s), err)
	}
}

// binding warns of one that matches whatever comes.
func (l *linter) binding(m *apiv1.BindingMatch, spec *place) {
	if len(m.GetAnnotation())+len(m.GetLabel()) > 0 {
		return
	}
	for _, s := range selectionLists(m) {
		if len(s.values) > 0 && !slices.ContainsFunc(s.values, opensAll) {
			return
		}
	}
	p := spec.key("match")
	l.addf(lintBindsAll, &p, "every workload of which there is such a fact gets this policy, unless a more specific Binding matches")
}

func opensAll(s string) bool {
	return binding.IsOpen(s) || s == "0-4294967294"
}
