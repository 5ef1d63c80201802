// Package e2e_test runs the real programs against each other: policyd,
// policyctl and policyd-launch as a user has them. It imports nothing of ours
// but the harness of kernels.
package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	binDir string // the built programs
	root   string // the checkout
)

func TestMain(m *testing.M) {
	if errno := os.Getenv(refuseEnv); errno != "" {
		refuseLandlock(errno, os.Args[1:])
	}
	os.Exit(func() int {
		wd, err := os.Getwd()
		if err != nil {
			panic(err)
		}
		root = filepath.Dir(filepath.Dir(wd))
		dir, err := os.MkdirTemp("", "policyd-e2e-bin")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			panic(err)
		}
		build := exec.Command("go", "build", "-o", dir+"/", "./cmd/...")
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
			return 1
		}
		binDir = dir
		return m.Run()
	}())
}

// A daemon is a running policyd with a state folder of its own.
type daemon struct {
	t     *testing.T
	state string
	log   *os.File
	cmd   *exec.Cmd
	args  []string
}

// startDaemon starts a policyd and waits until it serves. It is ended with the test,
// and so are its sandboxes.
func startDaemon(t *testing.T, state string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, state: state, args: args}
	log, err := os.CreateTemp(t.TempDir(), "policyd-log")
	if err != nil {
		t.Fatal(err)
	}
	d.log = log
	d.start()
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("policyd's log:\n%s", tail(b, 6000))
		}
		for id := range strings.FieldsSeq(d.ctl("ps", "-o", "name").stdout) {
			d.ctl("kill", "--all", id)
		}
		d.stop(syscall.SIGTERM)
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(filepath.Join(binDir, "policyd"), append([]string{"--state-dir", d.state}, d.args...)...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	if r := d.ctl("status", "--wait"); r.code != 0 {
		b, _ := os.ReadFile(d.log.Name())
		d.t.Fatalf("policyd did not come up: %s\n%s", r, tail(b, 4000))
	}
}

// stop ends the daemon by a signal and waits for it.
func (d *daemon) stop(sig syscall.Signal) {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(sig)
	done := make(chan error, 1)
	go func() { done <- d.cmd.Wait() }()
	select {
	case err := <-done:
		if sig == syscall.SIGTERM && err != nil {
			d.t.Errorf("policyd ended with %v after SIGTERM", err)
		}
	case <-time.After(30 * time.Second):
		_ = d.cmd.Process.Kill()
		<-done
		d.t.Errorf("policyd did not end within 30 s of signal %v", sig)
	}
	d.cmd = nil
}

func (d *daemon) socket() string { return "unix://" + d.state + "/run/policyd.sock" }

type result struct {
	args           []string
	stdout, stderr string
	code           int
}

func (r result) String() string {
	return fmt.Sprintf("policyctl %s: exit status %d\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

// ctl runs policyctl against the daemon.
func (d *daemon) ctl(args ...string) result { return d.ctlIn("", args...) }

// ctlIn is ctl with standard input.
func (d *daemon) ctlIn(stdin string, args ...string) result {
	d.t.Helper()
	cmd := exec.Command(filepath.Join(binDir, "policyctl"), args...)
	cmd.Env = append(os.Environ(), "POLICYD_SOCKET="+d.socket())
	cmd.Dir = "/"
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	return run(d.t, cmd)
}

func run(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	r := result{args: cmd.Args[1:]}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		r.code = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	r.stdout, r.stderr = out.String(), errOut.String()
	return r
}

// must is ctl where the exit status has to be 0; it returns standard output without the last newline.
func (d *daemon) must(args ...string) string {
	d.t.Helper()
	r := d.ctl(args...)
	if r.code != 0 {
		d.t.Fatal(r)
	}
	return strings.TrimSuffix(r.stdout, "\n")
}

// apply stores a document.
func (d *daemon) apply(text string, args ...string) {
	d.t.Helper()
	if r := d.ctlIn(text, append([]string{"apply", "-f", "-"}, args...)...); r.code != 0 {
		d.t.Fatal(r)
	}
}

// policy is a policy of one layer that may run programs and has the given path rules beside.
func policy(name string, rules ...string) string {
	text := "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: " + name + "}\nspec:\n  abi: 3\n  layers:\n    - name: only\n      include: [std/base, std/shell]\n"
	if len(rules) > 0 {
		text += "      paths:\n"
		for _, r := range rules {
			text += "        - " + r + "\n"
		}
	}
	return text
}

// eventually asks until ok or the time is over; for what another process does in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within 20 s: %s", what)
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}
