package binding

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// NearMiss is a Binding that one thing keeps from matching a workload.
type NearMiss struct {
	Binding *Binding
	Rule    string // what it selects on in vain, as in Precedence
	Reason  string
}

// Near gives the Bindings that match a workload but for one thing, by name: where the rest of what they select on holds,
// or the workload has another value of the only annotation or label they ask for.
func (x *Index) Near(w *apiv1.Workload) []*NearMiss {
	if x == nil {
		return nil
	}
	var out []*NearMiss
	for _, r := range x.all {
		if m := r.near(w); m != nil {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *NearMiss) int { return strings.Compare(a.Binding.Name, b.Binding.Name) })
	return out
}

// near gives what keeps a rule from matching, nil when that is nothing or more than one thing.
func (r *rule) near(w *apiv1.Workload) *NearMiss {
	var miss *NearMiss
	parts, missed, there := 0, 0, false
	part := func(k kind, known, holds bool, reason func() string) {
		parts++
		if holds {
			return
		}
		missed++
		there = known
		if missed == 1 {
			miss = &NearMiss{Binding: r.Binding, Rule: precedence[k].key, Reason: reason()}
		}
	}
	for k, have := range map[kind]map[string]string{annotation: w.GetAnnotations(), label: w.GetLabels()} {
		for _, p := range r.pairs[k] {
			value, ok := have[p.key]
			part(k, ok, ok && p.pattern.match(value), func() string {
				if !ok {
					return fmt.Sprintf("there is no %s %q", precedence[k].key, p.key)
				}
				return fmt.Sprintf("%s %q is %q", precedence[k].key, p.key, clip(value))
			})
		}
	}
	pairs := parts
	for k, value := range values(w) {
		if len(r.lists[k]) == 0 {
			continue
		}
		holds := value != "" && slices.ContainsFunc(r.lists[k], func(p *pattern) bool { return p.match(value) })
		part(kind(k), value != "", holds, func() string {
			if value == "" {
				return precedence[k].what + " is not known"
			}
			return fmt.Sprintf("%s is %q", precedence[k].what, clip(value))
		})
	}
	if len(r.users) > 0 {
		known := w != nil && w.Uid != nil
		n := w.GetUid()
		part(uid, known, known && slices.ContainsFunc(r.users, func(u uids) bool { return u.low <= n && n <= u.high }), func() string {
			if !known {
				return "the user is not known"
			}
			return fmt.Sprintf("the user is %d", n)
		})
	}
	if missed != 1 || parts == 1 && (pairs == 0 || !there) {
		return nil
	}
	return miss
}

// clip shortens a value for a message.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}
