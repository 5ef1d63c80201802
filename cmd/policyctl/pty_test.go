package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/testkernel"
)

// soon bounds what a test waits for.
const soon = 20 * time.Second

const shellPolicy = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: shell}
spec:
  abi: 4
  layers:
    - paths:
        - {allow: [read, execute], at: [/usr, /bin, /lib]}
        - {allow: [read, execute], at: [/lib64], missing: skip}
        - {allow: [read, write], at: [/dev]}
        - {allow: [read], at: [/etc, /proc]}
        - {allow: [all], at: [/tmp]}
`

// start runs a policyd with the policy shell and returns its socket.
func start(t *testing.T) (socket string) {
	t.Helper()
	if sup := landlock.Probe(); sup.Err != nil {
		testkernel.Skip(t, "Landlock", sup.Err.Error())
	}
	dir := t.TempDir()
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(daemons, "policyd"), "--state-dir", dir)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("policyd:\n%s", log.String())
		}
	})
	socket = filepath.Join(dir, "run/policyd.sock")
	for _, args := range [][]string{{"status", "--wait=20", "-q"}, {"apply", "-q", "-f", "-"}} {
		c := exec.Command(filepath.Join(daemons, "policyctl"), append(args, "--socket", socket)...)
		c.Stdin = strings.NewReader(shellPolicy)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return socket
}

// session is a policyctl at a terminal of its own.
type session struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	mu     sync.Mutex
	seen   bytes.Buffer
	wake   chan struct{}
}

// open starts policyctl at a terminal of 24 rows and 80 columns.
func open(t *testing.T, args ...string) *session {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, master: os.NewFile(uintptr(fd), "ptmx"), wake: make(chan struct{}, 1)}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		s.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.resize(24, 80)
	s.cmd = exec.Command(filepath.Join(daemons, "policyctl"), args...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
	s.cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.master.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			select {
			case s.wake <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		s.slave.Close()
		s.master.Close()
	})
	return s
}

func (s *session) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// expect waits until the terminal showed text.
func (s *session) expect(text string) {
	s.t.Helper()
	deadline := time.NewTimer(soon)
	defer deadline.Stop()
	for !strings.Contains(s.text(), text) {
		select {
		case <-s.wake:
		case <-deadline.C:
			s.t.Fatalf("no %q on the terminal:\n%q", text, s.text())
		}
	}
}

func (s *session) typed(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.master, text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) resize(rows, cols uint16) {
	s.t.Helper()
	rc, err := s.master.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	_ = rc.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// end waits for policyctl and tells its exit code, -1 for a signal.
func (s *session) end() int {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode()
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return 0
	case <-time.After(soon):
		s.t.Fatalf("policyctl does not end; terminal:\n%q", s.text())
	}
	return 0
}

// raw tells whether the terminal is in raw mode.
func (s *session) raw() bool {
	s.t.Helper()
	rc, err := s.slave.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var mode *unix.Termios
	_ = rc.Control(func(fd uintptr) { mode, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) })
	if err != nil {
		s.t.Fatal(err)
	}
	return mode.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
}
