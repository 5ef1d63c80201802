package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's tour is run as it is written, in one shell, by a user with an empty home.
func TestReadmeTour(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("the README has %d blocks to run", len(blocks))
	}
	home, err := os.MkdirTemp("/tmp", "policyd-tour-home") //nolint:usetesting // the tour's policy grants it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	script := "set -eu\n"
	for _, b := range blocks {
		script += b[1]
	}
	script += "echo the tour ended\n"
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "HOME="+home, "GOPATH="+goEnv(t, "GOPATH"), "GOCACHE="+goEnv(t, "GOCACHE"), "GOFLAGS="+goEnv(t, "GOFLAGS"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"refused, exit status", "from a pipe", "denied, exit status", "ok: 1 test: 4 passed", "exit status 3: something is gained", "exit status 1: the test has noticed", "started", "let it fix typos", "hello", "the tour ended",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour does not print %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// make quickstart, as a newcomer calls it; nothing may be left running or lying about.
func TestQuickstart(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "policyd-qs") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	cmd := exec.Command("make", "quickstart")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	r := run(t, cmd)
	if r.code != 0 {
		t.Fatal(r)
	}
	for _, want := range []string{"buy milk", "no-secrets", "first try", "/etc/passwd", "Nothing is left running"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the quickstart does not show %q", want)
		}
	}
	if left, _ := filepath.Glob(tmp + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range cmdlines {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), tmp) {
			t.Errorf("still running: %q", b)
		}
	}
	if t.Failed() {
		t.Log(r)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
