package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// serviceManager starts one policyd after another on a socket that stays, and keeps descriptors in between, as systemd does.
type serviceManager struct {
	t      *testing.T
	dir    string
	socket *os.File
	notify *net.UnixConn
	env    []string

	mu     sync.Mutex
	kept   map[string]*os.File
	ready  chan struct{}
	policy *process
}

func newServiceManager(t *testing.T, env ...string) *serviceManager {
	t.Helper()
	needLandlock(t)
	s := &serviceManager{t: t, dir: folder(t), env: env, kept: map[string]*os.File{}, ready: make(chan struct{}, 1)}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path("policyd.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if s.socket, err = l.File(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	t.Cleanup(func() { s.socket.Close() })
	if s.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path("notify"), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.listen()
	}()
	t.Cleanup(func() {
		s.notify.Close()
		<-done
		for _, f := range s.kept {
			f.Close()
		}
	})
	if err := os.WriteFile(s.path("policyd.yaml"), []byte("stopDeadline: 300ms\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	policy := fmt.Sprintf(sleepPolicy+"        - {allow: [read], at: [%s]}\n        - {allow: [read, write], at: [/dev/null, /dev/tty, /dev/pts]}\n        - {allow: [read], at: [/proc]}\n", s.dir)
	s.apply(policy)
	return s
}

func (s *serviceManager) path(name string) string { return filepath.Join(s.dir, name) }

func (s *serviceManager) apply(policy string) {
	s.t.Helper()
	c := s.client()
	if _, err := c.Policies.Apply(ctx(s.t), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p", Content: []byte(policy)}}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *serviceManager) client() *cli.Client {
	c, err := cli.Dial(s.path("policyd.sock"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// listen acts on what it is told (sd_notify(3), sd_pid_notify_with_fds(3)).
func (s *serviceManager) listen() {
	text, oob := make([]byte, 4096), make([]byte, 4096)
	for {
		n, oobn, _, _, err := s.notify.ReadMsgUnix(text, oob)
		if err != nil {
			return
		}
		var files []*os.File
		if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
			for _, m := range messages {
				fds, err := unix.ParseUnixRights(&m)
				if err != nil {
					continue
				}
				for _, fd := range fds {
					unix.CloseOnExec(fd)
					files = append(files, os.NewFile(uintptr(fd), "kept"))
				}
			}
		}
		lines := strings.Split(string(text[:n]), "\n")
		name := ""
		for _, l := range lines {
			if v, ok := strings.CutPrefix(l, "FDNAME="); ok {
				name = v
			}
		}
		s.mu.Lock()
		switch {
		case slices.Contains(lines, "FDSTORE=1") && len(files) == 1:
			if !slices.Contains(lines, "FDPOLL=0") {
				s.t.Error("systemd would drop a pipe whose program has ended")
			}
			s.kept[name], files = files[0], nil
		case slices.Contains(lines, "FDSTOREREMOVE=1"):
			if f := s.kept[name]; f != nil {
				f.Close()
				delete(s.kept, name)
			}
		case slices.Contains(lines, "READY=1"):
			select {
			case s.ready <- struct{}{}:
			default:
			}
		}
		s.mu.Unlock()
		for _, f := range files {
			f.Close() // of a barrier
		}
	}
}

func (s *serviceManager) keeps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}

// start starts the next policyd and waits until it is ready.
func (s *serviceManager) start() {
	s.t.Helper()
	p := command(s.t, s.dir, "--config", s.path("policyd.yaml"))
	// LISTEN_PID is of the process that the shell becomes.
	shell := exec.Command("/bin/sh", append([]string{"-c", `export LISTEN_PID=$$; exec "$0" "$@"`}, p.cmd.Args...)...)
	shell.ExtraFiles = []*os.File{s.socket}
	names := []string{"policyd.socket"}
	s.mu.Lock()
	for name, f := range s.kept {
		shell.ExtraFiles = append(shell.ExtraFiles, f)
		names = append(names, name)
	}
	s.mu.Unlock()
	shell.Env = append(p.cmd.Env, "NOTIFY_SOCKET="+s.path("notify"), fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	shell.Env = append(shell.Env, s.env...)
	shell.Stdout, shell.Stderr = p.out, p.out
	p.cmd = shell
	s.mu.Lock() // it uses what listen closes afterwards
	err := p.cmd.Start()
	s.mu.Unlock()
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its state is looked at
		close(p.done)
	}()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if s.t.Failed() {
			s.t.Log(p.out)
		}
	})
	s.policy = p
	select {
	case <-s.ready:
	case <-time.After(20 * time.Second):
		s.t.Fatalf("policyd is not ready\n%s", p.out)
	}
}

// stop is the first half of a restart.
func (s *serviceManager) stop() {
	s.t.Helper()
	s.policy.signal(syscall.SIGWINCH)
	s.policy.signal(syscall.SIGTERM)
	if code := s.policy.ended(); code != exitOK {
		s.t.Fatalf("policyd ends with %d\n%s", code, s.policy.out)
	}
}

// attachedRun is a policyctl run.
type attachedRun struct {
	t       *testing.T
	id      chan string
	out     *buffer
	errOut  *buffer
	notices *buffer
	signals chan os.Signal
	done    chan struct{}
	exit    *apiv1.ExitStatus
	err     error
}

func (s *serviceManager) run(spec *apiv1.SandboxSpec, stdin io.Reader, stdout io.Writer) *attachedRun {
	r := &attachedRun{t: s.t, id: make(chan string, 1), out: &buffer{}, errOut: &buffer{}, notices: &buffer{}, signals: make(chan os.Signal, 4), done: make(chan struct{})}
	if stdout == nil {
		stdout = r.out
	}
	spec.Ref, spec.Environment = "sleep", []string{"PATH=/usr/bin:/bin"}
	at := &cli.Attached{
		Client: s.client(), Stdin: stdin, Stdout: stdout, Stderr: r.errOut, Signals: r.signals,
		Started: func(sb *apiv1.Sandbox) { r.id <- sb.GetId() },
		Notice:  func(format string, args ...any) { fmt.Fprintf(r.notices, format+"\n", args...) },
	}
	if spec.Terminal != nil {
		at.Window = func() *apiv1.Terminal { return &apiv1.Terminal{Rows: 33, Columns: 44} }
	}
	c, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.exit, r.err = at.Run(c, &apiv1.StartRequest{Spec: spec, RequestId: cli.RequestID()})
	}()
	s.t.Cleanup(func() { cancel(); <-r.done })
	return r
}

func (r *attachedRun) says(want string) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(r.out.String(), want); time.Sleep(5 * time.Millisecond) {
		select {
		case <-r.done:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		if !strings.Contains(r.out.String(), want) {
			r.t.Fatalf("no %q in %q (%v, %v)", want, r.out, r.exit, r.err)
		}
	}
}

func (r *attachedRun) ends(code int32) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		r.t.Fatalf("the client does not end; it has %.100q", r.out)
	}
	if r.err != nil || r.exit.GetCode() != code {
		r.t.Errorf("exit %v, %v; want %d", r.exit, r.err, code)
	}
}

