package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// Wait waits until the program has ended and says how. It may be called any
// number of times and gives the same answer; the error is only ever ctx's, or
// os.ErrClosed after Close. No thread waits meanwhile.
func (c *Child) Wait(ctx context.Context) (Status, error) {
	select {
	case <-c.done:
		return c.status, nil
	case <-ctx.Done():
		return Status{}, context.Cause(ctx)
	case c.turn <- struct{}{}:
	}
	defer func() { <-c.turn }()
	select {
	case <-c.done:
		return c.status, nil
	default:
	}
	st, err := c.poll(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return Status{}, context.Cause(ctx)
		}
		return Status{}, err
	}
	c.status = st
	close(c.done)
	c.Close()
	return st, nil
}

var past = time.Unix(1, 0)

// poll waits in the netpoller and then learns the status.
func (c *Child) poll(ctx context.Context) (Status, error) {
	f := c.pidfd
	if c.super != nil {
		f = c.super.conn
	}
	if ctx.Done() != nil {
		woken := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = f.SetReadDeadline(past)
			close(woken)
		})
		defer func() {
			if !stop() {
				<-woken
				_ = f.SetReadDeadline(time.Time{})
			}
		}()
	}
	if c.super != nil {
		return c.super.status()
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return Status{}, err
	}
	var st Status
	learn := c.adoptedStatus
	if c.reap {
		learn = c.reapStatus
	}
	err = raw.Read(func(fd uintptr) bool {
		var over bool
		st, over = learn(int(fd))
		return over
	})
	return st, err
}

// reapStatus waits for our child if it has ended. By pid: the number is its own
// until this call has answered.
func (c *Child) reapStatus(int) (Status, bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(c.PID, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil: // ECHILD: SIGCHLD is ignored, or somebody else waited
			return Status{Unknown: true}, true
		case pid == 0:
			return Status{}, false
		}
		return statusOf(ws), true
	}
}

func statusOf(ws syscall.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal()), CoreDumped: ws.CoreDump()}
	}
	return Status{Code: ws.ExitStatus()}
}

// Adopt finds a program that a policyd before this one started: pid with that
// start time (see StartTicks). errs.ErrNotRunning when it is gone.
func Adopt(pid int, ticks uint64) (*Child, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, notRunning(pid, err)
	}
	// After the pidfd: what is read now is of the process the pidfd holds, or
	// that process has ended and Signal says so.
	now, err := startTicks(pid)
	if err != nil || now != ticks || unix.PidfdSendSignal(fd, 0, nil, 0) == unix.ESRCH {
		unix.Close(fd)
		return nil, notRunning(pid, errors.Join(err, os.ErrProcessDone))
	}
	c, err := newChild(pid, fd, false)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	c.ticks = ticks
	return c, nil
}

func notRunning(pid int, err error) error {
	return fmt.Errorf("pid %d: %w: %w", pid, errs.ErrNotRunning, err)
}
