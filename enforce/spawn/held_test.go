package spawn

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

func TestAdoptHeld(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read x; exit 9")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	ticks, err := startTicks(pid)
	if err != nil {
		t.Fatal(err)
	}
	first, err := Adopt(pid, ticks)
	if err != nil {
		t.Fatal(err)
	}
	held, err := first.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(held.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("children would inherit it: %x, %v", flags, err)
	}
	first.Close()
	if _, err := first.Descriptor(); !errors.Is(err, errs.ErrNotRunning) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := AdoptHeld(held, pid+1, ticks); !errors.Is(err, errs.ErrNotRunning) {
		t.Errorf("another's: %v", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := AdoptHeld(null, pid, ticks); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("no pidfd: %v", err)
	}
	// It ends and is waited for by somebody else, before it is adopted.
	in.Close()
	_ = cmd.Wait()
	child, err := AdoptHeld(held, pid, ticks)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	st, err := child.Wait(t.Context())
	if err != nil || !st.Unknown && st.Code != 9 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := child.Signal(0); !errors.Is(err, errs.ErrNotRunning) {
		t.Errorf("signal: %v", err)
	}
}
