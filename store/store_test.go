package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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
	if _, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@1", "stable", false); err != nil {
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

func TestListAndHistory(t *testing.T) {
	s := openTest(t, Options{})
	for i := range 5 {
		team := map[string]string{"team": []string{"edge", "core"}[i%2], "n": fmt.Sprint(i)}
		mustApply(t, s, labelled(policy(fmt.Sprintf("p%d", i), "one"), team))
	}
	mustApply(t, s, policy("p1.x", "one")) // begins as another name
	for i := range 7 {
		mustApply(t, s, policy("p1", fmt.Sprint("v", i)))
	}
	mustApply(t, s, labelled(policy("p1", "labels"), map[string]string{"team": "core"}))
	all, next, err := s.List(KindLandlockPolicy, Filter{})
	if err != nil || next != "" {
		t.Fatal(err, next)
	}
	equal(t, "list", names(all), []string{"p0", "p1", "p1.x", "p2", "p3", "p4"})
	core, _, err := s.List(KindLandlockPolicy, Filter{Labels: map[string]string{"team": "core"}})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "labels", names(core), []string{"p1", "p3"})
	var paged []string
	for after := ""; ; {
		page, next, err := s.List(KindLandlockPolicy, Filter{After: after, Limit: 2})
		if err != nil || len(page) > 2 {
			t.Fatal(len(page), err)
		}
		paged = append(paged, names(page)...)
		if after = next; next == "" {
			break
		}
	}
	equal(t, "pages", paged, names(all))
	for _, c := range []struct {
		before uint64
		limit  int
		want   []uint64
	}{{0, 0, []uint64{9, 8, 7, 6, 5, 4, 3, 2, 1}}, {0, 2, []uint64{9, 8}}, {8, 3, []uint64{7, 6, 5}}, {2, 9, []uint64{1}}, {1, 9, nil}, {100, 1, []uint64{9}}} {
		got, err := s.History(KindLandlockPolicy, "p1", c.before, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("history before %d limit %d", c.before, c.limit), numbers(got), c.want)
	}
	if last, _ := s.History(KindLandlockPolicy, "p4", 0, 0); len(last) != 1 {
		t.Errorf("history of the last name: %v", last)
	}
	if _, err := s.History(KindLandlockPolicy, "none", 0, 0); !errors.Is(err, errs.ErrNotFound) {
		t.Error(err)
	}
	if list, _, err := s.List(KindFragment, Filter{}); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if _, _, err := s.List("Poem", Filter{}); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
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

func TestTags(t *testing.T) {
	s := openTest(t, Options{})
	mustApply(t, s, policy("web", "one"))
	mustApply(t, s, policy("web", "two"))
	tag := func(ref, tag string, remove bool) error {
		_, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, ref, tag, remove)
		return err
	}
	for _, c := range []struct{ ref, tag string }{{"web@1", "stable"}, {"web", "next"}, {"web@stable", "old"}} {
		if err := tag(c.ref, c.tag, false); err != nil {
			t.Fatal(err)
		}
	}
	info, _ := s.Info(KindLandlockPolicy, "web@1")
	equal(t, "tags", info.GetTags(), []string{"old", "stable"})
	if err := tag("web@2", "stable", false); err != nil { // moves
		t.Fatal(err)
	}
	if err := tag("web", "old", true); err != nil {
		t.Fatal(err)
	}
	history, _ := s.History(KindLandlockPolicy, "web", 0, 0)
	equal(t, "tags of 2", history[0].GetTags(), []string{"next", "stable"})
	equal(t, "tags of 1", history[1].GetTags(), nil)
	seq, _ := s.LastSeq()
	if err := tag("web@2", "stable", false); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.LastSeq(); after != seq {
		t.Error("a tag that was there already was logged again")
	}
	for _, c := range []struct {
		ref, tag string
		remove   bool
		want     error
	}{
		{"web", "old", true, errs.ErrNotFound}, {"web@2", "next", true, errs.ErrInvalid}, {"web@9", "x", false, errs.ErrNotFound},
		{"web", "9", false, errs.ErrInvalid}, {"web", "sha256:00000000", false, errs.ErrInvalid}, {"none", "x", false, errs.ErrNotFound},
	} {
		if err := tag(c.ref, c.tag, c.remove); !errors.Is(err, c.want) {
			t.Errorf("tag %+v: %v", c, err)
		}
	}
}

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
	if _, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@2", "stable", false); err != nil {
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

