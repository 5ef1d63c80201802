package fleettest

import (
	"errors"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet/kv"
)

// TestTwoFleets: two fleets in one etcd may have nodes of one name, which then have one certificate. To leave one of them is
// not to leave the other, and what a node of one reads is not the other's.
func TestTwoFleets(t *testing.T) {
	t.Parallel()
	e, a, p := withRoles(t)
	other, err := kv.New(p.store.Client, "test")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, node := range []string{"web-1", "db-1"} {
		if err := other.EnrollUser(ctx, node); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(node string, s *kv.Store) bool {
		_, err := as(t, e, a, node).Client.Get(ctx, s.Layout.Channel("stable"))
		if err = kv.Error(err); err != nil && !errors.Is(err, errs.ErrNotAllowed) {
			t.Fatal(err)
		}
		return err == nil
	}
	if !reads("web-1", p.store) || !reads("web-1", other) || reads("db-1", p.store) || reads("web-2", other) {
		t.Error("nodes read what is not theirs, or not what is")
	}
	for range 2 { // again is no error
		if err := p.store.RemoveUser(ctx, "web-1"); err != nil {
			t.Fatal(err)
		}
	}
	if reads("web-1", p.store) || !reads("web-1", other) {
		t.Error("a node that left one fleet reads it, or has lost the other")
	}
	if err := other.RemoveUser(ctx, "web-1"); err != nil {
		t.Fatal(err)
	}
	if users, err := p.store.Client.UserList(ctx); err != nil || len(users.Users) == 0 {
		t.Fatal(err)
	} else {
		for _, u := range users.Users {
			if u == "web-1" {
				t.Error("a user without a role is left over")
			}
		}
	}
}
