package smack

import "iter"

// Rule is one row of a [Set]: what subject may do to object.
type Rule struct {
	Subject, Object string
	Access          Access // 0: explicitly nothing
}

// Append appends the rule as load2 takes it, with a line feed.
func (r Rule) Append(b []byte) []byte {
	b = append(append(b, r.Subject...), ' ')
	b = append(append(b, r.Object...), ' ')
	return append(r.Access.Append(b), '\n')
}

// Set is a set of rules as the kernel holds them, one access for a pair of
// labels, by subject and then object. It is never changed once built and safe
// for use by many goroutines. The zero value is an empty set.
//
// A rule with no access is a rule of the set: it says that an older one for the
// same pair shall go.
type Set struct {
	t    table
	mask []Access
}

// Len gives the number of rules.
func (s *Set) Len() int { return len(s.mask) }

// Labels gives the number of labels the rules name.
func (s *Set) Labels() int { return s.t.labels() }

// Label gives label number i of [Set.Labels], in rising order of bytes.
func (s *Set) Label(i int) string { return s.t.label(i) }

// HasLabel reports whether any rule names the label.
func (s *Set) HasLabel(label string) bool { _, ok := s.t.find(label); return ok }

// Lookup gives the access of a pair's rule, and whether there is one.
func (s *Set) Lookup(subject, object string) (Access, bool) {
	i, ok := s.t.row(subject, object)
	if !ok {
		return 0, false
	}
	return s.mask[i], true
}

// All gives the rules by subject and then object, both in rising order of bytes.
func (s *Set) All() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for sub := range s.t.labels() {
			subject := s.t.label(sub)
			for i := s.t.first[sub]; i < s.t.first[sub+1]; i++ {
				if !yield(Rule{subject, s.t.label(int(s.t.object[i])), s.mask[i]}) {
					return
				}
			}
		}
	}
}

// Objects gives the rules of one subject, by object.
func (s *Set) Objects(subject string) iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		sub, ok := s.t.find(subject)
		if !ok {
			return
		}
		for i := s.t.first[sub]; i < s.t.first[sub+1]; i++ {
			if !yield(Rule{subject, s.t.label(int(s.t.object[i])), s.mask[i]}) {
				return
			}
		}
	}
}

// SetBuilder makes a [Set] of single rules. It is a [Builder] of one layer that
// handles every letter.
type SetBuilder struct {
	b *Builder
	l *LayerBuilder
}

// NewSetBuilder makes an empty builder.
func NewSetBuilder() *SetBuilder {
	b := NewBuilder("")
	return &SetBuilder{b, b.Layer("rules", AllAccess)}
}

// Set says that the pair's access is a; the last of several wins.
func (b *SetBuilder) Set(subject, object string, a Access) {
	_ = b.l.Set(Place{}, subject, object, a) // Build repeats the first error
}

// Modify adds allow to the pair's access and then takes deny away; a pair
// without a rule begins with none.
func (b *SetBuilder) Modify(subject, object string, allow, deny Access) {
	_ = b.l.Modify(Place{}, subject, object, allow, deny)
}

// Build gives the set of all rules so far, or the first error of them:
// [ErrLabel], or [ErrLimit] for more than [MaxLabels] labels.
func (b *SetBuilder) Build() (*Set, error) {
	p, _, err := b.b.Build()
	if err != nil {
		return nil, err
	}
	return p.Effective(), nil
}
