package smack

import "slices"

// deadLetters gives the letters of a rule that change no decision: what the
// kernel answers before it looks at rules (smk_access). What has no effect with
// some letters may have one with others: a rule "X _ rl" allows r and l together,
// which the built-in answer does not.
//
// Transmute is looked up without regard to special labels
// (smack_inode_init_security), so an object '*' or '@' keeps it; but no process
// can have '*' or '@' as its label, and with one label for both sides the new file
// has it either way.
func deadLetters(subject, object string, a Access) Access {
	switch {
	case subject == object, subject == Star, subject == Web:
		return a
	case object == Star, object == Web:
		return a &^ Transmute
	case object == Floor, subject == Hat:
		if builtInGrant(a) {
			return a
		}
	}
	return 0
}

// builtInGrant reports whether a request is granted on the floor and to the hat.
func builtInGrant(want Access) bool {
	return want&^(Read|Execute) == 0 || want&^Lock == 0
}

// whyDead gives the reason for deadLetters, in its order.
func whyDead(subject, object string) string {
	switch {
	case subject == Star:
		return "the kernel refuses the subject * everything"
	case subject == object:
		return "a label may do everything to itself"
	case subject == Web:
		return "the kernel allows the subject @ everything"
	case object == Star, object == Web:
		return "the kernel allows everything on the object " + object
	case subject == Hat:
		return "the kernel allows the subject ^ to read and execute, and to lock, everything"
	}
	return "the kernel allows everyone to read and execute, and to lock, the object _"
}

// Dead reports whether the rule changes no decision of the kernel. A rule without access is not
// dead: it says that an older one shall go.
func (r Rule) Dead() bool {
	return r.Access != 0 && deadLetters(r.Subject, r.Object, r.Access) == r.Access
}

// Live gives the rules, those that change no decision of the kernel without access: for these
// pairs the kernel needs no rule, and one that gives more would be too much.
func (s *Set) Live() *Set {
	live := &Set{t: s.t, mask: slices.Clone(s.mask)}
	i := 0
	for r := range s.All() {
		if r.Dead() {
			live.mask[i] = 0
		}
		i++
	}
	return live
}
