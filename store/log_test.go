package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func TestLog(t *testing.T) {
	s := openTest(t, Options{})
	wake, cancel := s.Watch()
	given := &apiv1.Event{Type: EventExit, Subject: "sandbox/a", Attributes: map[string]string{"code": "1"}}
	if err := s.Append(t.Context(), given, &apiv1.Event{Type: EventExit}); err != nil {
		t.Fatal(err)
	}
	if given.GetSeq() != 0 {
		t.Error("the caller's event was changed")
	}
	select {
	case <-wake:
	case <-time.After(time.Minute):
		t.Fatal("no wake-up")
	}
	cancel()
	mustApply(t, s, policy("web", "one"))
	events, err := s.Events(2, 2)
	if err != nil || len(events) != 2 || events[0].GetSeq() != 2 || events[0].GetAttributes()["code"] != "1" {
		t.Errorf("events: %v %v", events, err)
	}
	all, _ := s.Events(0, 0)
	last := all[len(all)-1]
	if last.GetType() != EventApply || last.GetSubject() != "LandlockPolicy/web@1" || last.GetActor() != alice.Name || last.GetTime() == nil {
		t.Errorf("apply's entry: %v", last)
	}
	problems, entries, head, err := s.Check(t.Context())
	if err != nil || len(problems) > 0 || entries != 4 || head != fmt.Sprintf("%x", last.GetHash()) {
		t.Errorf("check: %v %d %s %v", problems, entries, head, err)
	}
}

// TestLogTampering changes the log as someone would who knows the format, seals included.
func TestLogTampering(t *testing.T) {
	read := func(tx *bolt.Tx, n uint64) *apiv1.Event {
		e := &apiv1.Event{}
		if err := unsealMessage(number(n), tx.Bucket(bucketKeyLog).Get(number(n)), e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	write := func(tx *bolt.Tx, n uint64, e *apiv1.Event) error {
		payload, err := marshal(e)
		if err != nil {
			return err
		}
		return tx.Bucket(bucketKeyLog).Put(number(n), seal(number(n), payload))
	}
	for what, c := range map[string]struct {
		change func(tx *bolt.Tx) error
		want   string
	}{
		"entry changed": {func(tx *bolt.Tx) error {
			e := read(tx, 3)
			e.Actor = "uid:0"
			return write(tx, 3, e)
		}, "log entry 3 was changed"},
		"entry changed, its hash too": {func(tx *bolt.Tx) error {
			e := read(tx, 3)
			e.Actor = "uid:0"
			e.Hash = hashEvent(e)
			return write(tx, 3, e)
		}, "log entry 4 does not follow"},
		"last entry changed, its hash too": {func(tx *bolt.Tx) error {
			e := read(tx, 6)
			e.Actor = "uid:0"
			e.Hash = hashEvent(e)
			return write(tx, 6, e)
		}, "head is entry 6"},
		"end cut off":       {func(tx *bolt.Tx) error { return tx.Bucket(bucketKeyLog).Delete(number(6)) }, "last entry is 5"},
		"beginning cut off": {func(tx *bolt.Tx) error { return tx.Bucket(bucketKeyLog).Delete(number(1)) }, "entry 1 is missing"},
		"entry removed":     {func(tx *bolt.Tx) error { return tx.Bucket(bucketKeyLog).Delete(number(4)) }, "entry 4 is missing"},
		"entries swapped": {func(tx *bolt.Tx) error {
			a, b := read(tx, 3), read(tx, 4)
			if err := write(tx, 3, b); err != nil {
				return err
			}
			return write(tx, 4, a)
		}, "entry 3 is missing or in another place"},
		"entries swapped and numbered": {func(tx *bolt.Tx) error {
			a, b := read(tx, 3), read(tx, 4)
			a.Seq, b.Seq = 4, 3
			if err := write(tx, 3, b); err != nil {
				return err
			}
			return write(tx, 4, a)
		}, "does not follow"},
		"head set back": {func(tx *bolt.Tx) error {
			payload := append(number(5), read(tx, 5).GetHash()...)
			return tx.Bucket(bucketKeyMeta).Put(keyLogHead, seal(keyLogHead, payload))
		}, "head is entry 5"},
		"head removed": {func(tx *bolt.Tx) error { return tx.Bucket(bucketKeyMeta).Delete(keyLogHead) }, "head is entry 0"},
		"bytes changed, seal not": {func(tx *bolt.Tx) error {
			value := append([]byte(nil), tx.Bucket(bucketKeyLog).Get(number(2))...)
			value[len(value)-1] ^= 1
			return tx.Bucket(bucketKeyLog).Put(number(2), value)
		}, "checksum"},
	} {
		t.Run(what, func(t *testing.T) {
			s, err := Open(t.TempDir()+"/policyd.db", Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i := range 5 {
				mustApply(t, s, policy("web", fmt.Sprint(i)))
			}
			if err := s.db.Update(c.change); err != nil {
				t.Fatal(err)
			}
			problems, _, _, err := s.Check(t.Context())
			if err != nil || !strings.Contains(strings.Join(problems, "\n"), c.want) {
				t.Errorf("problems %q %v, want one with %q", problems, err, c.want)
			}
		})
	}
}

// TestCheckFindsWhatDoesNotAgree takes records away one at a time, in every bucket.
func TestCheckFindsWhatDoesNotAgree(t *testing.T) {
	path := copyGolden(t, "schema-1.db")
	s := openAt(t, path, Options{NoSync: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var keys [][][]byte // bucket path and key
	db, err := bolt.Open(path, 0o600, boltOptions(Options{NoSync: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var walk func(at [][]byte, b *bolt.Bucket) error
	walk = func(at [][]byte, b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			path := append(at[:len(at):len(at)], append([]byte(nil), k...))
			if v == nil {
				return walk(path, b.Bucket(k))
			}
			keys = append(keys, path)
			return nil
		})
	}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error { return walk([][]byte{append([]byte(nil), name...)}, b) })
	})
	if err != nil {
		t.Fatal(err)
	}
	silent := map[string]bool{string(bucketKeySandboxes): true, string(bucketKeyTags): true} // nothing refers to these
	rollback := fmt.Errorf("rollback")
	tried := 0
	for _, path := range keys {
		if silent[string(path[0])] || strings.HasPrefix(string(path[len(path)-1]), "purged") {
			continue
		}
		tried++
		err := db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(path[0])
			for _, k := range path[1 : len(path)-1] {
				b = b.Bucket(k)
			}
			if err := b.Delete(path[len(path)-1]); err != nil {
				return err
			}
			if problems, _, _, err := checkTx(t.Context(), tx); err == nil && len(problems) == 0 {
				t.Errorf("nobody misses %q", path)
			}
			return rollback
		})
		if err != rollback {
			t.Fatal(err)
		}
	}
	if tried < 40 {
		t.Errorf("only %d records were taken away", tried)
	}
}
