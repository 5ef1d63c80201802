package smack

import (
	"slices"
	"sort"
)

// The rules of a set have numbers, in the order of [Set.All], for callers that keep something beside each.

// SubjectRows gives the numbers lo to hi-1 of the rules of a subject; both are 0 when it has none.
func (s *Set) SubjectRows(subject string) (lo, hi int) {
	i, ok := s.t.find(subject)
	if !ok {
		return 0, 0
	}
	return int(s.t.first[i]), int(s.t.first[i+1])
}

// ObjectAt gives the object and the access of a rule by its number.
func (s *Set) ObjectAt(row int) (object string, a Access) {
	return s.t.label(int(s.t.object[row])), s.mask[row]
}

// RuleAt gives a rule by its number.
func (s *Set) RuleAt(row int) Rule {
	object, a := s.ObjectAt(row)
	subject := sort.Search(s.t.labels(), func(i int) bool { return int(s.t.first[i+1]) > row })
	return Rule{s.t.label(subject), object, a}
}

// SamePairs reports whether two sets have rules for the same pairs, whatever these allow; numbers of rules are the same then. It
// may say no of such sets that name other labels beside.
func (s *Set) SamePairs(o *Set) bool {
	return s == o || s.t.text == o.t.text && slices.Equal(s.t.end, o.t.end) && slices.Equal(s.t.first, o.t.first) && slices.Equal(s.t.object, o.t.object)
}

// Dead gives how many rules change no decision of the kernel: those that [Set.Live] leaves without access.
func (s *Set) Dead() int {
	builtIn := make([]bool, s.t.labels())
	for i := range builtIn {
		builtIn[i] = BuiltIn(s.t.label(i))
	}
	n := 0
	for sub := range builtIn {
		for i := s.t.first[sub]; i < s.t.first[sub+1]; i++ {
			obj := int(s.t.object[i])
			// Of all other pairs the kernel looks at the rule first, and this is asked at every load.
			if builtIn[sub] || builtIn[obj] || sub == obj {
				if (Rule{s.t.label(sub), s.t.label(obj), s.mask[i]}).Dead() {
					n++
				}
			}
		}
	}
	return n
}
