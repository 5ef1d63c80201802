package store

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

var writeGolden = flag.Bool("write-golden", false, "write testdata/schema-N.db for the schema of this code")

// TestGolden makes the file that the migration test of the next schema starts from, and keeps it with -write-golden. A
// file once released is never written again.
func TestGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	if *writeGolden {
		path = filepath.Join("testdata", fmt.Sprintf("schema-%d.db", schemaVersion))
	}
	clock := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s, err := Open(path, Options{Now: func() time.Time { clock = clock.Add(time.Second); return clock }})
	if err != nil {
		t.Fatal(err)
	}
	fillGolden(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Compact(path); err != nil {
		t.Fatal(err)
	}
	wholeFile(t, path)
}

// fillGolden makes one of everything.
func fillGolden(t *testing.T, s *Store) {
	base := fragmentOf("local/base", "one")
	mustApply(t, s, fragment("local/base", "one"), labelled(policy("web", "one", base), map[string]string{"team": "edge"}))
	mustApply(t, s, policy("web", "two", base), policy("db", "one"))
	mustApply(t, s, policy("web", "three"), policy("gone", "one"), policy("purged", "one"))
	if _, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@2", "stable", false, nil); err != nil {
		t.Fatal(err)
	}
	for _, purge := range []bool{false, true} {
		name := map[bool]string{false: "gone", true: "purged"}[purge]
		if err := s.Delete(t.Context(), alice, KindLandlockPolicy, name, nil, purge); err != nil {
			t.Fatal(err)
		}
	}
	request := Actor{Name: "uid:1000", RequestID: "r1", RequestHash: []byte("h"), Message: "by request"}
	if _, err := s.Rollback(t.Context(), request, KindLandlockPolicy, "web", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.CacheProfile("key", []byte("profile")); err != nil {
		t.Fatal(err)
	}
	err := s.PutSandboxes(t.Context(), []*apiv1.Sandbox{sandbox("abc", "web", 3, apiv1.SandboxState_SANDBOX_STATE_RUNNING)},
		[]*apiv1.Event{{Type: EventStart, Actor: "uid:1000", Subject: "sandbox/abc"}})
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, smackPolicy("platform", "one"))
	if err := s.SetSmackState(t.Context(), &apiv1.SmackState{Policy: "platform", Version: 1, Owned: []byte("rules"), BootId: "boot"}); err != nil {
		t.Fatal(err)
	}
	mustActivate(t, s, 7, "one", nil, policy("of-fleet", "one"))
}
