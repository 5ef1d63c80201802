package sandbox

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// maxSignal is the highest signal number (SIGRTMAX).
const maxSignal = 64

// Signal sends a signal to the first process of a sandbox, or, when it has a terminal,
// to the terminal's foreground group. With all, SIGKILL is sent to every process of it
// and sig is not looked at. errs.ErrNotRunning when it has ended.
func (m *Manager) Signal(id string, sig int, all bool) error {
	_, b, err := m.find(id)
	if err != nil {
		return err
	}
	if b == nil {
		return fmt.Errorf("sandbox %s: %w", id, errs.ErrNotRunning)
	}
	return m.signal(b, sig, all)
}

func (m *Manager) signal(b *box, sig int, all bool) error {
	if !all && (sig < 1 || sig > maxSignal) {
		return fmt.Errorf("%w: %d is no signal", errs.ErrInvalid, sig)
	}
	<-b.decided
	if b.startErr != nil || closed(b.done) {
		return fmt.Errorf("sandbox %s: %w", b.id, errs.ErrNotRunning)
	}
	var err error
	switch {
	case all:
		err = b.group.KillAll()
	case b.term != nil:
		err = signalForeground(b, syscall.Signal(sig))
	default:
		err = b.child.Signal(syscall.Signal(sig))
	}
	if errors.Is(err, unix.ESRCH) || err != nil && closed(b.done) {
		return fmt.Errorf("sandbox %s: %w", b.id, errs.ErrNotRunning)
	}
	if err != nil {
		return fmt.Errorf("signal to sandbox %s: %w", b.id, err)
	}
	return nil
}

// signalForeground signals who reads the terminal; the first process when nobody does.
func signalForeground(b *box, sig syscall.Signal) error {
	pgrp, err := foreground(b.term)
	if err != nil || pgrp <= 1 {
		return b.child.Signal(sig)
	}
	return unix.Kill(-pgrp, sig)
}
