package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	bolt "go.etcd.io/bbolt"

	"policyd.dev/policyd/internal/errs"
)

// holdWriter makes the writer wait inside a change, so that others gather behind it.
func holdWriter(t *testing.T, s *Store) (release func()) {
	t.Helper()
	inside, free, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.update(context.Background(), func(*wtx) error {
			close(inside)
			<-free
			return nil
		})
	}()
	<-inside
	return func() {
		close(free)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func queued(s *Store) int {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	return len(s.queue)
}

func TestConcurrentAppliesShareCommits(t *testing.T) {
	s := openAt(t, t.TempDir()+"/policyd.db", Options{})
	mustApply(t, s, policy("first", "one"))
	commits, txs := s.commits.Load(), lastTx(t, s)
	release := holdWriter(t, s)
	const n = 200
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := s.Apply(context.Background(), alice, []Put{policy(fmt.Sprint("p", i), "one")}); err != nil {
				t.Error(err)
			}
		})
	}
	for queued(s) < n {
		runtime.Gosched()
	}
	release()
	wg.Wait()
	if got := s.commits.Load() - commits; got != 1 {
		t.Errorf("%d applies made %d commits, want 1", n, got)
	}
	if got := lastTx(t, s) - txs; got != 1 {
		t.Errorf("bbolt counts %d write transactions, want 1", got)
	}
	if list, _, _ := s.List(KindLandlockPolicy, Filter{}); len(list) != n+1 {
		t.Errorf("%d documents", len(list))
	}
}

func lastTx(t *testing.T, s *Store) (id int) {
	t.Helper()
	if err := s.view(func(tx *bolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestSameExpectationOneWins(t *testing.T) {
	s := openTest(t, Options{})
	for round := range uint64(20) {
		var won, lost atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				_, err := s.Apply(context.Background(), alice, []Put{expecting(policy("web", fmt.Sprint(round, i)), round)})
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, errs.ErrVersionMismatch):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 7 {
			t.Fatalf("round %d: %d won, %d lost", round, won.Load(), lost.Load())
		}
	}
}

// A change that fails after it wrote takes nothing of the others of its batch with it, and leaves nothing.
func TestSpoilerOfABatch(t *testing.T) {
	s := openTest(t, Options{})
	mustApply(t, s, policy("first", "one"))
	release := holdWriter(t, s)
	broken := errors.New("broken")
	var wg sync.WaitGroup
	var runs atomic.Int32
	for i := range 5 {
		wg.Go(func() {
			if _, err := s.Apply(context.Background(), alice, []Put{policy(fmt.Sprint("p", i), "one")}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			err := s.update(context.Background(), func(tx *wtx) error {
				runs.Add(1)
				if err := tx.log(event("spoiler", alice, "x", nil)); err != nil {
					return err
				}
				return broken
			})
			if !errors.Is(err, broken) {
				t.Error(err)
			}
		})
	}
	for queued(s) < 10 {
		runtime.Gosched()
	}
	release()
	wg.Wait()
	if runs.Load() < 10 {
		t.Errorf("spoilers ran %d times; each should have run again alone", runs.Load())
	}
	events, err := s.Events(0, 0)
	if err != nil || len(events) != 7 {
		t.Errorf("%d log entries %v, want 7", len(events), err)
	}
}

func TestGivenUpInTheQueue(t *testing.T) {
	s := openTest(t, Options{})
	release := holdWriter(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Apply(ctx, alice, []Put{policy("web", "one")})
		done <- err
	}()
	for queued(s) < 1 {
		runtime.Gosched()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	release()
	mustApply(t, s, policy("other", "one"))
	if _, err := s.Get(KindLandlockPolicy, "web"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("what was given up was done: %v", err)
	}
}

// Damage that shows only while writing stops all writing, and the answer says so.
func TestPanicWhileWriting(t *testing.T) {
	s, err := Open(t.TempDir()+"/policyd.db", Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = s.update(t.Context(), func(*wtx) error { panic("page 7 is damaged") })
	if !errors.Is(err, errs.ErrStoreCorrupt) {
		t.Errorf("error %v", err)
	}
	if _, err := s.Apply(t.Context(), alice, []Put{policy("web", "one")}); !errors.Is(err, errs.ErrStoreCorrupt) {
		t.Errorf("a later change: %v", err)
	}
	if err := s.view(func(*bolt.Tx) error { panic("page 7 is damaged") }); !errors.Is(err, errs.ErrStoreCorrupt) {
		t.Errorf("reading: %v", err)
	}
	if _, err := s.Events(0, 0); err != nil {
		t.Errorf("reading goes on: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
