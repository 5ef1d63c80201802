package smackfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// ThreadLabel gives the label of the calling thread. Labels belong to threads: a goroutine must be locked to its own for
// the answer to stay true.
func ThreadLabel() (string, error) { return labelFile("/proc/thread-self/attr/smack/current") }

// ProcessLabel gives the label of a process's first thread, or of any thread by its id.
func ProcessLabel(pid int) (string, error) {
	return labelFile(fmt.Sprintf("/proc/%d/attr/smack/current", pid))
}

func labelFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL):
		return "", fmt.Errorf("%w: %w", errs.ErrSmackDisabled, err)
	case err != nil:
		return "", err
	}
	return trimLabel(b), nil
}

// trimLabel drops what interfaces put after a label: a newline, a NUL, or both.
func trimLabel(b []byte) string { return string(bytes.TrimRight(b, "\n\x00")) }

// PeerLabel gives the label of the process that connected to (or listens on) a unix socket (SO_PEERSEC), as it was when
// the connection was made.
func PeerLabel(fd int) (string, error) {
	if _, err := ThreadLabel(); err != nil {
		return "", err // another LSM's answer must not be taken for a label
	}
	// x/sys reads socket options as C strings, which is what is wanted: the kernel's label may end in a NUL.
	s, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_PEERSEC)
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return "", fmt.Errorf("%w: SO_PEERSEC: %w", errs.ErrSmackDisabled, err)
	case err != nil:
		return "", fmt.Errorf("SO_PEERSEC: %w", err)
	}
	return trimLabel([]byte(s)), nil
}
