// Package systemd_test runs policyd as a distribution's systemd runs it: user-mode-linux boots the host's systemd as process 1,
// with policyd's programs and the files of deploy where a package puts them.
//
// It imports api and what is internal to the project's tools. Each file that ends in _test.go and has a scenario of its
// own boots machines made by [newMachine]; boots are expensive, so one boot answers many questions.
package systemd_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

var (
	binDir string // the built programs
	root   string // the checkout
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		wd, err := os.Getwd()
		if err != nil {
			panic(err)
		}
		root = filepath.Dir(filepath.Dir(wd))
		dir, err := os.MkdirTemp("", "policyd-systemd-bin")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			panic(err)
		}
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./cmd/...")
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

// programsDir is where the guest finds the built programs; /usr/bin has links to them.
const programsDir = "/opt/policyd"

// inFull leaves a test out of a short run, which is that of the race detector: the programs of a guest are built without it.
func inFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a guest's programs have no race detector")
	}
}

// newMachine gives a machine with Landlock and Smack on which policyd is installed: the programs in /usr/bin, and the files
// of deploy/systemd where a package puts them, its user and its folders made. Nothing is enabled or started. The caller may
// change all of it before he boots it.
//
// The test is skipped where there is no systemd, no kernel, or no root.
func newMachine(t *testing.T) *testkernel.System {
	t.Helper()
	inFull(t)
	testkernel.RequireSystemd(t, testkernel.UML73)
	testkernel.RequireRoot(t)
	s := bareMachine()
	for at, text := range installedFiles(t) {
		s.Files[at] = text
	}
	programs, err := os.ReadDir(binDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		s.Links["/usr/bin/"+p.Name()] = programsDir + "/" + p.Name()
	}
	return s
}

// bareMachine is a machine on which policyd is not installed; its programs are in [programsDir]. /usr can be written to,
// so that a package can be installed.
func bareMachine() *testkernel.System {
	return &testkernel.System{
		Kernel:  testkernel.UML73,
		Files:   map[string]string{},
		Folders: map[string]string{programsDir: binDir},
		Links:   map[string]string{},
		Overlay: true,
	}
}

// installed says where a package puts the folders and files of deploy.
var installed = map[string]string{
	"systemd/*.socket":            "/usr/lib/systemd/system",
	"systemd/*.service":           "/usr/lib/systemd/system",
	"systemd/user/*":              "/usr/lib/systemd/user",
	"systemd/sysusers.d/*":        "/usr/lib/sysusers.d",
	"systemd/tmpfiles.d/*":        "/usr/lib/tmpfiles.d",
	"systemd/policyd.service.d/*": "/usr/share/policyd/systemd",
	"systemd/policyd.catalog":     "/usr/lib/systemd/catalog",
}

// installedFiles are the files of deploy by their paths in the guest. The users of sysusers.d are made as systemd-sysusers
// would, since the guest starts too early to wait for it.
func installedFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for pattern, dir := range installed {
		paths, err := filepath.Glob(filepath.Join(root, "deploy", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Join(dir, filepath.Base(path))] = string(text)
		}
	}
	files["/etc/group"] = "root:x:0:\nadm:x:4:\nsystemd-journal:x:101:\npolicyd:x:990:\nnogroup:x:65534:\nalice:x:1000:\n"
	files["/etc/passwd"] = "root:x:0:0:root:/root:/bin/sh\npolicyd:x:990:990::/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n" +
		"alice:x:1000:1000:alice:/home/alice:/bin/sh\n"
	return files
}

// functions are of every script: wait_for COMMAND... waits at most half a minute until a command succeeds, and log_of UNIT
// prints its journal up to now.
const functions = `
log_of() { journalctl --sync; journalctl -u "$1" --no-pager -o cat; }
wait_for() {
	_left=300
	until "$@" >/dev/null 2>&1; do
		_left=$((_left - 1))
		[ $_left -gt 0 ] || { echo "not within 30 s: $*"; return 1; }
		sleep 0.1
	done
}
`

// boot boots a machine with some files changed, runs the script, and shows all of it when the test has failed. A
// script that ends with another exit status than 0 or prints anything outside of a step has failed.
func boot(t *testing.T, s *testkernel.System, files map[string]string, script testkernel.Script) *booted {
	t.Helper()
	var console bytes.Buffer
	m := *s
	m.Output = &console
	m.Files = maps.Clone(s.Files)
	maps.Copy(m.Files, files)
	script.Text = functions + script.Text
	b, err := m.Boot(t.Context(), script)
	if err != nil {
		t.Fatalf("%v\n%s", err, console.Bytes())
	}
	out := &booted{T: t, Booted: b, Console: console.String()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("steps: %v\noutput: %s\nconsole:\n%s", b.Steps, b.Output, out.Console)
		}
	})
	if b.Exit != 0 || b.Output != "" {
		t.Errorf("script: exit status %d\n%s", b.Exit, b.Output)
	}
	return out
}

// booted is what a boot of the machine gave. Console has the whole journal.
type booted struct {
	*testing.T
	*testkernel.Booted
	Console string
}

// step holds a step's exit status and what it printed somewhere; a word that starts with "!" must not be there.
func (b *booted) step(name string, exit int, want ...string) {
	b.Helper()
	s, ok := b.Steps[name]
	if !ok || s.Exit != exit {
		b.Errorf("step %s: %v\nwant exit status %d", name, s, exit)
	}
	for _, w := range want {
		word, unwanted := strings.CutPrefix(w, "!")
		if strings.Contains(s.Stdout+s.Stderr, word) == unwanted {
			b.Errorf("step %s: want %q: %v", name, w, s)
		}
	}
}

// prints holds all that a step printed, its exit status 0.
func (b *booted) prints(name, want string) {
	b.Helper()
	if s, ok := b.Steps[name]; !ok || s != (testkernel.Step{Stdout: want}) {
		b.Errorf("step %s: %v\nwant %q", name, s, want)
	}
}
