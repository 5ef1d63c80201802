package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
)

const daemonEnv = "POLICYD_TEST_DAEMON"

// The test binary is also the daemon, and the supervisor of its sandboxes.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "supervise":
		os.Exit(spawn.Supervise())
	case os.Getenv(daemonEnv) != "":
		killedWriting(os.Getenv(killEnv))
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// process is a policyd.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *buffer
	notify *net.UnixConn
	dir    string
	done   chan struct{}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// launch starts policyd with a state folder below dir and waits until it says that it is ready.
func launch(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := command(t, dir, args...)
	p.run()
	return p
}

// run starts a policyd that was made by command and waits until it says that it is ready.
func (p *process) run() {
	p.t.Helper()
	p.listen()
	p.told("READY=1")
}

// listen starts a policyd that was made by command, as its service manager.
func (p *process) listen() {
	t := p.t
	t.Helper()
	path := filepath.Join(p.dir, fmt.Sprintf("n%d", time.Now().UnixNano()))
	var err error
	if p.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.notify.Close() })
	p.cmd.Env = append(p.cmd.Env, "NOTIFY_SOCKET="+path)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its state is looked at
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
}

func command(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	// --config keeps the machine's own file out, unless the test gives one.
	if !strings.Contains(strings.Join(args, " "), "--config") {
		empty := filepath.Join(dir, "empty.yaml")
		if err := os.WriteFile(empty, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", empty}, args...)
	}
	args = append([]string{"--state-dir", filepath.Join(dir, "state")}, args...)
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), out: &buffer{}, dir: dir, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), daemonEnv+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	return p
}

// told waits for a line to the service manager.
func (p *process) told(line string) {
	p.t.Helper()
	b := make([]byte, 4096)
	for {
		if err := p.notify.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			p.t.Fatal(err)
		}
		n, err := p.notify.Read(b)
		if err != nil {
			p.t.Fatalf("policyd did not say %s: %v\n%s", line, err, p.out)
		}
		if strings.Contains(string(b[:n]), line) {
			return
		}
	}
}

// logs waits for a word in the log, which comes through a pipe.
func (p *process) logs(want string) {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(p.out.String(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the log lacks %q:\n%s", want, p.out)
		}
	}
}

func (p *process) socket() string { return filepath.Join(p.dir, "state", "run", "policyd.sock") }

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// ended waits for the end and returns the exit code.
func (p *process) ended() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("policyd does not end\n%s", p.out)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) dial() *grpc.ClientConn {
	return dial(p.t, "unix://"+p.socket(), insecure.NewCredentials())
}

func dial(t *testing.T, target string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return c
}

func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pd") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

const sleepPolicy = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: sleep}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read, execute], at: [/usr, /etc]}
        - {allow: [read, execute], at: [/lib, /lib64, /bin], missing: skip}
