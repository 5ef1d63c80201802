package store

import (
	"errors"
	"fmt"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

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
