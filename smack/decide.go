package smack

import (
	"fmt"
	"strings"
)

// Query asks whether a subject may have some access to an object. Both are
// labels; whether the kernel has ever seen them is another question, which
// access2 mixes in (it answers 0 for a label that is not loaded).
type Query struct {
	Subject, Object string
	Access          Access
}

// Kernel is what a decision depends on beside the rules.
type Kernel struct {
	// Bringup: the kernel is built with CONFIG_SECURITY_SMACK_BRINGUP. Only such
	// a kernel knows Unconfined, and logs accesses by rules with b.
	Bringup bool
	// Unconfined is the label in smackfs/unconfined, "" for none.
	Unconfined string
}

// Reason says by what a query is decided, in the order in which the kernel looks
// (smk_access).
type Reason uint8

// The reasons.
const (
	StarSubject       Reason = iota + 1 // denied: the subject is *
	WebLabel                            // allowed: the subject or the object is @
	StarObject                          // allowed: the object is *
	SameLabel                           // allowed: subject and object are the same
	FloorObject                         // allowed: to read and execute, or to lock, the object _
	HatSubject                          // allowed: to the subject ^, likewise
	NoRule                              // denied: the pair has no rule
	EmptyRule                           // denied: the pair's rule gives nothing
	RuleLacks                           // denied: the pair's rule lacks letters
	ByRule                              // allowed by the pair's rule
	ByBringupRule                       // allowed by the pair's rule and logged, because it has b
	UnconfinedObject                    // denied by the rules, but allowed and logged: the object is unconfined
	UnconfinedSubject                   // denied by the rules, but allowed and logged: the subject is unconfined
)

var reasonNames = [...]string{
	StarSubject: "star_subject", WebLabel: "web_label", StarObject: "star_object", SameLabel: "same_label",
	FloorObject: "floor_object", HatSubject: "hat_subject", NoRule: "no_rule", EmptyRule: "empty_rule",
	RuleLacks: "rule_lacks", ByRule: "rule", ByBringupRule: "bringup_rule",
	UnconfinedObject: "unconfined_object", UnconfinedSubject: "unconfined_subject",
}

// String gives the reason's name. The names are an interface.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// Refusal is a layer that refuses letters of a query.
type Refusal struct {
	Layer   string
	Missing Access // the letters that the layer handles and does not give
	Stated  bool   // the layer has a rule for the pair
}

// Decision is the kernel's answer to a query.
type Decision struct {
	Query   Query
	Allowed bool
	Logged  bool // the kernel writes an audit record for the access though it is allowed
	Reason  Reason
	// Denied is, for the two reasons of unconfined labels, why the access would
	// be denied without; otherwise 0.
	Denied Reason
	// Rule is the pair's access, as written in the rule; 0 without a rule.
	Rule Access
	// Refused are the layers that refuse, when the rules do; the first is the
	// oldest. A [Set] has no layers and gives none.
	Refused []Refusal
}

// Decide gives the answer of smk_access in the kernel, which decides on the
// subject's and the object's label and the rules alone. A task may be refused
// more by rules of its own (load-self2) and allowed more by CAP_MAC_OVERRIDE.
func (s *Set) Decide(q Query, k Kernel) Decision {
	return decide(q, k, s.Lookup)
}

// Decide gives the answer of a kernel that holds this policy and nothing else,
// with Unconfined from its settings, and the layers that refuse. bringup says
// whether the kernel is built with CONFIG_SECURITY_SMACK_BRINGUP.
func (p *Policy) Decide(q Query, bringup bool) Decision {
	row, ok := p.t.row(q.Subject, q.Object)
	d := decide(q, Kernel{bringup, p.Settings.Unconfined}, func(string, string) (Access, bool) {
		if !ok {
			return 0, false
		}
		return p.and(row, p.handled()), true
	})
	by := d.Reason
	if d.Denied != 0 {
		by = d.Denied
	}
	if by == NoRule || by == EmptyRule || by == RuleLacks {
		d.Refused = p.refusals(row, ok, q.Access)
	}
	return d
}

// refusals gives the layers that do not pass the letters wanted.
func (p *Policy) refusals(row int, ok bool, want Access) []Refusal {
	var out []Refusal
	if want&Lock != 0 && p.handled()&Lock == 0 {
		want = want&^Lock | Write // the only way to lock
	}
	for i, l := range p.Layers {
		var m Access
		if ok {
			m = p.mask[row*len(p.Layers)+i]
		}
		if missing := want &^ l.passes(m&^stated); missing != 0 {
			out = append(out, Refusal{Layer: l.Name, Missing: missing, Stated: m&stated != 0})
		}
	}
	return out
}

