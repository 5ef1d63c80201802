package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/testkernel"
)

// built tells that programs has made something.
var built atomic.Bool

// programs builds the three commands and gives their folder.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "policyd-runc"); err != nil {
		return "", err
	}
	built.Store(true)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "../policyd", "../policyd-launch", "../policyd-runc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// startPolicyd runs the real one with those policies.
func startPolicyd(t testing.TB, dir string) (socket string) {
	t.Helper()
	empty := filepath.Join(dir, "policyd.yaml")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin+"/policyd", "--config", empty, "--state-dir", dir+"/policyd")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("policyd: %s", out.String())
		}
	})
	socket = dir + "/policyd/run/policyd.sock"
	c, err := cli.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for c.Ready(ctx) != nil && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := c.Policies.Apply(ctx, &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p", Content: []byte(policies)}}}); err != nil {
		t.Fatal(err)
	}
	return socket
}

// engine calls the wrapper as an engine does.
type engine struct {
	t       testing.TB
	dir     string
	runtime string
	n       int
}

func newEngine(t testing.TB, dir, runtime, socket string) *engine {
	t.Helper()
	path := testkernel.RequireTool(t, runtime, "apt-get install "+runtime)
	e := &engine{t: t, dir: filepath.Join(dir, runtime), runtime: runtime}
	e.put("runc.yaml", fmt.Sprintf("runtime: %s\nsocket: %s\nstate: %s\nrecords: %s\n", path, socket, e.dir+"/state", e.dir+"/run/containers"), 0o644)
	return e
}

func (e *engine) put(name, text string, mode os.FileMode) string {
	e.t.Helper()
	path := filepath.Join(e.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		e.t.Fatal(err)
	}
	return path
}

// call runs the wrapper.
func (e *engine) call(args ...string) (code int, stdout, stderr string) {
	e.t.Helper()
	bin, err := programs()
	if err != nil {
		e.t.Fatal(err)
	}
	return e.callRuntime(bin+"/policyd-runc", args...)
}

// argv is a runtime's command line; crun refuses hybrid cgroups, so it does not get to see them.
func (e *engine) argv(program string, args ...string) []string {
	argv := append([]string{program, "--root", e.dir + "/root"}, args...)
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err == nil && e.runtime == "crun" {
		argv = append([]string{"unshare", "-m", "sh", "-c", `umount -l /sys/fs/cgroup/unified; exec "$@"`, "sh"}, argv...)
	}
	return argv
}

// callRuntime runs a runtime.
func (e *engine) callRuntime(program string, args ...string) (code int, stdout, stderr string) {
	e.t.Helper()
	argv := e.argv(program, args...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also when the test ends
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), configEnv+"="+e.dir+"/runc.yaml")
	// Files and not pipes: a container that goes on running would hold those.
	out, err := os.CreateTemp(e.t.TempDir(), "out")
	if err != nil {
		e.t.Fatal(err)
	}
	defer out.Close()
	errOut, err := os.CreateTemp(e.t.TempDir(), "err")
	if err != nil {
		e.t.Fatal(err)
	}
	defer errOut.Close()
	cmd.Stdout, cmd.Stderr = out, errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		e.t.Fatal(err)
	}
	o, _ := os.ReadFile(out.Name())
	eo, _ := os.ReadFile(errOut.Name())
	return cmd.ProcessState.ExitCode(), string(o), string(eo)
}

// bundle makes a root file system of busybox with a secret, and a config.json for it.
func (e *engine) bundle(annotation string, change func(spec map[string]any), argv ...string) (dir string) {
	e.t.Helper()
	e.n++
	name := fmt.Sprintf("bundle-%d", e.n)
	busybox := testkernel.RequireTool(e.t, "busybox", "apt-get install busybox-static")
	own := filepath.Join(e.dir, "busybox")
	if _, err := os.Stat(own); err != nil {
		program, err := os.ReadFile(busybox)
		if err != nil {
			e.t.Fatal(err)
		}
		e.put("busybox", string(program), 0o755)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(e.dir, name, "rootfs/bin"), 0o755), os.Link(own, filepath.Join(e.dir, name, "rootfs/bin/busybox"))); err != nil {
		e.t.Fatal(err)
	}
	for _, applet := range []string{"sh", "cat", "id", "true", "sleep", "tr", "ls", "grep", "echo", "mv", "rm"} {
		if err := os.Symlink("busybox", filepath.Join(e.dir, name, "rootfs/bin", applet)); err != nil {
			e.t.Fatal(err)
		}
	}
	for _, place := range []string{"proc", "dev", "sys"} { // in a user namespace nobody may make them
		if err := os.Mkdir(filepath.Join(e.dir, name, "rootfs", place), 0o755); err != nil {
			e.t.Fatal(err)
		}
	}
	e.put(name+"/rootfs/secret", "told\n", 0o644)
	e.put(name+"/rootfs/data/open", "open\n", 0o644)
	text, err := os.ReadFile("../../enforce/oci/testdata/runc-spec.json")
	if err != nil {
		e.t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		e.t.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, argv
	// More than the machine of the tests may allow.
	delete(process, "rlimits")
	if annotation != "" {
		spec["annotations"] = map[string]any{"policyd.dev/profile": annotation}
	}
	if change != nil {
		change(spec)
	}
	text, err = json.Marshal(spec)
	if err != nil {
		e.t.Fatal(err)
	}
	e.put(name+"/config.json", string(text), 0o644)
	return filepath.Join(e.dir, name)
}

func (e *engine) id() string {
	return fmt.Sprintf("policyd-test-%d-%s-%d", os.Getpid(), e.runtime, e.n)
}

func (e *engine) run(annotation string, change func(map[string]any), argv ...string) (code int, stdout, stderr string) {
	e.t.Helper()
	dir := e.bundle(annotation, change, argv...)
	code, stdout, stderr = e.call("run", "--bundle", dir, e.id())
	if left := tree(e.t, dir+"/rootfs"); strings.Contains(left, "policyd") {
		e.t.Errorf("left in the root file system: %s", left)
	}
	return code, stdout, stderr
}

func tree(t testing.TB, dir string) string {
	t.Helper()
	var all []string
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(path, dir))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
