package store

import (
	"errors"
	"fmt"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

func TestDelete(t *testing.T) {
	s := openTest(t, Options{})
	base := fragmentOf("local/base", "one")
	mustApply(t, s, fragment("local/base", "one"), policy("web", "one", base))
	mustApply(t, s, policy("web", "two", base))
	del := func(kind, name string, purge bool) error { return s.Delete(t.Context(), alice, kind, name, nil, purge) }
	if err := del(KindFragment, "local/base", false); !errors.Is(err, errs.ErrReferenced) {
		t.Errorf("fragment in use: %v", err)
	}
	running := sandbox("s1", "web", 1, apiv1.SandboxState_SANDBOX_STATE_RUNNING)
	if err := s.PutSandboxes(t.Context(), []*apiv1.Sandbox{running}, nil); err != nil {
		t.Fatal(err)
	}
	for _, purge := range []bool{false, true} {
		if err := del(KindLandlockPolicy, "web", purge); !errors.Is(err, errs.ErrReferenced) {
			t.Errorf("policy of a running sandbox: %v", err)
		}
	}
	running.State = apiv1.SandboxState_SANDBOX_STATE_EXITED
	if err := s.PutSandboxes(t.Context(), []*apiv1.Sandbox{running}, nil); err != nil {
		t.Fatal(err)
	}
	nine := uint64(9)
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", &nine, false); !errors.Is(err, errs.ErrVersionMismatch) {
		t.Errorf("expect: %v", err)
	}
	if err := del(KindLandlockPolicy, "web", false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(KindLandlockPolicy, "web"); !errors.Is(err, errs.ErrDeleted) {
		t.Errorf("get: %v", err)
	}
	if err := del(KindLandlockPolicy, "web", false); !errors.Is(err, errs.ErrDeleted) {
		t.Errorf("delete again: %v", err)
	}
	if v, err := s.Get(KindLandlockPolicy, "web@1"); err != nil || !v.GetInfo().GetDeleted() {
		t.Errorf("history is kept: %v %v", v, err)
	}
	if list, _, _ := s.List(KindLandlockPolicy, Filter{}); len(list) != 0 {
		t.Errorf("listed: %v", list)
	}
	if list, _, _ := s.List(KindLandlockPolicy, Filter{Deleted: true}); len(list) != 1 {
		t.Errorf("listed with deleted: %v", list)
	}
	if err := del(KindFragment, "local/base", false); err != nil {
		t.Errorf("fragment of a deleted policy: %v", err)
	}
	back := mustApply(t, s, expecting(policy("web", "two", base), 0)) // the same content as the newest
	if back[0].Info.GetNumber() != 3 || back[0].Outcome != apiv1.ApplyResponse_OUTCOME_CREATED || back[0].Info.GetParent() != 2 {
		t.Errorf("applied again: %v", back[0])
	}
	if err := del(KindLandlockPolicy, "web", true); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"web", "web@1"} {
		if _, err := s.Get(KindLandlockPolicy, ref); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("%s after purge: %v", ref, err)
		}
	}
	if _, err := s.FragmentByDigest(fragmentDigest(base)); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("content pinned by nothing: %v", err)
	}
	again := mustApply(t, s, policy("web", "two"))
	if again[0].Info.GetNumber() != 4 || again[0].Info.GetParent() != 0 {
		t.Errorf("a number was given twice, or the parent is gone: %v", again[0])
	}
	if err := del(KindLandlockPolicy, "web", false); err != nil {
		t.Fatal(err)
	}
	three, four, zero := uint64(3), uint64(4), uint64(0)
	for _, wrong := range []*uint64{&three, &zero} {
		if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", wrong, true); !errors.Is(err, errs.ErrVersionMismatch) {
			t.Errorf("purge of what was deleted, expecting %d: %v", *wrong, err)
		}
	}
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", &four, true); err != nil {
		t.Errorf("purge of what was deleted: %v", err)
	}
	if _, err := s.Get(KindLandlockPolicy, "web@4"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("after its purge: %v", err)
	}
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", &four, true); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("purged twice: %v", err)
	}
	if err := del(KindLandlockPolicy, "none", false); !errors.Is(err, errs.ErrNotFound) {
		t.Error(err)
	}
}

func TestGC(t *testing.T) {
	s := openTest(t, Options{KeepVersions: 2})
	old, kept := fragmentOf("local/base", "old"), fragmentOf("local/base", "kept")
	for i := range 8 {
		f := old
		if i == 3 {
			f = kept
		}
		mustApply(t, s, policy("web", fmt.Sprint(i), f))
	}
	if _, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@2", "stable", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSandboxes(t.Context(), []*apiv1.Sandbox{sandbox("s", "web", 4, apiv1.SandboxState_SANDBOX_STATE_RUNNING)}, nil); err != nil {
		t.Fatal(err)
	}
	removed, err := s.GC(t.Context(), alice)
	if err != nil || removed != 4 {
		t.Errorf("removed %d %v, want 4", removed, err)
	}
	history, _ := s.History(KindLandlockPolicy, "web", 0, 0)
	equal(t, "kept", numbers(history), []uint64{8, 7, 4, 2})
	if _, err := s.FragmentByDigest(fragmentDigest(kept)); err != nil {
		t.Errorf("pinned by version 4: %v", err)
	}
	seq, _ := s.LastSeq()
	if removed, err := s.GC(t.Context(), alice); err != nil || removed != 0 {
		t.Error(removed, err)
	}
	if after, _ := s.LastSeq(); after != seq {
		t.Error("a GC that removed nothing was logged")
	}
}

func TestGCKeepsPinnedFragments(t *testing.T) {
	s := openTest(t, Options{KeepVersions: 1})
	used := fragment("local/base", "used")
	mustApply(t, s, used)
	pins := []*apiv1.Pin{{Name: "local/base", Digest: used.Digest}}
	web := policy("web", "one")
	web.Pins, web.PinContents = pins, map[string]*apiv1.Fragment{used.Digest: used.Resource.GetFragment()}
	mustApply(t, s, web)
	mustApply(t, s, fragment("local/base", "unused"))
	mustApply(t, s, fragment("local/base", "newest"))
	if removed, err := s.GC(t.Context(), alice); err != nil || removed != 1 {
		t.Errorf("removed %d %v, want the unused version only", removed, err)
	}
	history, _ := s.History(KindFragment, "local/base", 0, 0)
	equal(t, "kept", numbers(history), []uint64{3, 1})
}
