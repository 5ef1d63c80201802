package main

import (
	"bytes"
	"context"
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
	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/clitest"
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

// A shell at a terminal: it has one of its own, of the right size, follows its
// changes, and ^C is for its foreground job.
func TestTerminal(t *testing.T) {
	socket := start(t)
	s := open(t, "run", "shell", "--socket", socket, "--tty", "--rm", "--dir", "/", "--env", "PS1=ready> ", "--", "/bin/sh", "-i")
	s.expect("ready> ")
	if !s.raw() {
		t.Error("the terminal is not in raw mode")
	}
	s.typed("stty size; tty; echo $TERM\r")
	s.expect("24 80")
	s.expect("/dev/pts/")
	s.expect("xterm")
	s.resize(50, 132)
	s.typed("sleep 0.2; stty size\r")
	s.expect("50 132")
	s.typed("sleep 100; echo came-$?\r")
	time.Sleep(200 * time.Millisecond) // sleep has no sign that it runs
	s.typed("\x03")
	s.typed("echo after-$?\r")
	s.expect("after-130")
	s.typed("sleep 100\r")
	time.Sleep(200 * time.Millisecond)
	s.typed("\x1a") // job control
	s.expect("Stopped")
	s.typed("fg\r")
	time.Sleep(200 * time.Millisecond)
	s.typed("\x03")
	s.typed("echo job-$?\r")
	s.expect("job-130")
	s.typed("exit 7\r")
	if code := s.end(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if s.raw() {
		t.Error("the terminal was left in raw mode")
	}
}

// Whatever ends a session, the terminal comes back as it was.
func TestTerminalIsRestored(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*session, string)
		code int
	}{
		{"program killed", func(s *session, _ string) { s.typed("kill -9 $$\r") }, 137},
		{"SIGTERM to policyctl", func(s *session, _ string) { _ = s.cmd.Process.Signal(syscall.SIGTERM) }, 9},
		{"SIGHUP to policyctl", func(s *session, _ string) { _ = s.cmd.Process.Signal(syscall.SIGHUP) }, 8},
		{"sandbox ended by another", func(_ *session, socket string) {
			_ = exec.Command("sh", "-c", daemons+"/policyctl --socket "+socket+" kill --all $("+daemons+"/policyctl --socket "+socket+" ps -o name)").Run()
		}, 137},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := start(t)
			s := open(t, "run", "shell", "--socket", socket, "--tty", "--dir", "/", "--", "/bin/sh", "-c", `trap "exit 9" TERM; trap "exit 8" HUP; echo ready; while :; do read x; eval "$x"; done`)
			s.expect("ready")
			c.end(s, socket)
			if code := s.end(); code != c.code {
				t.Errorf("exit code %d, want %d; terminal:\n%q", code, c.code, s.text())
			}
			if s.raw() {
				t.Error("the terminal was left in raw mode")
			}
		})
	}
	t.Run("nothing started", func(t *testing.T) {
		socket := start(t)
		s := open(t, "run", "shell", "--socket", socket, "--tty", "--", "/nonexistent")
		s.expect("/nonexistent")
		if code := s.end(); code != 127 || s.raw() {
			t.Errorf("exit code %d, raw %v", code, s.raw())
		}
	})
	t.Run("policyd dies", func(t *testing.T) {
		f := &clitest.Fake{OnRun: func(st grpc.BidiStreamingServer[apiv1.RunRequest, apiv1.RunResponse]) error {
			if _, err := st.Recv(); err != nil {
				return err
			}
			_ = st.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Started{Started: &apiv1.Sandbox{Id: "abc"}}})
			_ = st.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: []byte("ready")}})
			<-st.Context().Done()
			return st.Context().Err()
		}}
		f.Serve(t)
		s := open(t, "run", "shell", "--socket", f.Socket, "--tty", "--", "sh")
		s.expect("ready")
		f.Stop()
		s.expect("sandbox abc")
		if code := s.end(); code != 125 || s.raw() {
			t.Errorf("exit code %d, raw %v", code, s.raw())
		}
	})
}

// At a terminal without --tty, ^C is for the program; a second one ends all.
func TestInterruptTwice(t *testing.T) {
	socket := start(t)
	s := open(t, "run", "shell", "--socket", socket, "--dir", "/", "--", "/bin/sh", "-c", `trap "echo once" INT; (trap "" INT; sleep 1000) & echo ready; while :; do sleep 0.05; done`)
	s.expect("ready")
	s.typed("\x03")
	s.expect("once")
	s.typed("\x03")
	s.expect("interrupted again")
	if code := s.end(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
}

// top redraws on the terminal's other screen and gives it back on ^C.
func TestTopAtTerminal(t *testing.T) {
	f := &clitest.Fake{OnUsage: func(context.Context, *apiv1.UsageRequest) (*apiv1.UsageResponse, error) {
		u := &apiv1.UsageResponse_Usage{Sandbox: &apiv1.Sandbox{Id: "abc", Policy: "web", Version: 3, Argv: []string{"sleep", "\x1b[2J"}}, Processes: 2, CpuUsec: uint64(time.Now().UnixMicro() % 1e9)}
		return &apiv1.UsageResponse{Usages: []*apiv1.UsageResponse_Usage{u}}, nil
	}}
	f.Serve(t)
	s := open(t, "top", "--socket", f.Socket, "--interval", "100ms")
	s.expect(screenOn)
	s.expect("web@3")
	s.expect("100.") // a second look knows how much CPU it uses: all
	s.typed("\x03")
	s.expect(screenOff)
	if code := s.end(); code != cli.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(s.text(), "\x1b[2J") {
		t.Error("a command line reached the terminal with its escapes")
	}
}

// ^C while a change is on its way: the first waits and tells the outcome, the
// second leaves and tells how to learn it.
func TestInterruptDuringApply(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shell.yaml")
	if err := os.WriteFile(file, []byte(shellPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		times int
		code  int
		want  string
	}{
		{"once", 1, 0, "policy/shell@1 created"},
		{"twice", 2, cli.ExitInterrupted, "--request-id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrived, answer := make(chan struct{}, 1), make(chan struct{})
			f := &clitest.Fake{OnApply: func(_ context.Context, r *apiv1.ApplyRequest) (*apiv1.ApplyResponse, error) {
				arrived <- struct{}{}
				<-answer
				return &apiv1.ApplyResponse{Results: []*apiv1.ApplyResponse_Result{{
					Version: &apiv1.VersionInfo{Kind: "LandlockPolicy", Name: "shell", Number: 1}, Outcome: apiv1.ApplyResponse_OUTCOME_CREATED,
				}}}, nil
			}}
			f.Serve(t)
			s := open(t, "apply", "--socket", f.Socket, "-f", file)
			<-arrived
			s.typed("\x03")
			s.expect("waiting for policyd")
			if c.times == 2 {
				s.typed("\x03")
			} else {
				close(answer)
			}
			s.expect(c.want)
			if code := s.end(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if c.times == 2 {
				close(answer)
			}
		})
	}
}