// kernelTellsExits: from 6.15 on a pidfd tells how a process ended that others have waited for.
func kernelTellsExits() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil && info.Supported_mask&unix.PIDFD_INFO_EXIT != 0
}

// slowWriter takes what it gets only when it is let.
type slowWriter struct {
	mu  sync.Mutex
	b   bytes.Buffer
	let chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.let
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// TestAttachedSurvivesRestart: policyctl run goes on through restarts of policyd by a service manager that keeps descriptors.
func TestAttachedSurvivesRestart(t *testing.T) {
	s := newServiceManager(t, "POLICYD_FDSTORE=100")
	boxes := s.client().Sandboxes
	argv := func(script string, args ...string) *apiv1.SandboxSpec {
		return &apiv1.SandboxSpec{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
	}

	// Much in both directions.
	sent := make([]byte, 48<<20)
	_, _ = rand.Read(sent)
	input, feed := io.Pipe()
	big := s.run(&apiv1.SandboxSpec{Argv: []string{"cat"}}, input, nil)
	// One whose reader does not read, for longer than policyd waits.
	slow := &slowWriter{let: make(chan struct{})}
	let := sync.OnceFunc(func() { close(slow.let) })
	stuck := s.run(argv("seq 200000; echo end >&2"), nil, slow)
	t.Cleanup(let)
	// One that ends while no policyd runs, one that is signalled then, a terminal, and one to be forgotten.
	ends := s.run(argv(`echo begin; while ! [ -e "$1" ]; do sleep 0.02; done; echo bye; exit 7`, s.path("go")), nil, nil)
	forgotten := argv(`echo begin; cat; echo bye; exit 5`)
	forgotten.Remove = true
	quiet, closeQuiet := io.Pipe()
	rm := s.run(forgotten, quiet, nil)
	signalled := s.run(argv(`trap 'echo got usr1; exit 6' USR1; echo begin; while :; do sleep 0.02; done`), nil, nil)
	tty := argv(`trap 'stty size' WINCH; stty -echo; echo begin; while :; do read l && echo "line $l"; [ "$l" = quit ] && exit 3; done`)
	tty.Terminal = &apiv1.Terminal{Rows: 10, Columns: 20}
	keys, typing := io.Pipe()
	terminal := s.run(tty, keys, nil)
	// And one that runs detached.
	detached, err := boxes.Start(ctx(t), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "sleep", Argv: []string{"/bin/sleep", "1000"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*attachedRun{ends, rm, signalled, terminal} {
		r.says("begin")
	}
	<-stuck.id
	time.Sleep(100 * time.Millisecond) // it has sent what it can

	go func() {
		_, _ = feed.Write(sent)
		feed.Close()
	}()
	time.Sleep(10 * time.Millisecond)
	s.stop()
	if s.keeps() == 0 {
		t.Fatal("nothing was given to the service manager")
	}
	if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	signalled.signals <- syscall.SIGUSR1
	_, _ = typing.Write([]byte("typed meanwhile\n"))
	time.Sleep(200 * time.Millisecond)
	s.start()
	if n := s.keeps(); n != 0 {
		t.Errorf("%d descriptors are still kept: nobody would see that they end", n)
	}
	// What policyd took back is not for other programs.
	ls := s.run(&apiv1.SandboxSpec{Argv: []string{"ls", "/proc/self/fd"}}, nil, nil)
	ls.ends(0)
	if ls.out.String() != "0\n1\n2\n3\n" {
		t.Errorf("a program has the descriptors %q", ls.out)
	}
	signalled.ends(6)
	signalled.says("got usr1")
	if kernelTellsExits() {
		ends.ends(7)
	}
	ends.says("begin\nbye\n")
	terminal.says("33 44")
	terminal.says("line typed meanwhile")
	s.stop()
	s.start()
	closeQuiet.Close()
	rm.ends(5)
	rm.says("bye")
	_, _ = typing.Write([]byte("quit\n"))
	terminal.ends(3)
	let()
	stuck.ends(0)
	if lines := strings.Count(slow.b.String(), "\n"); lines != 200000 || !strings.HasSuffix(slow.b.String(), "\n200000\n") || stuck.errOut.String() != "end\n" {
		t.Errorf("%d lines, %q", lines, stuck.errOut)
	}
	big.ends(0)
	if !bytes.Equal([]byte(big.out.String()), sent) {
		t.Errorf("%d bytes came back of %d", len(big.out.String()), len(sent))
	}
	if !strings.Contains(big.notices.String(), "policyd restarts, sandbox "+<-big.id+" goes on") {
		t.Errorf("the person is told %q", big.notices)
	}
	if got, err := boxes.GetSandbox(ctx(t), &apiv1.GetSandboxRequest{Id: detached.GetSandbox().GetId()}); err != nil || got.GetSandbox().GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("detached: %v, %v", got, err)
	}
	_, _ = boxes.Signal(ctx(t), &apiv1.SignalRequest{Id: detached.GetSandbox().GetId(), All: true})
}

// TestAttachedEndsWithPolicyd: without the service manager's store, without the word that it is a restart, or when policyd is killed, attached
// sandboxes are hung up, and the client ends at once.
func TestAttachedEndsWithPolicyd(t *testing.T) {
	for name, tc := range map[string]struct {
		env     string
		signals []syscall.Signal
	}{
		"no store":      {"X=", []syscall.Signal{syscall.SIGWINCH, syscall.SIGTERM}},
		"store of none": {"POLICYD_FDSTORE=0", []syscall.Signal{syscall.SIGWINCH, syscall.SIGTERM}},
		"systemd's own": {"POLICYD_FDSTORE=100\x00FDSTORE=0", []syscall.Signal{syscall.SIGWINCH, syscall.SIGTERM}},
		"no number":     {"POLICYD_FDSTORE=many", []syscall.Signal{syscall.SIGWINCH, syscall.SIGTERM}},
		"too small":     {"POLICYD_FDSTORE=3", []syscall.Signal{syscall.SIGWINCH, syscall.SIGTERM}},
		"a stop":        {"POLICYD_FDSTORE=100", []syscall.Signal{syscall.SIGTERM}},
		"killed":        {"POLICYD_FDSTORE=100", []syscall.Signal{syscall.SIGKILL}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServiceManager(t, strings.Split(tc.env, "\x00")...)
			r := s.run(&apiv1.SandboxSpec{Argv: []string{"/bin/sh", "-c", "echo begin; exec sleep 1000"}}, nil, nil)
			r.says("begin")
			for _, sig := range tc.signals {
				s.policy.signal(sig)
			}
			s.policy.ended()
			if n := s.keeps(); n != 0 {
				t.Errorf("%d descriptors are kept", n)
			}
			s.start()
			select {
			case <-r.done:
			case <-time.After(20 * time.Second):
				t.Fatal("the client does not end")
			}
			if r.err == nil || errors.Is(r.err, context.Canceled) {
				t.Errorf("exit %v, %v", r.exit, r.err)
			}
			exit, err := s.client().Sandboxes.Wait(ctx(t), &apiv1.WaitRequest{Id: <-r.id})
			if e := exit.GetExit(); err != nil || e.GetSignal() != int32(syscall.SIGHUP) && kernelTellsExits() {
				t.Errorf("the sandbox: %v, %v", exit, err)
			}
		})
	}
}
