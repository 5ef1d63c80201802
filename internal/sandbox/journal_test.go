package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/store"
)

// faultyStore keeps records in memory and fails while fail is set.
type faultyStore struct {
	mu      sync.Mutex
	fail    error
	records map[string]*apiv1.Sandbox
	events  []*apiv1.Event
	commits int
}

func newFaultyStore() *faultyStore { return &faultyStore{records: map[string]*apiv1.Sandbox{}} }

func (s *faultyStore) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *faultyStore) PutSandboxes(_ context.Context, recs []*apiv1.Sandbox, events []*apiv1.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.commits++
	for _, r := range recs {
		s.records[r.GetId()] = r
	}
	s.events = append(s.events, events...)
	return nil
}

func (s *faultyStore) Sandbox(id string) (*apiv1.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[id]; r != nil {
		return r, nil
	}
	return nil, errs.ErrNotFound
}

func (s *faultyStore) Sandboxes(store.SandboxFilter) ([]*apiv1.Sandbox, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*apiv1.Sandbox
	for _, r := range s.records {
		out = append(out, r)
	}
	return out, "", nil
}

func (s *faultyStore) DeleteSandbox(_ context.Context, ids ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.records, id)
	}
	return s.fail
}

func testRecord(id string) *apiv1.Sandbox {
	return &apiv1.Sandbox{Id: id, Policy: "web", Argv: []string{"/bin/true", "a b\nc"}, State: apiv1.SandboxState_SANDBOX_STATE_RUNNING}
}

func TestJournalLine(t *testing.T) {
	rec := testRecord("0123456789ab")
	line, err := encodeLine(lineStarted, rec)
	if err != nil {
		t.Fatal(err)
	}
	e, err := decodeLine(line[:len(line)-1])
	if err != nil || e.kind != lineStarted || !proto.Equal(e.rec, rec) {
		t.Fatalf("round trip: %v, %v", e, err)
	}
	for i := range line[:len(line)-1] {
		bad := append([]byte(nil), line[:len(line)-1]...)
		bad[i] ^= 0x11
		if e, err := decodeLine(bad); err == nil && !proto.Equal(e.rec, rec) {
			t.Errorf("byte %d changed: taken as %v", i, e.rec)
		}
	}
}

func FuzzJournalLine(f *testing.F) {
	line, err := encodeLine(lineIntent, testRecord("0123456789ab"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line[:len(line)-1])
	f.Add([]byte("S 00000000 "))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := decodeLine(line)
		if err != nil {
			return
		}
		if !validID(e.rec.GetId()) {
			t.Fatalf("id %q was let through", e.rec.GetId())
		}
	})
}

func openTestJournal(t *testing.T, dir string) (*journal, []entry, int) {
	t.Helper()
	j, old, damaged, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.close)
	return j, old, damaged
}

func TestJournalIsHeldByOne(t *testing.T) {
	dir := t.TempDir()
	openTestJournal(t, dir)
	if _, _, _, err := openJournal(dir); err == nil {
		t.Fatal("a second policyd got hold of the journal")
	}
}

func TestJournalReadsOverDamage(t *testing.T) {
	dir := t.TempDir()
	j, _, _ := openTestJournal(t, dir)
	if err := j.rotate(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"00000000000a", "00000000000b"} {
		line, err := encodeLine(lineStarted, testRecord(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := j.append(line); err != nil {
			t.Fatal(err)
		}
		if _, err := j.file.WriteString("S 12"); err != nil { // cut off by a power loss
			t.Fatal(err)
		}
		if _, err := j.file.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
	}
	j.close()
	_, old, damaged := openTestJournal(t, dir)
	if len(old) != 2 || damaged != 2 {
		t.Fatalf("read %d lines, %d damaged; want 2 and 2", len(old), damaged)
	}
}

func newTestLedger(t *testing.T, st Store) *ledger {
	t.Helper()
	j, _, _ := openTestJournal(t, filepath.Join(t.TempDir(), "journal"))
	if err := j.rotate(); err != nil {
		t.Fatal(err)
	}
	l := newLedger(j, st, slog.New(slog.DiscardHandler))
	l.begin()
	t.Cleanup(func() { l.stop() })
	return l
}

func TestLedgerGroupsCommits(t *testing.T) {
	st := newFaultyStore()
	l := newTestLedger(t, st)
	const n = 500
	for i := range n {
		if err := l.started(testRecord(fmt.Sprintf("%012x", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(st.records) != n || len(st.events) != n {
		t.Errorf("%d records and %d events are stored, want %d each", len(st.records), len(st.events), n)
	}
	if st.commits > n/10 {
		t.Errorf("%d starts took %d commits", n, st.commits)
	}
	gens, err := l.journal.generations()
	if err != nil || len(gens) != 1 {
		t.Errorf("journal files left: %v, %v; want only the newest", gens, err)
	}
}

func TestLedgerCarriesIntents(t *testing.T) {
	l := newTestLedger(t, newFaultyStore())
	open := testRecord("aaaaaaaaaaaa")
	if err := l.intent(open); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // commits drop the file the intent was first written to
		if err := l.started(testRecord(fmt.Sprintf("%012x", i))); err != nil {
			t.Fatal(err)
		}
		if err := l.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.stop()
	<-l.done
	l.journal.close()
	_, old, _ := openTestJournal(t, l.journal.dir)
	if len(old) == 0 || old[0].kind != lineIntent || old[0].rec.GetId() != open.GetId() {
		t.Fatalf("the intent of a start under way is gone: %v", old)
	}
}

func TestLedgerStoreFails(t *testing.T) {
	st := newFaultyStore()
	l := newTestLedger(t, st)
	st.setFail(errs.ErrStoreFull)
	first := testRecord("aaaaaaaaaaaa")
	if err := l.started(first); err != nil {
		t.Fatalf("a start is acknowledged by the journal: %v", err)
	}
	if err := l.flush(t.Context()); !errors.Is(err, errs.ErrStoreFull) {
		t.Fatalf("flush: %v, want ErrStoreFull", err)
	}
	if err := l.intent(testRecord("bbbbbbbbbbbb")); !errors.Is(err, errs.ErrStoreFull) {
		t.Fatalf("a start begins although records cannot be stored: %v", err)
	}
	l.ended(first, exitEvent(first))
	st.setFail(nil)
	if err := l.flush(t.Context()); err != nil {
		// The commit that was under way may have failed still.
		if err := l.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(st.events) != 2 || st.events[0].GetType() != eventStart || st.events[1].GetType() != eventExit {
		t.Errorf("events after the failure: %v, want start and exit once each, in order", st.events)
	}
	if err := l.intent(testRecord("bbbbbbbbbbbb")); err != nil {
		t.Errorf("no start although the store works again: %v", err)
	}
}

func TestLedgerFailedStartsDoNotFill(t *testing.T) {
	l := newTestLedger(t, newFaultyStore())
	rec := testRecord("aaaaaaaaaaaa")
	rec.Argv = []string{string(make([]byte, 100<<10))}
	for range 60 {
		if err := l.intent(rec); err != nil {
			t.Fatal(err)
		}
		l.abort(rec)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		gens, err := l.journal.generations()
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, g := range gens {
			if st, err := os.Stat(l.journal.path(g)); err == nil {
				size += st.Size()
			}
		}
		if size <= 2*journalMax {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("journal has %d bytes although nothing is to be stored", size)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
