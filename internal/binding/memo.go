package binding

import (
	"sync"
	"sync/atomic"
)

// Limits of what a memo keeps: images and units of a host are few, but whoever may ask can name any.
const (
	memoMost  = 4096 // values
	memoValue = 512  // bytes of one
	memoFrom  = 8    // rules from which looking up is quicker than trying each
)

// memo keeps, for single values that were asked about, which rules behind a leading wildcard they match: such rules are
// found under no beginning, and each would be tried for every workload. It is forgotten whole when it is full.
type memo struct {
	values atomic.Pointer[sync.Map] // string -> []*rule
	n      atomic.Int64
}

// matching gives those of the rules that have a pattern of the kind which the value matches.
func (m *memo) matching(rules []*rule, k kind, value string) []*rule {
	if len(rules) < memoFrom || len(value) > memoValue {
		return rules
	}
	values := m.values.Load()
	if values == nil || m.n.Load() >= memoMost {
		fresh := &sync.Map{}
		if m.values.CompareAndSwap(values, fresh) {
			m.n.Store(0)
		}
		values = m.values.Load()
	}
	if got, ok := values.Load(value); ok {
		return got.([]*rule)
	}
	var out []*rule
	for _, r := range rules {
		for _, p := range r.lists[k] {
			if p.match(value) {
				out = append(out, r)
				break
			}
		}
	}
	values.Store(value, out)
	m.n.Add(1)
	return out
}
