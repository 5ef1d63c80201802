package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stdio is the two sides of a child's standard streams.
type stdio struct {
	child [3]*os.File // nil: /dev/null
	// ours: in is written, out and err are read. With a terminal in and out are both its
	// master side and err is nil.
	in, out, err *os.File
	term         bool
}

func (s *stdio) closeChild() {
	var last *os.File
	for _, f := range s.child {
		if f != nil && f != last {
			f.Close()
		}
		last = f
	}
}

func (s *stdio) closeOurs() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			f.Close() // the second time for a terminal: no harm
		}
	}
}

// openPipes makes three pipes. Our ends do not block a thread, the child's block as
// programs expect.
func openPipes() (*stdio, error) {
	s := &stdio{}
	for i, ours := range []**os.File{&s.in, &s.out, &s.err} {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			s.closeChild()
			s.closeOurs()
			return nil, fmt.Errorf("pipe for a standard stream: %w", err)
		}
		mine, theirs := p[0], p[1]
		if i == 0 {
			mine, theirs = p[1], p[0]
		}
		s.child[i] = os.NewFile(uintptr(theirs), "child's pipe")
		err := unix.SetNonblock(mine, true)
		*ours = os.NewFile(uintptr(mine), "pipe")
		if err != nil {
			s.closeChild()
			s.closeOurs()
			return nil, fmt.Errorf("pipe for a standard stream: %w", err)
		}
	}
	return s, nil
}

// chunk is how much output is read and sent at a time, bytes.
const chunk = 32 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// setDeadline wakes who waits for one of our ends, or will.
func (s *stdio) setDeadline(t time.Time) {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			_ = f.SetDeadline(t) // closed: nobody waits
		}
	}
}

// A reader reads from a descriptor of ours what is there, as read(2) does.
type reader func(fd int, p []byte) (int, error)

// readChunk waits for output and calls use with it; n is 0 at the end. No buffer is
// held while nothing comes: an idle sandbox costs none.
func readChunk(f *os.File, read reader, use func(p []byte) error) (n int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var buf *[chunk]byte
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		buf = chunks.Get().(*[chunk]byte)
		n, rerr = read(int(fd), buf[:])
		if errors.Is(rerr, unix.EAGAIN) {
			chunks.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if buf != nil {
		defer chunks.Put(buf)
	}
	return usedChunk(buf, n, errors.Join(err, rerr), use)
}

// readRest is readChunk for what is there already, also after a deadline.
func readRest(f *os.File, read reader, use func(p []byte) error) (n int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	var rerr error
	err = rc.Control(func(fd uintptr) { n, rerr = read(int(fd), buf[:]) })
	if errors.Is(rerr, unix.EAGAIN) {
		return 0, err
	}
	return usedChunk(buf, n, errors.Join(err, rerr), use)
}

func usedChunk(buf *[chunk]byte, n int, err error, use func(p []byte) error) (int, error) {
	switch {
	case errors.Is(err, unix.EIO):
		return 0, nil // master side of a terminal nobody has open any more
	case err != nil:
		return 0, err
	case n <= 0:
		return 0, nil
	}
	if err := use(buf[:n]); err != nil {
		return 0, err
	}
	return n, nil
}

func readRetry(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// writeAll writes p and tells how much is done with; what a child does not read any
// more is dropped, as a shell's pipe would drop it after SIGPIPE.
func writeAll(f *os.File, p []byte) (int, error) {
	n, err := f.Write(p)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed) {
		return len(p), nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("standard input: %w", err)
	}
	return n, nil
}
