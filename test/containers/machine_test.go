// Package containers has the real engines start containers with policyd-runc as their runtime: podman, containerd by ctr,
// and Docker with a dockerd of its own. Each gets folders and sockets of its own.
//
//	machine_test.go  the namespaces it all runs in, policyd, a root file system
//	engine_test.go   what every engine's containers must show
//	podman_test.go, containerd_test.go, docker_test.go  how each engine is driven
//
// Root runs it in a mount and a PID namespace of its own: what engines leave in /run is gone afterwards, and whatever was
// started ends with the test, however that ends.
package containers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// built builds the programs and gives their folder.
var built = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(binDir, "bin")
	cmd := exec.Command("go", "build", "-o", dir+"/", "../../cmd/policyd", "../../cmd/policyctl", "../../cmd/policyd-launch", "../../cmd/policyd-runc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// binDir is a tmpfs of the mount namespace: it goes with that.
const binDir = "/run/policyd-test"

// insideEnv tells that this is the process within the namespaces.
const insideEnv = "POLICYD_TEST_CONTAINERS"

// The shell stays as the first process of the namespace and takes in those whose parent has ended.
const enter = `mount -t tmpfs -o mode=755 run /run && "$@"; exit $?`

func TestMain(m *testing.M) {
	unshare, err := exec.LookPath("unshare")
	if os.Geteuid() != 0 || err != nil || os.Getenv(insideEnv) != "" {
		os.Exit(m.Run())
	}
	args := []string{"--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", enter, "sh"}
	if exec.Command(unshare, append(args, "true")...).Run() != nil {
		os.Exit(m.Run()) // the tests say what they lack
	}
	cmd := exec.Command(unshare, append(append(args, os.Args[0]), os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// That of the thread counts (prctl(2), PR_SET_PDEATHSIG), and this one does nothing else.
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// machine is a folder with policyd, the programs and a root file system.
type machine struct {
	t   *testing.T
	dir string
	*cli.Client
}

// newMachine starts policyd. Its folder is a tmpfs: overlay file systems can stand on that wherever the tests run.
func newMachine(t *testing.T, busybox string) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	if err := unix.Mount("policyd", m.dir, "tmpfs", 0, "mode=755,size=1g"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bin, m.dir+"/bin"); err != nil {
		t.Fatal(err)
	}
	m.rootfs(busybox)

	m.put("policyd.yaml", "", 0o600)
	m.daemon(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return m.Ready(ctx)
	}, m.dir+"/bin/policyd", "--config", m.dir+"/policyd.yaml", "--state-dir", m.dir+"/policyd")
	return m
}

func (m *machine) socket() string { return m.dir + "/policyd/run/policyd.sock" }

// daemon runs a program until the test ends and waits until it is ready.
func (m *machine) daemon(ready func() error, argv ...string) {
	m.t.Helper()
	if m.Client == nil {
		c, err := cli.Dial(m.socket())
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { c.Close() })
		m.Client = c
	}
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // shims of containers may hold the pipe
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	m.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
			m.t.Errorf("%s does not end", argv[0])
		}
		if m.t.Failed() {
			m.t.Logf("%s: %s", argv[0], out.String())
		}
	})
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = ready(); err == nil {
			return
		}
	}
	m.t.Fatalf("%s is not ready: %v", argv[0], err)
}

func (m *machine) put(name, text string, mode os.FileMode) (path string) {
	m.t.Helper()
	path = filepath.Join(m.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// rootfs makes a root file system of busybox, with something to read and a secret.
func (m *machine) rootfs(busybox string) {
	m.t.Helper()
	program, err := os.ReadFile(busybox)
	if err != nil {
		m.t.Fatal(err)
	}
	m.put("rootfs/bin/busybox", string(program), 0o755)
	for _, applet := range []string{"sh", "cat", "sleep", "true", "id"} {
		if err := os.Symlink("busybox", m.dir+"/rootfs/bin/"+applet); err != nil {
			m.t.Fatal(err)
		}
	}
	m.put("rootfs/secret", "told\n", 0o644)
	m.put("rootfs/data/open", "open\n", 0o644)
	for _, dir := range []string{"proc", "dev", "sys", "etc", "volume", "private"} {
		if err := os.MkdirAll(m.dir+"/rootfs/"+dir, 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	m.put("volume/file", "volume\n", 0o644)
	m.put("private/file", "private\n", 0o644)
}

// wrapper makes a program that is policyd-runc with a configuration: engines hand no environment on to a runtime.
func (m *machine) wrapper(runc, name, more string) (path string) {
	m.t.Helper()
	config := m.put(name+".yaml", fmt.Sprintf("runtime: %s\nsocket: %s\nstate: %s/oci\nrecords: %s/policyd/run/oci/containers\n%s", runc, m.socket(), m.dir, m.dir, more), 0o600)
	return m.put("runtimes/"+name, fmt.Sprintf("#!/bin/sh\nPOLICYD_RUNC_CONFIG=%s exec %s/bin/policyd-runc \"$@\"\n", config, m.dir), 0o755)
}

// apply stores a policy of two layers; the second, from line 8, does not let the secret be read, but for what more grants.
func (m *machine) apply(name, more string) {
	m.t.Helper()
	text := "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: " + name + `}
spec:
  abi: 3
  layers:
    - {name: host, paths: [{allow: [all], at: [/]}]}
    - name: app
      paths:
        - {allow: [read, execute], at: [/bin, /volume]}
        - {allow: [read, write], at: [/data]}
` + more
	if _, err := m.Policies.Apply(m.t.Context(), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "web.yaml", Content: []byte(text)}}}); err != nil {
		m.t.Fatal(err)
	}
}

// run runs a program to its end.
func (m *machine) run(argv ...string) (code int, out, errOut string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "POLICYD_SOCKET=unix://"+m.socket())
	cmd.WaitDelay = time.Second
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// must is run for what has to do.
func (m *machine) must(argv ...string) (out string) {
	m.t.Helper()
	code, out, errOut := m.run(argv...)
	if code != 0 {
		m.t.Fatalf("%s: exit %d, %s", strings.Join(argv, " "), code, errOut)
	}
	return out
}

// versions are those the containers of policyctl ps have, and how they are: "web@1 running".
func (m *machine) versions(more ...string) (all []string) {
	m.t.Helper()
	out := m.must(append([]string{m.dir + "/bin/policyctl", "ps", "--containers", "-o", "json"}, more...)...)
	dec := json.NewDecoder(strings.NewReader(out))
	for dec.More() {
		var answer struct {
			Containers []struct {
				Policy, Version, State string
			}
		}
		if err := dec.Decode(&answer); err != nil {
			m.t.Fatalf("%v in %s", err, out)
		}
		for _, c := range answer.Containers {
			all = append(all, c.Policy+"@"+c.Version+" "+strings.ToLower(strings.TrimPrefix(c.State, "CONTAINER_STATE_")))
		}
	}
	return all
}
