package containers

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/testkernel"
)

// box is a container to be: under the newest version of a policy, or as it is for "". Its root is the machine's, on an
// overlay file system, and the machine's folders volume and private are mounted into it.
type box struct {
	name, policy string
	argv         []string // the program by its whole path: containerd's have no PATH
}

// engine drives one of the real engines.
type engine interface {
	// run runs a container to its end and takes it away.
	run(box) (code int, out, errOut string)
	// start starts one in the background.
	start(box)
	exec(name string, argv ...string) (code int, out, errOut string)
	// restart ends a container's program and starts it again.
	restart(name string)
	remove(name string)
}

const denied = "Permission denied"

// programs are what an engine needs beside Go.
var programs = map[string]string{"runc": "runc", "busybox": "busybox-static", "unshare": "util-linux", "mount": "mount"}

// testEngine holds what a user of policyd-runc is promised, with an engine of the machine.
func testEngine(t *testing.T, needs map[string]string, setUp func(m *machine, runc string) engine) {
	testkernel.RequireRoot(t)
	if sup := landlock.Probe(); sup.State != landlock.Available {
		testkernel.Skip(t, "Landlock", sup.Err.Error())
	}
	paths := map[string]string{}
	for _, of := range []map[string]string{programs, needs} {
		for program, pkg := range of {
			paths[program] = testkernel.RequireTool(t, program, "apt-get install "+pkg)
		}
	}
	if os.Getenv(insideEnv) == "" {
		testkernel.Skip(t, "mount and PID namespaces", "run go test with CAP_SYS_ADMIN")
	}
	m := newMachine(t, paths["busybox"])
	m.apply("web", "")
	e := setUp(m, paths["runc"])

	if code, out, errOut := e.run(box{name: "free", argv: []string{"/bin/cat", "/secret", "/private/file"}}); code != 0 || out != "told\nprivate\n" {
		t.Fatalf("not confined: exit %d, %q, %q", code, out, errOut)
	}
	t.Run("confined", func(t *testing.T) {
		code, out, errOut := e.run(box{"shut", "web", []string{"/bin/cat", "/data/open", "/secret"}})
		if code != 1 || out != "open\n" || !strings.Contains(errOut, "/secret': "+denied) {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
	})
	t.Run("mounts", func(t *testing.T) {
		// What is written goes from the lower layer of the overlay to the upper one.
		const look = "cat /volume/file; cat /private/file; echo more >>/data/open; cat /data/open; echo spoiled >/volume/file; echo spoiled >/secret"
		code, out, errOut := e.run(box{"mounts", "web", []string{"/bin/sh", "-c", "PATH=/bin; " + look}})
		if code != 1 || out != "volume\nopen\nmore\n" {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
		for _, path := range []string{"/private/file", "/volume/file", "/secret"} {
			if !strings.Contains(errOut, path+": "+denied) && !strings.Contains(errOut, path+"': "+denied) {
				t.Errorf("%s was not refused: %q", path, errOut)
			}
		}
		for file, want := range map[string]string{"rootfs/data/open": "open\n", "rootfs/secret": "told\n", "volume/file": "volume\n"} {
			if b, err := os.ReadFile(m.dir + "/" + file); err != nil || string(b) != want {
				t.Errorf("%s outside: %q, %v", file, b, err)
			}
		}
	})
	t.Run("unknown profile", func(t *testing.T) {
		code, out, errOut := e.run(box{"unknown", "nosuch", []string{"/bin/cat", "/data/open"}})
		if code == 0 || out != "" || !strings.Contains(errOut, `profile "nosuch"`) || !strings.Contains(errOut, "not found") {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
	})
	t.Run("exec and restart", func(t *testing.T) {
		e.start(box{"web", "web", []string{"/bin/sleep", "300"}})
		look := func(what string, want int) {
			t.Helper()
			code, out, errOut := e.exec("web", "/bin/cat", "/data/open", "/secret")
			if code != want || !strings.HasPrefix(out, "open\n") || (want == 0) != strings.HasSuffix(out, "told\n") || (want == 1) != strings.Contains(errOut, "/secret': "+denied) {
				t.Errorf("%s: exit %d, %q, %q", what, code, out, errOut)
			}
		}
		look("exec", 1)
		m.explained("read_file", 8, "open", "/secret", "r")
		m.explained("read_file", 8, "open", "/private/file", "r")
		m.explained("write_file", 10, "open", "/volume/file", "w")
		m.explained("", 0, "open", "/volume/file", "r")
		m.explained("", 0, "open", "/data/open", "rw")
		if got := m.versions(); !slices.Equal(got, []string{"web@1 running"}) {
			t.Errorf("policyctl ps: %q", got)
		}
		m.apply("web", "        - {allow: [read], at: [/secret]}\n")
		look("exec after a change", 1)
		if got := m.versions("--outdated"); !slices.Equal(got, []string{"web@1 running"}) {
			t.Errorf("policyctl ps --outdated: %q", got)
		}
		e.restart("web")
		look("exec after a restart", 0)
		m.explained("", 0, "open", "/secret", "r")
		if got := m.versions(); !slices.Equal(got, []string{"web@2 running"}) {
			t.Errorf("policyctl ps after a restart: %q", got)
		}
		if got := m.versions("--outdated"); len(got) > 0 {
			t.Errorf("policyctl ps --outdated after a restart: %q", got)
		}
		e.remove("web")
		if got := m.versions("--all"); len(got) > 0 {
			t.Errorf("policyctl ps after its end: %q", got)
		}
	})
}

// explained asks why the one container that runs may not do an operation: the policy's second layer lacks a right of it,
// by that line of the text, of the layer or of the rule that grants something else there; "" when it may.
func (m *machine) explained(lacks string, line int, operation ...string) {
	m.t.Helper()
	id := strings.TrimPrefix(strings.TrimSpace(m.must(m.dir+"/bin/policyctl", "ps", "--containers", "-o", "name")), "container/")
	code, out, errOut := m.run(append([]string{m.dir + "/bin/policyctl", "explain", "--container", id, "-o", "json", "--"}, operation...)...)
	var answer struct {
		Verdict, Errno string
		Layers         []struct {
			Name    string
			Missing []string
		}
		DecidedBy []struct {
			File string
			Line int
		} `json:"decided_by"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		m.t.Errorf("%q: exit %d, %v, %q, %q", operation, code, err, out, errOut)
		return
	}
	if lacks == "" {
		if code != 0 || answer.Verdict != "allow" {
			m.t.Errorf("%q: exit %d, %s", operation, code, out)
		}
		return
	}
	if code != 1 || answer.Verdict != "deny" || answer.Errno != "EACCES" || len(answer.Layers) != 1 || answer.Layers[0].Name != "app" || !slices.Equal(answer.Layers[0].Missing, []string{lacks}) {
		m.t.Errorf("%q: exit %d, %s", operation, code, out)
	}
	if len(answer.DecidedBy) != 1 || answer.DecidedBy[0].File != "web.yaml" || answer.DecidedBy[0].Line != line {
		m.t.Errorf("%q: the layer's place: %+v", operation, answer.DecidedBy)
	}
}
