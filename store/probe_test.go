package store

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"policyd.dev/policyd/internal/errs"
)

// TestProbe: a probe writes nothing, waits for a change under way, and tells when the store is closed.
func TestProbe(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "p.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.LastSeq()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, err := s.LastSeq(); err != nil || after != before {
		t.Errorf("a probe has written: entry %d after %d, %v", after, before, err)
	}

	entered, leave := make(chan struct{}), make(chan struct{})
	stuck := make(chan error, 1)
	go func() {
		stuck <- s.update(context.Background(), func(*wtx) error {
			close(entered)
			<-leave
			return errs.ErrInvalid
		})
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a stuck writer: %v", err)
	}
	close(leave)
	if err := <-stuck; !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("the change under way: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); !errors.Is(err, errs.ErrShutdown) {
		t.Errorf("of a closed store: %v", err)
	}
}
