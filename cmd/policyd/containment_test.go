package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/testkernel"
)

// sleeper applies the policy and starts a sandbox that sleeps.
func (p *process) sleeper() *apiv1.Sandbox {
	p.t.Helper()
	conn := p.dial()
	if _, err := apiv1.NewPolicyServiceClient(conn).Apply(ctx(p.t), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p", Content: []byte(sleepPolicy)}}}); err != nil {
		p.t.Fatal(err)
	}
	started, err := apiv1.NewSandboxServiceClient(conn).Start(ctx(p.t), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "sleep", Argv: []string{"/bin/sleep", "300"}}})
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.out)
	}
	pid := int(started.GetSandbox().GetPid())
	p.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return started.GetSandbox()
}

func (p *process) state(id string) apiv1.SandboxState {
	p.t.Helper()
	got, err := apiv1.NewSandboxServiceClient(p.dial()).GetSandbox(ctx(p.t), &apiv1.GetSandboxRequest{Id: id})
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.out)
	}
	return got.GetSandbox().GetState()
}

// end ends a sandbox with all its processes.
func (p *process) end(id string) {
	p.t.Helper()
	boxes := apiv1.NewSandboxServiceClient(p.dial())
	if _, err := boxes.Signal(ctx(p.t), &apiv1.SignalRequest{Id: id, All: true}); err != nil {
		p.t.Fatalf("%v\n%s", err, p.out)
	}
	if _, err := boxes.Wait(ctx(p.t), &apiv1.WaitRequest{Id: id}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) stop(sig syscall.Signal) {
	p.t.Helper()
	p.signal(sig)
	if code := p.ended(); sig == syscall.SIGTERM && code != exitOK {
		p.t.Errorf("exit %d\n%s", code, p.out)
	}
}

// groupOf is the folder of a sandbox's cgroup; without one the test is skipped.
func groupOf(t *testing.T, sb *apiv1.Sandbox) string {
	t.Helper()
	if !filepath.IsAbs(sb.GetGroup()) {
		testkernel.Skip(t, "a cgroup (version 2) this user can write", "run as root, or in a delegated scope of systemd")
	}
	return sb.GetGroup()
}

// gone tells whether there is no such folder soon: nobody waits for the tidying up.
func gone(path string) bool {
	for range 500 {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// Two policyds in one cgroup leave each other's sandboxes alone, whatever happens to
// one of them, and a folder of groups goes with its last group.
func TestTwoPolicyds(t *testing.T) {
	needLandlock(t)
	dirs := [2]string{folder(t), folder(t)}
	var p [2]*process
	var box [2]*apiv1.Sandbox
	var roots [2]string
	for i, dir := range dirs {
		p[i] = launch(t, dir)
		box[i] = p[i].sleeper()
		roots[i] = filepath.Dir(groupOf(t, box[i]))
	}
	if roots[0] == roots[1] || filepath.Dir(roots[0]) != filepath.Dir(roots[1]) {
		t.Fatalf("folders of groups: %q", roots)
	}
	p[0].stop(syscall.SIGKILL)
	p[0] = launch(t, dirs[0])
	p[1].stop(syscall.SIGTERM)
	p[1] = launch(t, dirs[1])
	for i := range p {
		if s := p[i].state(box[i].GetId()); s != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
			t.Errorf("sandbox of policyd %d is %v\n%s", i, s, p[i].out)
		}
	}
	p[0].end(box[0].GetId())
	p[0].stop(syscall.SIGTERM)
	if !gone(roots[0]) {
		t.Errorf("%s is left", roots[0])
	}
	if s := p[1].state(box[1].GetId()); s != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("the other policyd's sandbox is %v", s)
	}
	p[1].end(box[1].GetId())
	p[1].stop(syscall.SIGTERM)
	if !gone(roots[1]) {
		t.Errorf("%s is left", roots[1])
	}
}

// What a killed policyd leaves that belongs to no sandbox is gone after the next start:
// folders, and processes that were never acknowledged.
func TestSweep(t *testing.T) {
	needLandlock(t)
	dir := folder(t)
	p := launch(t, dir)
	box := p.sleeper()
	root := filepath.Dir(groupOf(t, box))
	p.stop(syscall.SIGKILL)

	id := func(c string) string { return strings.Repeat(c, len(box.GetId())) }
	left := []string{filepath.Join(root, id("a")), filepath.Join(root, id("b")), filepath.Join(root, "probe-1-x")}
	for _, path := range left {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	orphan := exec.Command("/bin/sleep", "300")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- orphan.Wait() }()
	t.Cleanup(func() { _ = orphan.Process.Kill() })
	if err := os.WriteFile(filepath.Join(left[0], "cgroup.procs"), []byte(strconv.Itoa(orphan.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}

	p = launch(t, dir)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Errorf("a process of no known sandbox is left\n%s", p.out)
	}
	for _, path := range left {
		if !gone(path) {
			t.Errorf("%s is left", path)
		}
	}
	if s := p.state(box.GetId()); s != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("the known sandbox is %v\n%s", s, p.out)
	}
	p.end(box.GetId())
	p.stop(syscall.SIGTERM)
	if !gone(root) {
		t.Errorf("%s is left", root)
	}
}

// A policyd that is started again in another cgroup finds its sandboxes in the old one.
func TestOtherCgroup(t *testing.T) {
	needLandlock(t)
	dir := folder(t)
	p := launch(t, dir)
	box := p.sleeper()
	root := filepath.Dir(groupOf(t, box))
	p.stop(syscall.SIGKILL)

	other := filepath.Join(filepath.Dir(root), "other-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(other); err != nil {
			t.Error(err)
		}
	})
	in, err := os.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p = command(t, dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(in.Fd())}
	p.run()
	second := p.sleeper()
	if g := groupOf(t, second); filepath.Dir(filepath.Dir(g)) != other {
		t.Errorf("group %s is not below %s", g, other)
	}
	for _, sb := range []*apiv1.Sandbox{box, second} {
		if s := p.state(sb.GetId()); s != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
			t.Errorf("sandbox is %v\n%s", s, p.out)
		}
		p.end(sb.GetId())
		if !gone(sb.GetGroup()) {
			t.Errorf("%s is left", sb.GetGroup())
		}
	}
	p.stop(syscall.SIGTERM)
	if !gone(root) {
		t.Errorf("%s is left", root)
	}
}

func needLandlock(t *testing.T) {
	t.Helper()
	if _, err := testkernel.ABI(); err != nil {
		testkernel.Skip(t, "Landlock", "use a kernel with CONFIG_SECURITY_LANDLOCK and landlock in lsm=")
	}
}
