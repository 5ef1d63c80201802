package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// copyGolden copies a stored old file into a folder of the test.
func copyGolden(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policyd.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMigrationsAreInOrder(t *testing.T) {
	for i, m := range migrations {
		if m.schema != uint32(i+2) || m.what == "" {
			t.Errorf("migration %d is to schema %d", i, m.schema)
		}
	}
	if last := migrations[len(migrations)-1].schema; last != schemaVersion {
		t.Errorf("the last migration is to schema %d, the code is of %d", last, schemaVersion)
	}
}

func TestMigrateSchema1(t *testing.T) {
	path := copyGolden(t, "schema-1.db")
	wholeFile(t, path) // an old store is checked as it is
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, errs.ErrStoreReadOnly) {
		t.Errorf("read-only open of an old store: %v", err)
	}
	s := openAt(t, path, Options{})
	wholeFile(t, path+".schema-1")
	err := s.view(func(tx *bolt.Tx) error {
		if schema, err := readSchema(tx); err != nil || schema != schemaVersion {
			t.Errorf("schema %d %v", schema, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	history, err := s.History(KindLandlockPolicy, "web", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "versions", numbers(history), []uint64{4, 3, 2, 1})
	for _, info := range history[1:] {
		want := info.GetNumber()
		if want == 1 {
			want = 4 // the same content: the newest is meant
		}
		if got, err := s.Info(KindLandlockPolicy, "web@"+info.GetDigest()); err != nil || got.GetNumber() != want {
			t.Errorf("version %d by digest: %v %v", info.GetNumber(), got, err)
		}
	}
	events, err := s.Events(0, 0)
	if err != nil || events[len(events)-1].GetType() != EventMigrate {
		t.Errorf("last log entry: %v %v", events[len(events)-1], err)
	}
	if got, ok := s.CachedProfile("key"); !ok || string(got) != "profile" {
		t.Errorf("cached profile: %q", got)
	}
	if again := mustApply(t, s, policy("purged", "one")); again[0].Info.GetNumber() != 2 {
		t.Errorf("number of a purged name: %v", again[0].Info)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, Options{}) // and not again
	if after, err := s.Events(uint64(len(events)+1), 0); err != nil || len(after) != 1 || after[0].GetType() != EventApply {
		t.Errorf("log after opening again: %v %v", after, err)
	}
}

func TestMigrateSchema2(t *testing.T) {
	path := copyGolden(t, "schema-2.db")
	wholeFile(t, path) // an old store is checked as it is
	s := openAt(t, path, Options{})
	wholeFile(t, path+".schema-2")
	if st, err := s.SmackState(); err != nil || !proto.Equal(st, &apiv1.SmackState{}) {
		t.Errorf("state of smackfs: %v %v", st, err)
	}
	mustApply(t, s, smackPolicy("platform", "one"))
	if err := s.SetSmackState(t.Context(), &apiv1.SmackState{Policy: "platform", Version: 1}); err != nil {
		t.Error(err)
	}
	history, err := s.History(KindLandlockPolicy, "web", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "versions", numbers(history), []uint64{4, 3, 2, 1})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wholeFile(t, path)
}

func TestMigrateSchema3(t *testing.T) {
	path := copyGolden(t, "schema-3.db")
	wholeFile(t, path) // an old store is checked as it is
	s := openAt(t, path, Options{})
	wholeFile(t, path+".schema-3")
	if st, err := s.FleetState(); err != nil || !proto.Equal(st, &apiv1.FleetState{}) {
		t.Errorf("state of the fleet: %v %v", st, err)
	}
	mustActivate(t, s, 1, "one", nil, policy("web", "of the fleet"))
	if info, err := s.Info(KindLandlockPolicy, "web"); err != nil || info.GetNumber() != 5 || info.GetOrigin() != "stable@1" {
		t.Errorf("after an activation: %v %v", info, err)
	}
	if st, err := s.SmackState(); err != nil || st.GetPolicy() != "platform" {
		t.Errorf("state of smackfs: %v %v", st, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wholeFile(t, path)
}

func TestFailedMigrationChangesNothing(t *testing.T) {
	path := copyGolden(t, "schema-1.db")
	before, _ := os.ReadFile(path)
	saved := migrations
	defer func() { migrations = saved }()
	broken := errors.New("broken")
	migrations = append(saved[:len(saved):len(saved)], migration{schemaVersion + 1, "fails", func(*wtx) error { return broken }})
	if _, err := Open(path, Options{}); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	after, _ := os.ReadFile(path)
	if !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
	migrations = saved
	openAt(t, path, Options{})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := copyGolden(t, "schema-1.db")
	db, err := bolt.Open(path, 0o600, boltOptions(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketKeyMeta).Put(keySchema, seal(keySchema, binary.BigEndian.AppendUint32(nil, schemaVersion+1)))
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	before, _ := os.ReadFile(path)
	if _, err := Open(path, Options{}); !errors.Is(err, errs.ErrStoreNewer) {
		t.Errorf("open: %v", err)
	}
	if _, _, _, err := CheckFile(t.Context(), path); !errors.Is(err, errs.ErrStoreNewer) {
		t.Errorf("check: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