func decide(q Query, k Kernel, lookup func(subject, object string) (Access, bool)) Decision {
	d := Decision{Query: q}
	switch {
	case q.Subject == Star:
		d.Reason = StarSubject
	case q.Object == Web || q.Subject == Web:
		d.Allowed, d.Reason = true, WebLabel
	case q.Object == Star:
		d.Allowed, d.Reason = true, StarObject
	case q.Subject == q.Object:
		d.Allowed, d.Reason = true, SameLabel
	case q.Object == Floor && builtInGrant(q.Access):
		d.Allowed, d.Reason = true, FloorObject
	case q.Subject == Hat && builtInGrant(q.Access):
		d.Allowed, d.Reason = true, HatSubject
	default:
		var ok bool
		d.Rule, ok = lookup(q.Subject, q.Object)
		switch {
		case !ok:
			d.Reason = NoRule
		case d.Rule == 0:
			d.Reason = EmptyRule
		case q.Access&^d.Rule.closed() != 0:
			d.Reason = RuleLacks
		case k.Bringup && d.Rule&Bringup != 0:
			d.Allowed, d.Logged, d.Reason = true, true, ByBringupRule
		default:
			d.Allowed, d.Reason = true, ByRule
		}
	}
	if !d.Allowed && k.Bringup && k.Unconfined != "" {
		by := Reason(0)
		if q.Object == k.Unconfined {
			by = UnconfinedObject
		}
		if q.Subject == k.Unconfined {
			by = UnconfinedSubject
		}
		if by != 0 {
			d.Allowed, d.Logged, d.Reason, d.Denied = true, true, by, d.Reason
		}
	}
	return d
}

// String gives a sentence: the answer and why.
func (d Decision) String() string {
	verdict := "denied"
	if d.Allowed {
		verdict = "allowed"
	}
	return verdict + ": " + d.because(d.Reason)
}

func (d Decision) because(r Reason) string {
	q := d.Query
	switch r {
	case StarSubject:
		return "the subject * may do nothing"
	case WebLabel:
		return "everything is allowed to and on the label @"
	case StarObject:
		return "everything is allowed on the object *"
	case SameLabel:
		return "a label may do everything to itself"
	case FloorObject:
		return "everyone may read and execute, and lock, the object _"
	case HatSubject:
		return "the subject ^ may read and execute, and lock, everything"
	case NoRule:
		return fmt.Sprintf("no rule for %s %s", q.Subject, q.Object) + d.together() + d.layers()
	case EmptyRule:
		return fmt.Sprintf("the rule for %s %s gives nothing", q.Subject, q.Object) + d.together() + d.layers()
	case RuleLacks:
		return fmt.Sprintf("the rule %s %s %s lacks %s", q.Subject, q.Object, d.Rule, q.Access&^d.Rule.closed()) + d.together() + d.layers()
	case ByRule, ByBringupRule:
		text := fmt.Sprintf("by the rule %s %s %s", q.Subject, q.Object, d.Rule)
		if q.Access&Lock != 0 && d.Rule&Lock == 0 {
			text += ", in which w implies l"
		}
		if r == ByBringupRule {
			text += ", which has b: the kernel logs it"
		}
		return text
	case UnconfinedObject:
		return fmt.Sprintf("the object %s is unconfined, the kernel logs it; else denied: %s", q.Object, d.because(d.Denied))
	case UnconfinedSubject:
		return fmt.Sprintf("the subject %s is unconfined, the kernel logs it; else denied: %s", q.Subject, d.because(d.Denied))
	}
	return r.String()
}

// together explains the denial of what is granted in parts.
func (d Decision) together() string {
	q := d.Query
	if (q.Object != Floor && q.Subject != Hat) || q.Access&^(Read|Execute|Lock) != 0 {
		return ""
	}
	return "; read and execute, and lock, are granted by the labels one at a time, not together"
}

func (d Decision) layers() string {
	if len(d.Refused) == 0 {
		return ""
	}
	var parts []string
	for _, r := range d.Refused {
		part := fmt.Sprintf("layer %s refuses %s", r.Layer, r.Missing)
		if !r.Stated {
			part += " (it has no rule for the pair)"
		}
		parts = append(parts, part)
	}
	return "; " + strings.Join(parts, ", ")
}
