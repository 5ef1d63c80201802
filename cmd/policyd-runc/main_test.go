package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// With this in the environment the test binary is policyd-runc.
const wrapperEnv = "POLICYD_TEST_RUNC"

func TestMain(m *testing.M) {
	if os.Getenv(wrapperEnv) != "" {
		main()
	}
	code := m.Run()
	if built.Load() {
		dir, _ := programs()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// fakePolicyd answers GetProfile for "web" in the version set, and counts.
type fakePolicyd struct {
	apiv1.UnimplementedProfileServiceServer
	encoded []byte
	asked   atomic.Int32
	gone    atomic.Bool // the policy was deleted
	limited atomic.Bool // the policy has limits
}

func (f *fakePolicyd) GetProfile(_ context.Context, req *apiv1.GetProfileRequest) (*apiv1.GetProfileResponse, error) {
	f.asked.Add(1)
	if f.gone.Load() {
		return nil, status.Error(codes.NotFound, "policy was deleted")
	}
	if w := req.GetWorkload(); w != nil && req.GetRef() == "" {
		if w.GetImage() == "nginx:1" && w.GetNamespace() == "edge" && w.GetAnnotations()["own"] == "x" {
			req = &apiv1.GetProfileRequest{Ref: "web@stable"}
		}
	}
	if f.limited.Load() {
		req = &apiv1.GetProfileRequest{Ref: "limited"}
	}
	switch req.GetRef() {
	case "web@stable":
		return &apiv1.GetProfileResponse{Profile: f.encoded, ProfileDigest: profile.Digest(f.encoded), Version: &apiv1.VersionInfo{Name: "web", Number: 7}}, nil
	case "limited":
		return &apiv1.GetProfileResponse{
			Profile: f.encoded, ProfileDigest: profile.Digest(f.encoded), Version: &apiv1.VersionInfo{Name: "limited", Number: 2},
			Process: &apiv1.Process{Umask: "0077", Limits: map[string]string{"nofile": "33"}},
		}, nil
	case "nothing":
		return &apiv1.GetProfileResponse{Version: &apiv1.VersionInfo{Name: "nothing", Number: 1}}, nil
	case "torn":
		return &apiv1.GetProfileResponse{Profile: f.encoded[1:], ProfileDigest: profile.Digest(f.encoded), Version: &apiv1.VersionInfo{Name: "torn", Number: 1}}, nil
	}
	return nil, status.Errorf(codes.NotFound, "policy %q does not exist", req.GetRef())
}

// host is a machine with a runtime that only tells what it was asked.
type host struct {
	t       *testing.T
	dir     string
	policyd *fakePolicyd
	server  *grpc.Server
	config  string
	env     []string
}

const fakeRuntime = `#!/bin/sh
for a; do case $a in state) [ -n "$STATE" ] || { echo "container does not exist" >&2; exit 1; }; echo "$STATE"; exit;; esac; done
printf '<%s>' "$@"
exit 42
`

func newHost(t *testing.T, more string) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir(), policyd: &fakePolicyd{}, server: grpc.NewServer()}
	b := profile.NewBuilder([]profile.Layer{{Name: "box", FS: profile.FSReadFile}})
	b.AddPath(0, "/bin", profile.FSReadFile, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	h.policyd.encoded = p.Encode()
	apiv1.RegisterProfileServiceServer(h.server, h.policyd)
	l, err := net.Listen("unix", h.path("sock"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = h.server.Serve(l) }()
	t.Cleanup(h.server.Stop)
	h.put("runtime", fakeRuntime, 0o755)
	h.put("policyd-launch", "", 0o755)
	h.config = h.put("runc.yaml", fmt.Sprintf("runtime: %s\nlauncher: %s\nsocket: %s\nstate: %s\nrecords: %s\n%s", h.path("runtime"), h.path("policyd-launch"), h.path("sock"), h.path("state"), h.path("run/containers"), more), 0o644)
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) put(name, text string, mode os.FileMode) string {
	h.t.Helper()
	path := h.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *host) read(name string) string {
	h.t.Helper()
	b, err := os.ReadFile(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// run runs the wrapper in the bundle.
func (h *host) run(args ...string) (code int, stdout, stderr string) {
	h.t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), wrapperEnv+"=1", configEnv+"="+h.config)
	cmd.Env = append(cmd.Env, h.env...)
	cmd.Dir = h.path("bundle")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

func config(annotations string) string {
	return `{"process":{"args":["a"]},"future":[1.0],"mounts":[{"destination":"/dev","type":"tmpfs"}],"annotations":{` + annotations + `}}`
}

func TestContainers(t *testing.T) {
	const web = `"policyd.dev/profile":"web@stable"`
	for _, tc := range []struct {
		name, settings, annotations string
		args                        []string
		edited                      bool
		err                         string
	}{
		{"create", "", web, []string{"--root", "r", "--log", "l", "--log-format", "json", "create", "--bundle", ".", "--pid-file", "p", "id"}, true, ""},
		{"run in the bundle", "", web, []string{"run", "id"}, true, ""},
		{"options after the id", "", web, []string{"create", "id", "-b", "."}, true, ""},
		{"one dash", "", web, []string{"-root", "r", "create", "--bundle=.", "-no-pivot", "id"}, true, ""},
		{"a bundle named create", "", web, []string{"--log=create", "run", "--bundle", "../bundle", "exec"}, true, ""},
		{"crun's cluster", "", web, []string{"--cgroup-manager=disabled", "run", "-db", ".", "id"}, true, ""},
		{"crun's config", "", web, []string{"run", "-f", "config.json", "id"}, true, ""},
		{"by the configuration", "profile: web@stable\n", "", []string{"run", "id"}, true, ""},
		{"by bindings", "select: bindings\n", `"own":"x","io.kubernetes.cri.image-name":"nginx:1","io.kubernetes.cri.sandbox-namespace":"edge"`, []string{"run", "id"}, true, ""},
		{"by bindings, none", "select: bindings\n", web, []string{"run", "id"}, false, "does not exist"},
		{"by bindings, pause", "select: bindings\n", `"io.kubernetes.cri-o.ContainerType":"sandbox"`, []string{"run", "id"}, false, ""},
		{"no annotation", "", "", []string{"run", "id"}, false, ""},
		{"pause", "profile: web@stable\n", web + `,"io.kubernetes.cri.container-type":"sandbox"`, []string{"run", "id"}, false, ""},
		{"refused without annotation", "unannotated: refuse\n", "", []string{"run", "id"}, false, "has no annotation"},
		{"no such policy", "", `"policyd.dev/profile":"wbe"`, []string{"run", "id"}, false, `policy "wbe" does not exist`},
		{"nothing to enforce", "", `"policyd.dev/profile":"nothing"`, []string{"run", "id"}, false, "can enforce nothing"},
		{"limits that no container gets", "", `"policyd.dev/profile":"limited"`, []string{"run", "id"}, false, "limited@2 has process.umask, process.limits"},
		{"torn answer", "", `"policyd.dev/profile":"torn"`, []string{"run", "id"}, false, "does not match its digest"},
		{"restore", "", web, []string{"restore", "id"}, false, "would not be confined"},
		{"unknown option before", "", web, []string{"--new", "create", "id"}, false, "is not known"},
		{"unknown option", "", web, []string{"create", "--new", "x", "id"}, false, "is not known"},
		{"one dash, a bundle to runc, another to crun", "", web, []string{"create", "-bundle=.", "id"}, false, "two dashes"},
		{"one dash, of one meaning", "", web, []string{"create", "-pid-file", "p", "-detach", "id"}, true, ""},
		{"two bundles", "", web, []string{"create", "-b", ".", "--bundle=/other", "id"}, false, "is there twice"},
		{"help with a value", "", web, []string{"create", "--help=false", "id"}, false, "without a value"},
		{"another config", "", web, []string{"create", "--config", "./config.json", "id"}, false, "no absolute path"},
		{"value missing", "", web, []string{"create", "id", "--bundle"}, false, "wants a value"},
		{"said to be edited", "", web + `,"policyd.dev/applied":"sha256:00"`, []string{"run", "id"}, false, "only policyd-runc sets"},
		{"launcher not executable", "launcher: /etc/passwd\n", web, []string{"run", "id"}, false, "cannot be executed"},
		{"launcher linked dynamically", "launcher: /bin/sh\n", web, []string{"run", "id"}, false, "/bin/sh is linked dynamically"},
	} {
		h := newHost(t, "")
		text := h.read("runc.yaml")
		if strings.HasPrefix(tc.settings, "launcher") {
			text = strings.Replace(text, "launcher: "+h.path("policyd-launch")+"\n", "", 1)
		}
		h.put("runc.yaml", text+tc.settings, 0o644)
		before := config(tc.annotations)
		h.put("bundle/config.json", before, 0o640)
		code, out, errOut := h.run(tc.args...)
		after := h.read("bundle/config.json")
		if tc.err != "" {
			if code != 1 || out != "" || !strings.Contains(errOut, tc.err) || after != before {
				t.Errorf("%s: exit %d, %q, %q\n%s", tc.name, code, out, errOut, after)
			}
			continue
		}
		if want := "<" + strings.Join(tc.args, "><") + ">"; code != 42 || out != want {
			t.Errorf("%s: exit %d, %q, %q; want %q", tc.name, code, out, errOut, want)
		}
		if (after != before) != tc.edited {
			t.Errorf("%s: config.json\n%s", tc.name, after)
		}
		if !tc.edited {
			continue
		}
		digest := profile.Digest(h.policyd.encoded)
		for _, part := range []string{`"args":["/dev/.policyd/launch","exec",`, digest + `","--","a"]`, h.path("run/profiles/sha256-"), `"policyd.dev/version":"web@7"`, `"future":[1.0]`} {
			if !strings.Contains(after, part) {
				t.Errorf("%s: no %s in\n%s", tc.name, part, after)
			}
		}
		if got := h.read("run/profiles/" + strings.ReplaceAll(digest, ":", "-")); got != string(h.policyd.encoded) {
			t.Errorf("%s: the profile's file has %q", tc.name, got)
		}
		if st, _ := os.Stat(h.path("bundle/config.json")); st.Mode() != 0o640 {
			t.Errorf("%s: mode %v", tc.name, st.Mode())
		}
		if left, _ := filepath.Glob(h.path("bundle/.*")); len(left) > 0 {
			t.Errorf("%s: left %v", tc.name, left)
		}
		if code, _, errOut := h.run(tc.args...); code != 42 || h.read("bundle/config.json") != after {
			t.Errorf("%s: again: exit %d, %q\n%s", tc.name, code, errOut, h.read("bundle/config.json"))
		}
	}
}

// What is none of policyd's is handed on as it came, without a question to policyd.
func TestUntouched(t *testing.T) {
	h := newHost(t, "")
	h.put("bundle/config.json", "not JSON", 0o644)
	for _, args := range [][]string{
		{"--version"},
		{"features"},
		{"--root", "create", "start", "id"},
		{"kill", "id", "KILL"},
		{"delete", "--force", "exec"},
		{"ps", "id", "-ef"},
		{"update", "--new-option", "x", "id"},
		{"events", "--", "id"},
	} {
		code, out, errOut := h.run(args...)
		if want := "<" + strings.Join(args, "><") + ">"; code != 42 || out != want {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errOut)
		}
	}
	if n := h.policyd.asked.Load(); n != 0 {
		t.Errorf("policyd was asked %d times", n)
	}
}

func TestExec(t *testing.T) {
	h := newHost(t, "")
	launch := []string{"/dev/.policyd/launch", "exec", "--file", "/dev/.policyd/profile", "--digest", "sha256:12", "--"}
	const confined = `STATE={"annotations":{"policyd.dev/applied":"sha256:12"}}`
	for _, tc := range []struct {
		name, state  string
		args, expect []string
		err          string
	}{
		{"arguments", confined, []string{"--root", "r", "exec", "-t", "--user=0", "-e", "A=exec", "id", "ls", "-l"}, append(append([]string{"--root", "r", "exec", "-t", "--user=0", "-e", "A=exec", "id"}, launch...), "ls", "-l"), ""},
		{"after two dashes", confined, []string{"exec", "--", "id", "ls"}, append(append([]string{"exec", "--", "id"}, launch...), "ls"), ""},
		{"options of the program", confined, []string{"exec", "id", "--process", "x"}, append(append([]string{"exec", "id"}, launch...), "--process", "x"), ""},
		{"not confined", `STATE={"annotations":{"a":"b"}}`, []string{"exec", "id", "ls"}, []string{"exec", "id", "ls"}, ""},
		{"no program", confined, []string{"exec", "id"}, nil, "want a program"},
		{"no container", confined, []string{"exec"}, nil, "want the id"},
		{"not there", "STATE=", []string{"exec", "id", "ls"}, nil, "container does not exist"},
		{"no state", "STATE=x", []string{"exec", "id", "ls"}, nil, "not JSON"},
		{"unknown option", confined, []string{"exec", "--new", "id", "ls"}, nil, "is not known"},
		{"one dash, another process file to crun", confined, []string{"exec", "-process", "x", "id"}, nil, "two dashes"},
		{"one dash, a process file to crun alone", confined, []string{"exec", "-pid-file", "x", "id", "ls"}, nil, "two dashes"},
		{"no process file", confined, []string{"exec", "--process", "absent", "id"}, nil, "absent"},
	} {
		h.put("bundle/x", "", 0o644)
		h.env = []string{tc.state}
		code, out, errOut := h.run(tc.args...)
		if tc.err != "" {
			if code != 1 || out != "" || !strings.Contains(errOut, tc.err) {
				t.Errorf("%s: exit %d, %q, %q", tc.name, code, out, errOut)
			}
			continue
		}
		if want := "<" + strings.Join(tc.expect, "><") + ">"; code != 42 || out != want {
			t.Errorf("%s: exit %d, %q, %q; want %q", tc.name, code, out, errOut, want)
		}
	}
	h.env = []string{confined}
	h.put("bundle/process", `{"args":["ls"],"cwd":"/"}`, 0o600)
	for range 2 {
		code, out, errOut := h.run("exec", "-p", "process", "--detach", "id")
		if code != 42 || out != "<exec><-p><process><--detach><id>" {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
		if got, want := h.read("bundle/process"), `{"args":["`+strings.Join(launch, `","`)+`","ls"],"cwd":"/"}`; got != want {
			t.Errorf("process file %s, want %s", got, want)
		}
	}
}

// FuzzLine: whatever the command line, what is found of exec's container and
// program is the end of it, and every option found stands in it.
func FuzzLine(f *testing.F) {
	for _, s := range []string{"--root\nr\nexec\n-t\n--user=0\nid\nls\n-l", "create\n-b\n.\nid", "run\n-db.\nid", "exec\n--\nid", "--log=exec\nexec\n-dtp\nfile\nid"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseLine(strings.Split(text, "\n"))
		if err != nil {
			return
		}
		if l.command != "" && l.args[len(l.globals)] != l.command {
			t.Fatalf("%q: command %q after %q", l.args, l.command, l.globals)
		}
		if l.command == "exec" && strings.Join(l.args[l.restAt:], "\n") != strings.Join(l.rest, "\n") {
			t.Fatalf("%q: at %d %q", l.args, l.restAt, l.rest)
		}
		for name, value := range l.opts {
			if !strings.Contains(text, value) {
				t.Fatalf("%q: --%s is %q", l.args, name, value)
			}
		}
	})
}