`

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, exitOK, "Examples:"},
		{[]string{"-h"}, exitOK, "--state-dir DIR"},
		{[]string{"--version"}, exitOK, "policyd "},
		{[]string{"--bogus"}, exitUsage, "policyd --help"},
		{[]string{"extra"}, exitUsage, `unexpected argument "extra"`},
		{[]string{"--config", "/nonexistent/policyd.yaml"}, exitConfig, "no such file"},
		{[]string{"--listen", "unix-abstract:x"}, exitUsage, "abstract"},
		{[]string{"--listen", "unix://@x"}, exitUsage, "abstract"},
		{[]string{"--listen", "tcp://:80"}, exitUsage, "tcp section"},
		{[]string{"--listen", "relative"}, exitUsage, "not absolute"},
		{[]string{"--socket-mode", "rw"}, exitUsage, "octal"},
	} {
		var out bytes.Buffer
		args := tc.args
		if tc.code == exitUsage && args[0] != "--config" {
			empty := filepath.Join(t.TempDir(), "empty.yaml")
			if err := os.WriteFile(empty, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			args = append([]string{"--config", empty}, args...)
		}
		if code := run(args, &out, &out); code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%v: exit %d, %q; want %d, %q", tc.args, code, &out, tc.code, tc.want)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("log:\n  level: loud\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run([]string{"--config", bad}, &out, &out); code != exitConfig || !strings.Contains(out.String(), bad+":2:10: log.level") {
		t.Errorf("exit %d, %q", code, &out)
	}
}

// The whole life: ready, a second one refused, stopped and killed with a sandbox that goes on.
func TestLife(t *testing.T) {
	needLandlock(t)
	dir := folder(t)
	p := launch(t, dir)
	info, err := os.Stat(p.socket())
	if want := map[bool]fs.FileMode{true: 0o660, false: 0o600}[os.Geteuid() == 0]; err != nil || info.Mode().Perm() != want {
		t.Errorf("socket: %v, %v, want %v", info, err, want)
	}
	policies, boxes := apiv1.NewPolicyServiceClient(p.dial()), apiv1.NewSandboxServiceClient(p.dial())
	if _, err := policies.Apply(ctx(t), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p", Content: []byte(sleepPolicy)}}}); err != nil {
		t.Fatal(err)
	}
	started, err := boxes.Start(ctx(t), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "sleep", Argv: []string{"/bin/sleep", "300"}}})
	if err != nil {
		t.Fatal(err)
	}
	sb := started.GetSandbox()
	t.Cleanup(func() { _ = syscall.Kill(int(sb.GetPid()), syscall.SIGKILL) })

	second := command(t, dir)
	err = second.cmd.Run()
	if second.cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(second.out.String(), "store is held by another policyd") {
		t.Errorf("a second policyd: %v, %s", err, second.out)
	}

	for _, end := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGKILL, -1}, {syscall.SIGTERM, exitOK}, {syscall.SIGINT, exitOK}} {
		p.signal(end.sig)
		if end.code == exitOK {
			p.told("STOPPING=1")
		}
		if code := p.ended(); code != end.code {
			t.Fatalf("%v: exit %d\n%s", end.sig, code, p.out)
		}
		if _, err := os.Lstat(p.socket()); end.code == exitOK && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: the socket is left: %v", end.sig, err)
		}
		p = launch(t, dir)
		got, err := apiv1.NewSandboxServiceClient(p.dial()).GetSandbox(ctx(t), &apiv1.GetSandboxRequest{Id: sb.GetId()})
		if err != nil || got.GetSandbox().GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING || got.GetSandbox().GetPid() != sb.GetPid() {
			t.Fatalf("after %v: %v, %v\n%s", end.sig, got, err, p.out)
		}
	}
	boxes = apiv1.NewSandboxServiceClient(p.dial())
	if _, err := boxes.Signal(ctx(t), &apiv1.SignalRequest{Id: sb.GetId(), All: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := boxes.Wait(ctx(t), &apiv1.WaitRequest{Id: sb.GetId()}); err != nil {
		t.Error(err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != exitOK {
		t.Errorf("exit %d\n%s", code, p.out)
	}
}

func TestReload(t *testing.T) {
	dir := folder(t)
	file := filepath.Join(dir, "policyd.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: info}\n")
	p := launch(t, dir, "--config", file)
	hup := func(want string) {
		t.Helper()
		p.signal(syscall.SIGHUP)
		p.told("RELOADING=1")
		p.told("READY=1")
		p.logs(want)
	}
	write("log: {level: debug}\nstore: {keepVersions: 7}\n")
	hup(`"key":"store"`)
	if _, err := apiv1.NewAdminServiceClient(p.dial()).Status(ctx(t), &apiv1.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	p.logs("AdminService/Status") // at level debug
	write("log: {level: loud}\n")
	hup("nothing is changed")
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != exitOK {
		t.Errorf("exit %d\n%s", code, p.out)
	}
}

// A folder others can write in, or a socket somebody listens on, is refused in words.
func TestRefusesToStart(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(dir string) []string
		want    string
	}{
		"open state folder": {func(dir string) []string {
			state := filepath.Join(dir, "state")
			if err := os.Mkdir(state, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(state, 0o777); err != nil {
				t.Fatal(err)
			}
			return nil
		}, "others can write in folder"},
		"long socket": {func(string) []string { return []string{"--listen", "/tmp/" + strings.Repeat("x", 120)} }, "the kernel takes 107"},
		"live socket": {func(dir string) []string {
			path := filepath.Join(dir, "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return []string{"--listen", "unix://" + path}
		}, "another program is listening there"},
		"state is a file": {func(dir string) []string {
			if err := os.WriteFile(filepath.Join(dir, "state"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return nil
		}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			p := command(t, dir, tc.prepare(dir)...)
			err := p.cmd.Run()
			if p.cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(p.out.String(), tc.want) {
				t.Errorf("%v: %s; want %q", err, p.out, tc.want)
			}
			if strings.Contains(p.out.String(), "broken off") {
				t.Errorf("requests of nobody are spoken of: %s", p.out)
			}
		})
	}
}
