package cli

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/term"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// RawTerminal is a terminal in raw mode. Restore must be called on every way
// out; it may be called often and from any goroutine.
type RawTerminal struct {
	fd    int
	mu    sync.Mutex
	saved *term.State
	over  bool
}

// MakeRaw puts a terminal into raw mode.
func MakeRaw(f *os.File) (*RawTerminal, error) {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return nil, errors.New("standard input is not a terminal")
	}
	saved, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	return &RawTerminal{fd: fd, saved: saved}, nil
}

// Again sets raw mode once more: a shell restores its own mode while policyctl
// is stopped.
func (t *RawTerminal) Again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		_, _ = term.MakeRaw(t.fd)
	}
}

// Restore gives the terminal back as it was.
func (t *RawTerminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.over = true
		_ = term.Restore(t.fd, t.saved)
	}
}

// Size returns the size of a terminal, or nil when f is none.
func Size(f *os.File) *apiv1.Terminal {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return nil
	}
	return &apiv1.Terminal{Rows: uint32(h), Columns: uint32(w)}
}
