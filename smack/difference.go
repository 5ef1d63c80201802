package smack

import (
	"cmp"
	"slices"
)

// Change is a pair whose access changes. No rule counts as no access.
type Change struct {
	Subject, Object string
	Old, New        Access
}

// Rule gives the pair with its new access.
func (c Change) Rule() Rule { return Rule{c.Subject, c.Object, c.New} }

// Delta is what changes from one set of rules to another, by subject and then
// object in rising order of bytes. Every change stands in one list.
type Delta struct {
	Grants      []Change // letters are added, none taken away
	Exchanges   []Change // letters are added and others taken away
	Revocations []Change // letters are taken away, none added

	// Gone are subjects that have access to something in the old set and to
	// nothing in the new one. Their pairs stand in Revocations too.
	Gone []string
}

// Empty reports whether nothing changes.
func (d *Delta) Empty() bool { return d.Len() == 0 }

// Len gives the number of pairs that change.
func (d *Delta) Len() int { return len(d.Grants) + len(d.Exchanges) + len(d.Revocations) }

// Difference gives what changes when s takes the place of from. A rule without
// access is the same as none: the kernel cannot tell them apart. It takes time
// linear in both.
func (s *Set) Difference(from *Set) *Delta {
	return difference(from, s, func(_, _ string, a Access) Access { return a })
}

// Difference gives what changes in what the kernel answers when p takes the place
// of from: rules are ANDed over the layers, those without effect left out, and w
// counts as wl. A rule of the floor or the hat that has an effect is compared
// whole, also in the letters that are granted without it.
func (p *Policy) Difference(from *Policy) *Delta {
	return difference(from.Effective(), p.Effective(), func(subject, object string, a Access) Access {
		if deadLetters(subject, object, a) == a {
			return 0
		}
		return a.closed()
	})
}

func difference(from, to *Set, meaning func(subject, object string, a Access) Access) *Delta {
	d := &Delta{}
	subjects(from, to, func(subject string, old, now int) {
		had, has := false, false
		first := len(d.Revocations)
		objects(from, to, old, now, func(object string, was, is Access) {
			was, is = meaning(subject, object, was), meaning(subject, object, is)
			had, has = had || was != 0, has || is != 0
			if was == is {
				return
			}
			c := Change{subject, object, was, is}
			switch is & was {
			case was:
				d.Grants = append(d.Grants, c)
			case is:
				d.Revocations = append(d.Revocations, c)
			default:
				d.Exchanges = append(d.Exchanges, c)
			}
		})
		if had && !has && len(d.Revocations) > first {
			d.Gone = append(d.Gone, subject)
		}
	})
	return d
}

// subjects calls f for each label of either set, with its number in each, -1
// when it is not there.
func subjects(a, b *Set, f func(label string, a, b int)) {
	i, j := 0, 0
	for i < a.Labels() || j < b.Labels() {
		switch c := compareAt(a, b, i, j); {
		case c < 0:
			f(a.Label(i), i, -1)
			i++
		case c > 0:
			f(b.Label(j), -1, j)
			j++
		default:
			f(a.Label(i), i, j)
			i, j = i+1, j+1
		}
	}
}

// compareAt compares label i of a with label j of b; the end comes last.
func compareAt(a, b *Set, i, j int) int {
	switch {
	case i == a.Labels():
		return 1
	case j == b.Labels():
		return -1
	}
	return cmp.Compare(a.Label(i), b.Label(j))
}

// objects calls f for each object that subject number i of a, or number j of b,
// has a rule for.
func objects(a, b *Set, i, j int, f func(object string, a, b Access)) {
	ai, aEnd := a.rows(i)
	bi, bEnd := b.rows(j)
	for ai < aEnd || bi < bEnd {
		var c int
		switch {
		case ai == aEnd:
			c = 1
		case bi == bEnd:
			c = -1
		default:
			c = cmp.Compare(a.object(ai), b.object(bi))
		}
		switch {
		case c < 0:
			f(a.object(ai), a.mask[ai], 0)
			ai++
		case c > 0:
			f(b.object(bi), 0, b.mask[bi])
			bi++
		default:
			f(a.object(ai), a.mask[ai], b.mask[bi])
			ai, bi = ai+1, bi+1
		}
	}
}

// rows gives the rows of subject number i, none for -1.
func (s *Set) rows(i int) (from, to uint32) {
	if i < 0 {
		return 0, 0
	}
	return s.t.first[i], s.t.first[i+1]
}

func (s *Set) object(row uint32) string { return s.t.label(int(s.t.object[row])) }

// Weaker reports whether the change allows anything that was not allowed before.
func (d *Delta) Weaker() bool { return len(d.Grants)+len(d.Exchanges) > 0 }

// All gives every change by subject and then object.
func (d *Delta) All() []Change {
	all := slices.Concat(d.Grants, d.Exchanges, d.Revocations)
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Object, b.Object))
	})
	return all
}
