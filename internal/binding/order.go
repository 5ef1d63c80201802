package binding

import (
	"cmp"
	"strings"
)

// kind is what a Binding selects on.
type kind int

// The order is that of precedence: before anything else it is asked who selects on an annotation.
const (
	annotation kind = iota
	image
	label
	namespace
	unit
	uid
	smackLabel
	kinds
)

// precedence is the table of what Bindings select on, in the order in which two that match are compared.
var precedence = [kinds]struct {
	key  string // of spec.match, and as a rule is called
	what string // in a sentence
}{
	annotation: {"annotation", "annotations"},
	image:      {"image", "the image"},
	label:      {"label", "labels"},
	namespace:  {"namespace", "the namespace"},
	unit:       {"unit", "the unit"},
	uid:        {"uid", "the user"},
	smackLabel: {"smackLabel", "the Smack label"},
}

// ruleName is the rule for Bindings that differ in nothing else.
const ruleName = "name"

// Precedence gives the rules by which Bindings that match are compared, the first first.
func Precedence() []string {
	names := make([]string, 0, kinds+1)
	for _, p := range precedence {
		names = append(names, p.key)
	}
	return append(names, ruleName)
}

// score is how specific a selection is; the zero score is that of none.
type score struct {
	keys    int   // keys asked for; 1 where there are no keys
	exact   int   // values without a wildcard
	literal int64 // characters that are no wildcard; of users: minus the numbers beyond the first
}

func (s score) compare(o score) int {
	return cmp.Or(cmp.Compare(s.keys, o.keys), cmp.Compare(s.exact, o.exact), cmp.Compare(s.literal, o.literal))
}

func (s score) plus(o score) score {
	return score{s.keys + o.keys, s.exact + o.exact, s.literal + o.literal}
}

// scores are those of a Binding for one workload.
type scores [kinds]score

// better orders matches: negative when a wins over b. Two Bindings never compare as equal, since no two have one name.
func better(a, b *Match) int {
	for k := range kinds {
		if c := a.scores[k].compare(b.scores[k]); c != 0 {
			return -c
		}
	}
	return strings.Compare(a.Binding.Name, b.Binding.Name)
}

// Why says by which rule a wins over b, and how.
func Why(a, b *Match) (rule, reason string) {
	for k := range kinds {
		x, y := a.scores[k], b.scores[k]
		if x.compare(y) == 0 {
			continue
		}
		p := precedence[k]
		switch {
		case y == score{}:
			return p.key, a.Binding.Name + " selects on " + p.what + ", which this one does not"
		case x.keys != y.keys:
			return p.key, a.Binding.Name + " selects on more " + p.what
		case x.exact != y.exact:
			return p.key, a.Binding.Name + " selects on " + p.what + " with fewer patterns"
		case k == uid:
			return p.key, a.Binding.Name + " selects on fewer users"
		}
		return p.key, a.Binding.Name + " selects on " + p.what + " with longer patterns"
	}
	return ruleName, a.Binding.Name + " comes first by name, and nothing else tells them apart"
}
