package policytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/policy"
)

// Rule is one rule in the text of a policy or fragment.
type Rule struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Field    string `json:"field"`
	Fragment string `json:"fragment"` // "" for the policy's own
	Touched  bool   `json:"touched"`  // an expectation was decided by it
}

// Place gives "web.yaml:12", or the field where there is no text.
func (r *Rule) Place() string { return placeOf(r.Fragment, r.File, r.Line, r.Field) }

func placeOf(fragment, file string, line int, field string) string {
	place := field
	if line > 0 {
		place = fmt.Sprintf("%s:%d", file, line)
	}
	if fragment != "" && line == 0 {
		place = "fragment " + fragment + ": " + place
	}
	return place
}

// shipped tells whether the rule is of a fragment that comes with policyd:
// those have tests of their own and are not counted.
func (r *Rule) shipped() bool { return policy.IsReserved(r.Fragment) }

// PolicyCoverage tells which rules of a policy the expectations of all its
// tests touched. Rules of shipped fragments are listed and not counted.
type PolicyCoverage struct {
	Policy  string  `json:"policy"`
	Rules   []Rule  `json:"rules"` // by fragment, file, line
	Total   int     `json:"total"`
	Touched int     `json:"touched"`
	Percent float64 `json:"percent"` // 100 for a policy without rules
}

// Untouched are the counted rules that no expectation touched.
func (c *PolicyCoverage) Untouched() []Rule {
	var out []Rule
	for _, r := range c.Rules {
		if !r.Touched && !r.shipped() {
			out = append(out, r)
		}
	}
	return out
}

// Coverage gives the coverage of every policy that was tested, in order of
// their first tests. A rule is touched when an answer was decided by it: it
// granted, or was met and did not. Whether this kernel could perform the
// operation does not matter: the coverage of a gate is the same everywhere.
func Coverage(results []*Result) []PolicyCoverage {
	type key struct {
		fragment, file, field string
		line                  int
	}
	type covered struct {
		PolicyCoverage
		at map[key]int
	}
	var order []string
	all := map[string]*covered{}
	for _, r := range results {
		if r.compiled == nil {
			continue
		}
		// Two files may hold policies of one name.
		id := r.compiled.Name + "\x00" + ownFile(r.compiled.Origins)
		c := all[id]
		if c == nil {
			c = &covered{PolicyCoverage{Policy: r.compiled.Name, Rules: []Rule{}}, map[key]int{}}
			all[id], order = c, append(order, id)
		}
		for _, o := range r.compiled.Origins {
			if o.GetAccess() == 0 {
				continue // it only keeps denials out of the log
			}
			k := key{o.GetFragment(), o.GetFile(), o.GetField(), int(o.GetLine())}
			if _, ok := c.at[k]; !ok {
				c.at[k] = len(c.Rules)
				c.Rules = append(c.Rules, Rule{File: k.file, Line: k.line, Field: k.field, Fragment: k.fragment})
			}
		}
		for i := range r.Expectations {
			x := &r.Expectations[i]
			if x.Answer == nil {
				continue
			}
			for _, by := range decidedBy(x.Answer) {
				if n, ok := c.at[key{by.Fragment, by.File, by.Field, int(by.Line)}]; ok {
					c.Rules[n].Touched = true
				}
			}
		}
	}
	out := []PolicyCoverage{}
	for _, id := range order {
		c := all[id].PolicyCoverage
		slices.SortFunc(c.Rules, func(a, b Rule) int {
			return cmp.Or(strings.Compare(a.Fragment, b.Fragment), strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Field, b.Field))
		})
		for i := range c.Rules {
			if r := &c.Rules[i]; !r.shipped() {
				c.Total++
				if r.Touched {
					c.Touched++
				}
			}
		}
		c.Percent = 100
		if c.Total > 0 {
			c.Percent = 100 * float64(c.Touched) / float64(c.Total)
		}
		out = append(out, c)
	}
	return out
}

func ownFile(origins []*apiv1.Origin) string {
	for _, o := range origins {
		if o.GetFragment() == "" {
			return o.GetFile()
		}
	}
	return ""
}

// decidedBy are the rules of an answer; an entry without a rule is a layer.
func decidedBy(a *decide.Answer) []decide.Rule {
	return slices.DeleteFunc(slices.Clone(a.DecidedBy), func(r decide.Rule) bool { return r.Rule == "" })
}
