package ask

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// maxSocketPath is the room of sockaddr_un.sun_path without its final NUL (unix(7)).
const maxSocketPath = 107

var errTimeout = errors.New("no answer in time")

// socket is a connection that gives up at a moment. It is no net.Conn: the thread waits in the kernel, which is all
// that a program with nothing else to do needs.
type socket struct {
	fd    int
	until time.Time
}

func dial(path string, until time.Time) (*socket, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d bytes, the kernel takes %d", len(path), maxSocketPath)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd, until}
	err = s.wait(syscall.SO_SNDTIMEO, func() error { return syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}) })
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) close() { _ = syscall.Close(s.fd) }

// wait does what may wait, for as long as is left. A timeout of the socket is EAGAIN (socket(7), SO_RCVTIMEO), and such
// a call is not started again after a signal (signal(7)).
func (s *socket) wait(option int, call func() error) error {
	for {
		left := time.Until(s.until)
		if left <= 0 {
			return errTimeout
		}
		tv := syscall.NsecToTimeval(max(left, time.Millisecond).Nanoseconds()) // 0 is no timeout
		if err := syscall.SetsockoptTimeval(s.fd, syscall.SOL_SOCKET, option, &tv); err != nil {
			return err
		}
		switch err := call(); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINPROGRESS):
			return errTimeout
		default:
			return err
		}
	}
}

// Read is io.Reader's.
func (s *socket) Read(b []byte) (n int, err error) {
	err = s.wait(syscall.SO_RCVTIMEO, func() error { n, err = syscall.Read(s.fd, b); return err })
	if n <= 0 && err == nil && len(b) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// Write is io.Writer's. A peer that is gone is an error and no signal, which Go's runtime takes for descriptors from 3.
func (s *socket) Write(b []byte) (n int, err error) {
	for n < len(b) {
		var m int
		err = s.wait(syscall.SO_SNDTIMEO, func() (err error) {
			m, err = syscall.SendmsgN(s.fd, b[n:], nil, nil, syscall.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// explain makes errors of the connection such of policyd.
func (s *socket) explain(path string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if errors.Is(err, errTimeout) {
		return &Error{codeDeadlineExceeded, fmt.Sprintf("policyd at %s: %v", path, err)}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it closed the connection")
	}
	return &Error{codeUnavailable, fmt.Sprintf("policyd at %s did not answer: %v", path, err)}
}
