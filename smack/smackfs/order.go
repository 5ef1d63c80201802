package smackfs

import (
	"iter"

	"policyd.dev/policyd/smack"
)

// Order says what is written first.
type Order uint8

const (
	// GrantsFirst leaves no moment in which something is denied that both the old and the new rules allow: until all
	// grants are written every pair has at least what it had, from then on at least what it shall have.
	GrantsFirst Order = iota
	// RevokesFirst leaves no moment in which something is allowed that neither the old nor the new rules allow.
	RevokesFirst
)

func (o Order) String() string {
	if o == RevokesFirst {
		return "revokes-first"
	}
	return "grants-first"
}

// middle is what a pair has between the two writes of a change that both grants and revokes.
func (o Order) middle(c Change) smack.Access {
	if o == RevokesFirst {
		return c.From & c.To
	}
	return c.From | c.To
}

// steps gives the rules to write for n changes, in order. A pair that both gains and loses letters is written twice, with
// the union (or the intersection) first. revoke-subject, which is one write for all rules of a subject, has no part in it:
// it would take those away too that somebody else has loaded since the rules were read.
func steps(changes iter.Seq[Change], n int, order Order) iter.Seq[smack.Rule] {
	return func(yield func(smack.Rule) bool) {
		more := true // there is something for the phase
		for phase := 0; phase < 2 && more; phase++ {
			granting := (phase == 0) == (order == GrantsFirst)
			more = false
			for c := range changes {
				more = more || (granting && c.revokes()) || (!granting && c.grants())
				r := smack.Rule{Subject: c.Subject, Object: c.Object, Access: c.To}
				switch {
				case granting && !c.grants(), !granting && !c.revokes():
					continue
				case n == 1: // one write, without a moment between
					yield(r)
					return
				case phase == 0 && c.grants() && c.revokes():
					r.Access = order.middle(c)
				}
				if !yield(r) {
					return
				}
			}
		}
	}
}
