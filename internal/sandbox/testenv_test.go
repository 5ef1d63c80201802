package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/store/storetest"
)

// The test binary is also the supervisor of the sandboxes it starts, and the policyd
// that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		os.Exit(spawn.Supervise())
	}
	if dir := os.Getenv(crashEnv); dir != "" {
		os.Exit(crashMain(dir))
	}
	os.Exit(m.Run())
}

// containments are the ways to hold descendants; each test of them runs with all that
// can be had.
var containments = []string{"cgroup", "supervisor"}

// eachContainment runs f as a subtest with each containment.
func eachContainment(t *testing.T, f func(t *testing.T, containment string)) {
	for _, c := range containments {
		t.Run(c, func(t *testing.T) { f(t, c) })
	}
}

func testContainment(t testing.TB, name, cgroupRoot string) spawn.Containment {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := spawn.DetectContainment(spawn.Options{CgroupRoot: cgroupRoot, Launcher: exe, Supervisor: name == "supervisor"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != name {
		testkernel.Skip(t, "a cgroup (version 2) this user can write", "run as root, or in a delegated scope of systemd")
	}
	return c
}

// testCgroupRoot is a folder for groups that no other test uses.
func testCgroupRoot(t testing.TB) string {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			continue
		}
		root := filepath.Join(mount, "policyd-test-"+newID())
		if os.Mkdir(root, 0o755) == nil {
			t.Cleanup(func() {
				if err := os.Remove(root); err != nil {
					t.Errorf("groups are left: %v", err)
				}
			})
			return root
		}
	}
	return "" // what spawn finds, or nothing
}

func testConfig(t testing.TB, containment string) Config {
	t.Helper()
	dir := t.TempDir()
	root := ""
	if containment == "cgroup" {
		root = testCgroupRoot(t)
	}
	sup := landlock.Probe()
	if sup.State != landlock.Available {
		testkernel.Skip(t, "Landlock", "use a kernel with CONFIG_SECURITY_LANDLOCK and landlock in lsm=")
	}
	return Config{
		StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"),
		Store: storetest.Open(t), Support: sup, CgroupRoot: root,
		Containment: testContainment(t, containment, root),
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
		HangupGrace: 300 * time.Millisecond,
	}
}

func newTestManager(t testing.TB, cfg Config) *Manager {
	t.Helper()
	m, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopAll(t, m) })
	return m
}

// stopAll ends every sandbox and then the manager.
func stopAll(t testing.TB, m *Manager) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, b := range m.all() {
		if err := m.Signal(b.id, 0, true); err != nil && !errors.Is(err, errs.ErrNotRunning) && !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("kill %s: %v", b.id, err)
		}
	}
	for _, b := range m.all() {
		select {
		case <-b.done:
		case <-m.life.Done():
		case <-ctx.Done():
			t.Errorf("sandbox %s does not end", b.id)
		}
	}
	if err := m.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// testProfile lets everything be read and executed, and writes be made below dir and
// to devices, nowhere else.
func testProfile(t testing.TB, dir string) (*profile.Profile, string) {
	t.Helper()
	const abi = 1
	all := profile.Handled(profile.FS, abi)
	read := profile.FSExecute | profile.FSReadFile | profile.FSReadDir
	b := profile.NewBuilder([]profile.Layer{{Name: "test", FS: all}})
	b.AddPath(0, "/", read, false, profile.Fail)
	b.AddPath(0, "/dev", read|profile.FSWriteFile, false, profile.Fail)
	b.AddPath(0, dir, all, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.Name, p.ABI = "web", abi
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p, profile.Digest(p.Encode())
}

func testRequest(t testing.TB, dir string, argv ...string) *Request {
	t.Helper()
	p, digest := testProfile(t, dir)
	return &Request{
		Spec:    &apiv1.SandboxSpec{Ref: "web", Argv: argv},
		Version: &apiv1.VersionInfo{Name: "web", Number: 3, Digest: "sha256:" + strings.Repeat("0", 64)},
		Profile: p, ProfileDigest: digest, Owner: fmt.Sprintf("uid:%d", os.Geteuid()), OwnerUID: uint32(os.Geteuid()),
	}
}

func shell(t testing.TB, dir, script string, args ...string) *Request {
	t.Helper()
	return testRequest(t, dir, append([]string{"/bin/sh", "-c", script, "sh"}, args...)...)
}

// output collects what an attached sandbox says.
type output struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	exit           *apiv1.ExitStatus
	changed        chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{}, 1)} }

func (o *output) send(r *apiv1.RunResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.exit != nil {
		return errors.New("message after exit")
	}
	o.stdout.Write(r.GetStdout())
	o.stderr.Write(r.GetStderr())
	o.exit = r.GetExit()
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stdout.String()
}

// await waits until the output holds want.
func (o *output) await(t testing.TB, want string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !strings.Contains(o.text(), want) {
		select {
		case <-o.changed:
		case <-deadline:
			t.Fatalf("no %q in the output %q", want, o.text())
		}
	}
}

// attach runs an attached sandbox whose output is collected meanwhile; finished tells
// what Stream said.
func attach(t testing.TB, m *Manager, r *Request) (a *Attached, o *output, finished <-chan error) {
	t.Helper()
	a, err := m.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	o = newOutput()
	done := make(chan error, 1)
	go func() { done <- a.Stream(t.Context(), o.send) }()
	return a, o, done
}

func awaitEnd(t testing.TB, finished <-chan error) {
	t.Helper()
	select {
	case err := <-finished:
		if err != nil {
			t.Fatalf("stream: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the sandbox does not end")
	}
}

// run runs an attached sandbox with the given input to its end.
func run(t testing.TB, m *Manager, r *Request, stdin string) *output {
	t.Helper()
	a, o, finished := attach(t, m, r)
	if err := a.WriteStdin([]byte(stdin)); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, finished)
	return o
}

// logText is the kept output of a detached sandbox.
func logText(t testing.TB, m *Manager, id string) (stdout, stderr string) {
	t.Helper()
	err := m.Logs(t.Context(), id, LogOptions{}, func(r *apiv1.LogsResponse) error {
		stdout += string(r.GetStdout())
		stderr += string(r.GetStderr())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
