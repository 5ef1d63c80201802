package smackfs

import "policyd.dev/policyd/smack"

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

// minRevoke is how many rules of one subject must go to drop them with one write to revoke-subject.
const minRevoke = 16

// step is one thing to write: a rule, or a subject to revoke when the rule's object is "".
type step struct {
	rule smack.Rule
}

// steps puts changes in order. A pair that both gains and loses letters is written twice, with the union (or the
// intersection) first. whole are subjects of which all of so many rules go.
func steps(changes []Change, order Order, whole map[string]int) []step {
	out := make([]step, 0, len(changes))
	one := func(c Change, a smack.Access) {
		out = append(out, step{smack.Rule{Subject: c.Subject, Object: c.Object, Access: a}})
	}
	if len(changes) == 1 {
		one(changes[0], changes[0].To) // one write is the change, without a moment between
		return out
	}
	grants := func() {
		for _, c := range changes {
			switch {
			case !c.grants():
			case c.revokes() && order == GrantsFirst:
				one(c, c.From|c.To)
			default:
				one(c, c.To)
			}
		}
	}
	revokes := func() {
		revoked := ""
		for _, c := range changes {
			switch {
			case !c.revokes() || c.Subject == revoked:
			case whole[c.Subject] >= minRevoke:
				revoked = c.Subject
				out = append(out, step{smack.Rule{Subject: c.Subject}})
			case c.grants() && order == RevokesFirst:
				one(c, c.From&c.To)
			default:
				one(c, c.To)
			}
		}
	}
	if order == RevokesFirst {
		revokes()
		grants()
	} else {
		grants()
		revokes()
	}
	return out
}
