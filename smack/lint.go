package smack

import (
	"cmp"
	"fmt"
	"strings"
)

// The kinds of what [Lint] finds.
const (
	LintBuiltIn Code = "built-in-label" // a rule names a label that the kernel gives a meaning
	LintNear    Code = "near-label"     // two labels are hardly different: a typing error?
	LintBudget  Code = "label-budget"   // many labels: the kernel never frees one
	LintObjects Code = "many-objects"   // many objects of a subject: the kernel searches them one by one
)

// LintOptions say from where on something is worth telling. 0 is the default.
type LintOptions struct {
	Labels  int // labels of a policy, default 2000
	Objects int // objects of one subject, default 2000
	FewUses int // rules that name a label which may be a typing error, default 2
}

// Lint tells what is legal in a policy and still odd. Rules without any effect are
// told by [Builder.Build], with their places. Findings have no place;
// [Builder.FirstUse] finds one for their label, [Builder.Sources] for their rule.
func Lint(p *Policy, o LintOptions) []Finding {
	l := linter{p: p, set: p.Effective(), o: LintOptions{
		cmp.Or(o.Labels, 2000), cmp.Or(o.Objects, 2000), cmp.Or(o.FewUses, 2),
	}}
	l.budget()
	l.objects()
	l.builtIn()
	l.near()
	return l.found
}

// Finding is something odd about a label.
type Finding struct {
	Code  Code
	Label string
	Text  string

	Subject, Object string // of the rule, when it is about one
}

type linter struct {
	p      *Policy
	set    *Set
	o      LintOptions
	counts map[Code]int
	found  []Finding
}

func (l *linter) tell(code Code, label, format string, args ...any) {
	if l.counts == nil {
		l.counts = map[Code]int{}
	}
	l.counts[code]++
	if l.counts[code] <= MaxProblems {
		l.found = append(l.found, Finding{Code: code, Label: label, Text: fmt.Sprintf(format, args...)})
	}
}

func (l *linter) budget() {
	if n := l.p.Labels(); n > l.o.Labels {
		l.tell(LintBudget, "", "%d labels, more than %d: the kernel frees no label before it is booted again, and each makes every load slower", n, l.o.Labels)
	}
}

func (l *linter) objects() {
	for i := range l.set.Labels() {
		from, to := l.set.rows(i)
		if n := int(to - from); n > l.o.Objects {
			l.tell(LintObjects, l.set.Label(i), "the subject %s has %d objects, more than %d: the kernel searches them one by one, on a load each for each", l.set.Label(i), n, l.o.Objects)
		}
	}
}

// builtIn tells of rules on labels with a meaning of their own that do have an
// effect: more often than not something else was meant.
func (l *linter) builtIn() {
	for r := range l.set.All() {
		if r.Access == 0 || deadLetters(r.Subject, r.Object, r.Access) != 0 {
			continue
		}
		told := len(l.found)
		switch {
		case r.Object == Floor && r.Access&(Write|Append) != 0:
			l.tell(LintBuiltIn, r.Subject, "%s %s %s: lets %s write to everything that has no label of its own", r.Subject, r.Object, r.Access, r.Subject)
		case r.Subject == Floor && r.Access&(Write|Append) != 0:
			l.tell(LintBuiltIn, r.Object, "%s %s %s: lets every process without a label of its own write to %s", r.Subject, r.Object, r.Access, r.Object)
		case BuiltIn(r.Subject):
			l.tell(LintBuiltIn, r.Object, "%s %s %s: %s is a label the kernel gives a meaning", r.Subject, r.Object, r.Access, r.Subject)
		case BuiltIn(r.Object):
			l.tell(LintBuiltIn, r.Subject, "%s %s %s: %s is a label the kernel gives a meaning", r.Subject, r.Object, r.Access, r.Object)
		}
		if len(l.found) > told {
			l.found[told].Subject, l.found[told].Object = r.Subject, r.Object
		}
	}
}

func inRules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}

// near finds labels that differ from another by case alone, by one byte too many, by
// two bytes exchanged, or by one other byte, when one of the two is used seldom.
// Labels that end in different numbers are meant to; so are those with another byte
// in the same place (Tier::a and Tier::b), unless one of them is used often.
func (l *linter) near() {
	n := l.p.Labels()
	uses := make([]int, n)
	for i := range n {
		from, to := l.set.rows(i)
		uses[i] += int(to - from)
		for _, o := range l.set.t.object[from:to] {
			uses[o]++
		}
	}
	folded := map[string]int{}
	for i := range n {
		f := strings.ToLower(l.p.Label(i))
		if j, ok := folded[f]; ok {
			l.tell(LintNear, l.p.Label(i), "the labels %s (in %s) and %s (in %s) differ by case alone", l.p.Label(j), inRules(uses[j]), l.p.Label(i), inRules(uses[i]))
			continue
		}
		folded[f] = i
	}
	l.typos(uses)
}

const anotherByte = "one other byte"

// typos finds pairs at an edit distance of 1, where two bytes exchanged are one edit. Each label is entered under all
// that is left of it when one byte is left out, so the time is linear in the text.
func (l *linter) typos(uses []int) {
	type key struct {
		rest string
		at   int // -1: the label itself, whole
	}
	seen := map[key]int{}
	pair := func(i, j int, how string) {
		if min(uses[i], uses[j]) > l.o.FewUses || how == anotherByte && max(uses[i], uses[j]) <= l.o.FewUses {
			return
		}
		a, b := l.p.Label(i), l.p.Label(j)
		if uses[i] > uses[j] || uses[i] == uses[j] && a > b {
			i, j, a, b = j, i, b, a
		}
		if strings.EqualFold(a, b) || differInDigit(a, b) {
			return
		}
		l.tell(LintNear, a, "the label %s is in %s and differs by %s from %s, which is in %s: a typing error?", a, inRules(uses[i]), how, b, inRules(uses[j]))
	}
	budget := 4 << 20 // bytes of keys; beyond, labels are not compared
	for i := range l.p.Labels() {
		label := l.p.Label(i)
		if len(label) < 4 || budget < len(label)*len(label) {
			continue
		}
		budget -= len(label) * len(label)
		for at := range len(label) {
			k := key{label[:at] + label[at+1:], at}
			if j, ok := seen[k]; ok {
				pair(i, j, anotherByte)
			} else {
				seen[k] = i
			}
		}
		seen[key{label, -1}] = i
	}
	for i := range l.p.Labels() {
		label := l.p.Label(i)
		last := ""
		for at := range len(label) {
			rest := label[:at] + label[at+1:]
			if rest == last {
				continue // of two equal bytes in a row, either
			}
			last = rest
			if j, ok := seen[key{rest, -1}]; ok {
				pair(i, j, "one byte")
			}
		}
		for at := range len(label) - 1 {
			if label[at] >= label[at+1] { // the other label of the two comes here
				continue
			}
			exchanged := label[:at] + label[at+1:at+2] + label[at:at+1] + label[at+2:]
			if j, ok := seen[key{exchanged, -1}]; ok {
				pair(i, j, "two bytes exchanged")
			}
		}
	}
}

// differInDigit reports whether the byte that differs is a digit.
func differInDigit(a, b string) bool {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	digit := func(s string) bool { return i < len(s) && s[i] >= '0' && s[i] <= '9' }
	return digit(a) || digit(b)
}
