package smackfs

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"policyd.dev/policyd/smack"
)

// Change is what becomes of the rule of one pair. Access 0 is no rule.
type Change struct {
	Subject, Object string
	From, To        smack.Access
}

func (c Change) grants() bool  { return c.To&^c.From != 0 }
func (c Change) revokes() bool { return c.From&^c.To != 0 }

// Changes are many changes, by subject and object, in little memory: each is a rule of one of two sets. The zero value is
// none. They are not changed once made.
type Changes struct {
	list        []change
	want, owned *smack.Set
}

// change is about a row of want, or of owned.
type change struct {
	row      uint32
	from, to smack.Access
	owned    bool
}

// Len gives how many there are.
func (c Changes) Len() int { return len(c.list) }

// At gives one by its number.
func (c Changes) At(i int) Change {
	ch := c.list[i]
	set := c.want
	if ch.owned {
		set = c.owned
	}
	r := set.RuleAt(int(ch.row))
	return Change{r.Subject, r.Object, ch.from, ch.to}
}

// All gives them in order.
func (c Changes) All() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		var at [2]struct { // of want and of owned: the subject at hand and its rows
			subject string
			lo, hi  int
		}
		for i, ch := range c.list {
			set, sub := c.want, &at[0]
			if ch.owned {
				set, sub = c.owned, &at[1]
			}
			row := int(ch.row)
			if row < sub.lo || row >= sub.hi {
				sub.subject = c.At(i).Subject
				sub.lo, sub.hi = set.SubjectRows(sub.subject)
			}
			object, _ := set.ObjectAt(row)
			if !yield(Change{sub.subject, object, ch.from, ch.to}) {
				return
			}
		}
	}
}

// sort brings changes of both sets into one order.
func (c Changes) sort() {
	slices.SortFunc(c.list, func(a, b change) int {
		if a.owned == b.owned {
			return cmp.Compare(a.row, b.row)
		}
		x, y := Changes{list: []change{a}, want: c.want, owned: c.owned}.At(0), Changes{list: []change{b}, want: c.want, owned: c.owned}.At(0)
		return cmp.Or(strings.Compare(x.Subject, y.Subject), strings.Compare(x.Object, y.Object))
	})
}
