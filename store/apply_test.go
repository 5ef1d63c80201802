package store

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

func TestApplyAndGet(t *testing.T) {
	s := openTest(t, Options{})
	base := fragmentOf("local/base", "one")
	first := mustApply(t, s, fragment("local/base", "one"), policy("web", "one", base))
	for i, a := range first {
		if a.Outcome != apiv1.ApplyResponse_OUTCOME_CREATED || a.Info.GetNumber() != 1 || a.Info.GetParent() != 0 {
			t.Errorf("result %d: %v", i, a)
		}
	}
	again := mustApply(t, s, policy("web", "one", base))
	if again[0].Outcome != apiv1.ApplyResponse_OUTCOME_UNCHANGED || again[0].Info.GetNumber() != 1 {
		t.Errorf("equal content: %v", again[0])
	}
	second := mustApply(t, s, policy("web", "two"))
	if second[0].Outcome != apiv1.ApplyResponse_OUTCOME_CHANGED || second[0].Info.GetNumber() != 2 || second[0].Info.GetParent() != 1 {
		t.Errorf("new content: %v", second[0])
	}
	if _, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@1", "stable", false, nil); err != nil {
		t.Fatal(err)
	}
	d1 := first[1].Info.GetDigest()
	for ref, want := range map[string]uint64{"web": 2, "web@1": 1, "web@2": 2, "web@stable": 1, "web@" + d1: 1, "web@" + d1[:15]: 1} {
		v, err := s.Get(KindLandlockPolicy, ref)
		if err != nil || v.GetInfo().GetNumber() != want {
			t.Errorf("get %s: %v %v, want version %d", ref, v.GetInfo(), err, want)
			continue
		}
		if want == 1 && (v.GetSource() != "# one" || v.GetResource().GetLandlockPolicy().GetMetadata().GetDescription() != "one") {
			t.Errorf("get %s: content %v", ref, v)
		}
	}
	for _, ref := range []string{"web@3", "web@none", "web@sha256:00000000", "nobody", "nobody@1"} {
		if _, err := s.Get(KindLandlockPolicy, ref); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("get %s: %v, want not found", ref, err)
		}
	}
	f, err := s.FragmentByDigest(fragmentDigest(base))
	if err != nil || !proto.Equal(f, base) {
		t.Errorf("pinned fragment: %v %v", f, err)
	}
}

func TestApplyRefused(t *testing.T) {
	s := openTest(t, Options{})
	mustApply(t, s, policy("web", "one"))
	noContent := policy("p", "x", fragmentOf("local/base", "one"))
	noContent.PinContents = nil
	badDigest := policy("p", "x")
	badDigest.Digest = "sha256:12"
	wrongKind := policy("p", "x")
	wrongKind.Kind = KindFragment
	otherName := policy("p", "x")
	otherName.Name = "q"
	for what, c := range map[string]struct {
		puts []Put
		want error
	}{
		"twice":              {[]Put{policy("p", "x"), policy("p", "y")}, errs.ErrInvalid},
		"bad name":           {[]Put{policy("-p", "x")}, errs.ErrInvalid},
		"unknown kind":       {[]Put{{Kind: "Poem", Name: "p"}}, errs.ErrInvalid},
		"no document":        {[]Put{{Kind: KindFragment, Name: "p"}}, errs.ErrInvalid},
		"bad digest":         {[]Put{badDigest}, errs.ErrInvalid},
		"wrong kind":         {[]Put{wrongKind}, errs.ErrInvalid},
		"other name":         {[]Put{otherName}, errs.ErrInvalid},
		"pin without text":   {[]Put{policy("p", "x"), noContent}, errs.ErrInvalid},
		"expect none":        {[]Put{policy("p", "x"), expecting(policy("web", "two"), 0)}, errs.ErrVersionMismatch},
		"expect newer":       {[]Put{policy("p", "x"), expecting(policy("web", "two"), 2)}, errs.ErrVersionMismatch},
		"expect of new name": {[]Put{expecting(policy("p", "x"), 1)}, errs.ErrVersionMismatch},
	} {
		t.Run(what, func(t *testing.T) {
			before, _ := s.LastSeq()
			if _, err := s.Apply(t.Context(), alice, c.puts); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if after, _ := s.LastSeq(); after != before {
				t.Errorf("a refused apply wrote %d log entries", after-before)
			}
			if _, err := s.Get(KindLandlockPolicy, "p"); c.want == errs.ErrVersionMismatch && !errors.Is(err, errs.ErrNotFound) {
				t.Errorf("a part was applied: %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Apply(ctx, alice, []Put{policy("p", "x")}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRollback(t *testing.T) {
	s := openTest(t, Options{})
	base := fragmentOf("local/base", "one")
	mustApply(t, s, policy("web", "one", base))
	mustApply(t, s, policy("web", "two"))
	one := uint64(1)
	if _, err := s.Rollback(t.Context(), alice, KindLandlockPolicy, "web", 1, &one); !errors.Is(err, errs.ErrVersionMismatch) {
		t.Errorf("expect: %v", err)
	}
	info, err := s.Rollback(t.Context(), alice, KindLandlockPolicy, "web", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Get(KindLandlockPolicy, "web")
	if err != nil || v.GetInfo().GetNumber() != 3 || v.GetInfo().GetParent() != 2 || v.GetSource() != "# one" ||
		len(v.GetInfo().GetPins()) != 1 || v.GetInfo().GetMessage() != "rollback to version 1" {
		t.Errorf("after rollback: %v %v", v, err)
	}
	if same, err := s.Rollback(t.Context(), alice, KindLandlockPolicy, "web", 1, nil); err != nil || same.GetNumber() != info.GetNumber() {
		t.Errorf("rollback to the content there is: %v %v", same, err)
	}
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", nil, false); err != nil {
		t.Fatal(err)
	}
	if back, err := s.Rollback(t.Context(), alice, KindLandlockPolicy, "web", 3, nil); err != nil || back.GetNumber() != 4 || back.GetDeleted() {
		t.Errorf("rollback of a deleted document: %v %v", back, err)
	}
	for name, to := range map[string]uint64{"web": 9, "none": 1} {
		if _, err := s.Rollback(t.Context(), alice, KindLandlockPolicy, name, to, nil); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("rollback of %s to %d: %v", name, to, err)
		}
	}
}