func TestRequestIDs(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	s := openTest(t, Options{Now: func() time.Time { return now }})
	a := Actor{Name: "uid:1000", RequestID: "r1", RequestHash: []byte("one")}
	apply := func(a Actor, puts ...Put) ([]Applied, error) { return s.Apply(t.Context(), a, puts) }
	first, err := apply(a, policy("web", "one"))
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, policy("web", "two"))
	repeat, err := apply(a, policy("web", "one"))
	if err != nil || len(repeat) != 1 || !proto.Equal(repeat[0].Info, first[0].Info) || repeat[0].Outcome != first[0].Outcome {
		t.Errorf("repeat: %v %v, want %v", repeat, err, first)
	}
	if info, _ := s.Info(KindLandlockPolicy, "web"); info.GetNumber() != 2 {
		t.Errorf("the repeat had an effect: %v", info)
	}
	other := a
	other.RequestHash = []byte("two")
	if _, err := apply(other, policy("web", "three")); !errors.Is(err, errs.ErrRequestReused) {
		t.Errorf("another request of the id: %v", err)
	}
	if err := s.Delete(t.Context(), a, KindLandlockPolicy, "web", nil, false); !errors.Is(err, errs.ErrRequestReused) {
		t.Errorf("another method of the id: %v", err)
	}
	bob := a
	bob.Name = "uid:1001"
	if applied, err := apply(bob, policy("web", "bob")); err != nil || applied[0].Info.GetNumber() != 3 {
		t.Errorf("another actor's id: %v %v", applied, err)
	}
	del := Actor{Name: "uid:1000", RequestID: "r2"}
	for range 2 {
		if err := s.Delete(t.Context(), del, KindLandlockPolicy, "web", nil, false); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	now = now.Add(requestKept)
	if applied, err := apply(a, policy("web", "one")); err != nil || applied[0].Info.GetNumber() != 4 {
		t.Errorf("after a day: %v %v", applied, err)
	}
	if _, err := apply(Actor{RequestID: string(make([]byte, maxRequestID+1))}, policy("web", "x")); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
	start := Actor{Name: "uid:1000", RequestID: "start"}
	if err := s.Remember(t.Context(), start, "start", []byte("sandbox")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Recall(start, "start"); err != nil || string(got) != "sandbox" {
		t.Errorf("recall: %q %v", got, err)
	}
	if _, err := s.Recall(start, "run"); !errors.Is(err, errs.ErrRequestReused) {
		t.Error(err)
	}
	if got, err := s.Recall(Actor{Name: "uid:1000", RequestID: "new"}, "start"); err != nil || got != nil {
		t.Error(got, err)
	}
}

func TestProfileCacheIsBounded(t *testing.T) {
	s := openTest(t, Options{})
	if _, ok := s.CachedProfile("k0"); ok {
		t.Error("found what was never kept")
	}
	big := make([]byte, 10<<20)
	for i := range 8 {
		big[0] = byte(i)
		if err := s.CacheProfile(fmt.Sprint("k", i), big); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		got, ok := s.CachedProfile(fmt.Sprint("k", i))
		if want := i >= 2; ok != want || ok && got[0] != byte(i) {
			t.Errorf("k%d: kept %v, want %v", i, ok, want)
		}
	}
	if err := s.CacheProfile("huge", make([]byte, maxProfileBytes)); err != nil {
		t.Error(err)
	}
	if _, ok := s.CachedProfile("huge"); ok {
		t.Error("one profile fills the cache")
	}
	if err := s.CacheProfile("", nil); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
}

func TestSandboxes(t *testing.T) {
	s := openTest(t, Options{})
	running, exited := apiv1.SandboxState_SANDBOX_STATE_RUNNING, apiv1.SandboxState_SANDBOX_STATE_EXITED
	list := []*apiv1.Sandbox{sandbox("aa1", "web", 1, running), sandbox("aa2", "db", 1, exited), sandbox("b", "web", 2, running), sandbox("bb", "web", 2, exited)}
	if err := s.PutSandboxes(t.Context(), list, []*apiv1.Event{{Type: EventStart, Subject: "sandbox/aa1"}}); err != nil {
		t.Fatal(err)
	}
	ids := func(f SandboxFilter) (out []string) {
		for {
			got, next, err := s.Sandboxes(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, sb := range got {
				out = append(out, sb.GetId())
			}
			if f.After = next; next == "" {
				return out
			}
		}
	}
	equal(t, "alive", ids(SandboxFilter{}), []string{"aa1", "b"})
	equal(t, "all, by pages of one", ids(SandboxFilter{Ended: true, Limit: 1}), []string{"aa1", "aa2", "b", "bb"})
	equal(t, "of db", ids(SandboxFilter{Ended: true, Policy: "db"}), []string{"aa2"})
	for id, want := range map[string]string{"aa1": "aa1", "b": "b", "bb": "bb"} {
		if sb, err := s.Sandbox(id); err != nil || sb.GetId() != want {
			t.Errorf("%s: %v %v", id, sb, err)
		}
	}
	for id, want := range map[string]error{"aa": errs.ErrInvalid, "c": errs.ErrNotFound, "": errs.ErrInvalid} {
		if _, err := s.Sandbox(id); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", id, err, want)
		}
	}
	if err := s.DeleteSandbox(t.Context(), "aa1", "none"); err != nil {
		t.Fatal(err)
	}
	equal(t, "left", ids(SandboxFilter{Ended: true}), []string{"aa2", "b", "bb"})
	if err := s.PutSandboxes(t.Context(), []*apiv1.Sandbox{{}}, nil); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
}

func TestStatsAndClose(t *testing.T) {
	s := openTest(t, Options{})
	mustApply(t, s, fragment("local/base", "one"), policy("web", "one"), policy("db", "one"))
	mustApply(t, s, policy("web", "two"))
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "db", nil, false); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats()
	if err != nil || st.GetPolicies() != 1 || st.GetFragments() != 1 || st.GetVersions() != 4 || st.GetSchema() != schemaVersion ||
		st.GetLogEntries() != 6 || len(st.GetLogHead()) != 64 || st.GetSizeBytes() == 0 {
		t.Errorf("stats: %v %v", st, err)
	}
	wake, _ := s.Watch()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-wake; open {
		t.Error("the channel of a watcher is open after Close")
	}
	if _, err := s.Apply(t.Context(), alice, []Put{policy("web", "x")}); !errors.Is(err, errs.ErrShutdown) {
		t.Errorf("apply after Close: %v", err)
	}
	if _, err := s.Get(KindLandlockPolicy, "web"); !errors.Is(err, errs.ErrShutdown) {
		t.Errorf("get after Close: %v", err)
	}
}
