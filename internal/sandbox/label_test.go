package sandbox

import (
	"errors"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// TestLabelPool: the first label of the pool that nobody alive has, whichever way he got it.
func TestLabelPool(t *testing.T) {
	m := &Manager{boxes: map[string]*box{"a": {label: "P-1"}, "b": {}, "c": {label: "Other"}}}
	pool := &Request{SmackPool: []string{"P-1", "P-2", "P-3"}}
	if l, err := m.label(pool); l != "P-2" || err != nil {
		t.Errorf("%q, %v", l, err)
	}
	m.boxes["d"], m.boxes["e"] = &box{label: "P-2"}, &box{label: "P-3"}
	if l, err := m.label(pool); !errors.Is(err, errs.ErrLimit) {
		t.Errorf("used up: %q, %v", l, err)
	}
	m.boxes["a"].label = "" // it has ended
	if l, err := m.label(pool); l != "P-1" || err != nil {
		t.Errorf("given out again: %q, %v", l, err)
	}
	if l, err := m.label(&Request{SmackLabel: "Other"}); l != "Other" || err != nil {
		t.Errorf("a label that was asked for: %q, %v", l, err)
	}

	// A repeated start is one with the same label, or one of the same pool.
	spec, info := &apiv1.SandboxSpec{Argv: []string{"x"}}, &apiv1.VersionInfo{Name: "p"}
	rec := &apiv1.Sandbox{Policy: "p", Argv: []string{"x"}, Directory: "/", SmackLabel: "P-2"}
	for _, tc := range []struct {
		r    Request
		want bool
	}{
		{Request{SmackLabel: "P-2"}, true}, {Request{SmackPool: pool.SmackPool}, true}, {Request{}, false}, {Request{SmackLabel: "P-1"}, false},
	} {
		tc.r.Spec, tc.r.Version = spec, info
		if got := tc.r.repeats(rec, false); got != tc.want {
			t.Errorf("label %q, pool %q: %v", tc.r.SmackLabel, tc.r.SmackPool, got)
		}
	}
}
