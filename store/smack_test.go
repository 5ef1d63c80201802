package store

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

func smackPolicy(name, content string) Put {
	return pinned(Put{
		Kind: KindSmackPolicy, Name: name, Source: "# " + content,
		Resource: &apiv1.Resource{Kind: &apiv1.Resource_SmackPolicy{SmackPolicy: &apiv1.SmackPolicy{
			Metadata: &apiv1.Metadata{Name: name, Description: content},
		}}},
	}, content, nil)
}

func TestSmackState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	s := openAt(t, path, Options{KeepVersions: 1})
	if st, err := s.SmackState(); err != nil || !proto.Equal(st, &apiv1.SmackState{}) {
		t.Fatalf("of a new store: %v %v", st, err)
	}
	mustApply(t, s, smackPolicy("platform", "one"))
	mustApply(t, s, smackPolicy("platform", "two"))
	want := &apiv1.SmackState{
		Assigned: "platform", AssignedVersion: 2, Policy: "platform", Version: 1, Owned: []byte("rules"), BootId: "boot", Intent: []byte("begun"),
	}
	if err := s.SetSmackState(t.Context(), want, &apiv1.Event{Type: "smack_load", Actor: "uid:0", Subject: "SmackPolicy/platform@1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetSmackState(t.Context(), &apiv1.SmackState{Assigned: "platform", AssignedVersion: 3}); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a version that is not there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, Options{KeepVersions: 1})
	if st, err := s.SmackState(); err != nil || !proto.Equal(st, want) {
		t.Fatalf("after opening again: %v %v", st, err)
	}
	events, err := s.Events(0, 0)
	if err != nil || events[len(events)-1].GetType() != "smack_load" {
		t.Errorf("log: %v %v", events, err)
	}

	// What the host holds is kept.
	mustApply(t, s, smackPolicy("platform", "three"))
	if n, err := s.GC(t.Context(), alice); err != nil || n != 0 {
		t.Errorf("GC removed %d: %v", n, err)
	}
	for _, purge := range []bool{false, true} {
		if err := s.Delete(t.Context(), alice, KindSmackPolicy, "platform", nil, purge); !errors.Is(err, errs.ErrReferenced) {
			t.Errorf("delete, purge %v: %v", purge, err)
		}
	}
	if err := s.SetSmackState(t.Context(), &apiv1.SmackState{}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.GC(t.Context(), alice); err != nil || n != 2 {
		t.Errorf("GC afterwards removed %d: %v", n, err)
	}
	if err := s.Delete(t.Context(), alice, KindSmackPolicy, "platform", nil, true); err != nil {
		t.Errorf("delete afterwards: %v", err)
	}
}

func TestCheckFindsSmackStateOfNoVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	s, err := Open(path, Options{}) // not openAt, which wants a whole file at the end
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, smackPolicy("platform", "one"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	payload, err := marshal(&apiv1.SmackState{Policy: "platform", Version: 7})
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, boltOptions(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketKeySmack).Put(keySmackState, seal(keySmackState, payload))
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	problems, _, _, err := CheckFile(t.Context(), path)
	if err != nil || len(problems) != 1 {
		t.Errorf("problems %q, %v", problems, err)
	}
}

// TestEveryKindIsKept goes through the table of kinds.
func TestEveryKindIsKept(t *testing.T) {
	test := &apiv1.Resource{Kind: &apiv1.Resource_PolicyTest{PolicyTest: &apiv1.PolicyTest{Metadata: &apiv1.Metadata{Name: "a"}}}}
	puts := map[string]Put{
		KindLandlockPolicy: policy("a", "one"), KindFragment: fragment("a", "one"), KindSmackPolicy: smackPolicy("a", "one"),
		KindPolicyTest: pinned(Put{Kind: KindPolicyTest, Name: "a", Resource: test}, "one", nil), KindBinding: binding("a", "kept"),
	}
	s := openAt(t, filepath.Join(t.TempDir(), "policyd.db"), Options{})
	mustApply(t, s, policy("kept", "of the binding"))
	for _, kind := range Kinds() {
		put, ok := puts[kind]
		if !ok {
			t.Errorf("no document of kind %s to try", kind)
			continue
		}
		mustApply(t, s, put)
		if v, err := s.Get(kind, "a@1"); err != nil || !proto.Equal(v.GetResource(), put.Resource) {
			t.Errorf("%s: %v %v", kind, v, err)
		}
		if infos, _, err := s.List(kind, Filter{}); err != nil || !slices.Contains(names(infos), "a") {
			t.Errorf("%s: list %v %v", kind, infos, err)
		}
		if err := s.Delete(t.Context(), alice, kind, "a", nil, true); err != nil {
			t.Errorf("%s: delete: %v", kind, err)
		}
	}
	if _, _, err := s.List("Other", Filter{}); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("list of another kind: %v", err)
	}
}
