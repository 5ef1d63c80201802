package spawn

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// Descriptor gives a pidfd of the program, for a policyd after this one; the caller closes it. errs.ErrNotRunning
// once the end was seen.
func (c *Child) Descriptor() (*os.File, error) {
	raw, err := c.pidfd.SyscallConn()
	if err != nil {
		return nil, notRunning(c.PID, err)
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, notRunning(c.PID, err)
	}
	if dupErr != nil {
		return nil, fmt.Errorf("pid %d: pidfd: %w", c.PID, dupErr)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// AdoptHeld is [Adopt] of a program that may have ended meanwhile, by the pidfd that a policyd before this one had of
// it: from Linux 6.15 on the kernel tells by it how the program ended, whoever has waited for it. It takes the
// descriptor over, unless with an error.
func AdoptHeld(pidfd *os.File, pid int, ticks uint64) (*Child, error) {
	fd, err := unix.FcntlInt(pidfd.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("pid %d: pidfd: %w", pid, err)
	}
	c, err := adoptHeld(fd, pid, ticks)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	pidfd.Close()
	return c, nil
}

func adoptHeld(fd, pid int, ticks uint64) (*Child, error) {
	switch of, err := pidOf(fd); {
	case err != nil:
		return nil, fmt.Errorf("pid %d: %w", pid, err)
	case of != pid && of != -1: // pidfd_show_fdinfo of fs/pidfs.c: -1 when it was waited for
		return nil, fmt.Errorf("pid %d: the pidfd is of %d: %w", pid, of, errs.ErrNotRunning)
	}
	c, err := newChild(pid, fd, false)
	if err != nil {
		return nil, err
	}
	c.ticks = ticks
	return c, nil
}

// pidOf reads whose pidfd it is.
func pidOf(fd int) (int, error) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(info) {
		if text, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(text)))
		}
	}
	return 0, fmt.Errorf("descriptor is no pidfd: %w", errs.ErrInvalid)
}
