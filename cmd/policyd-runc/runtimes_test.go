package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/containers"
	"policyd.dev/policyd/internal/testkernel"
)

const policies = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: box}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read, execute], at: [/bin, /data]}
        - {allow: [read], at: [/proc]}
---
apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: absent}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read, execute], at: [/bin, /no/such/path]}
---
apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: soft}
spec:
  abi: 3
  enforcement: degrade
  layers:
    - paths:
        - {allow: [read, execute], at: [/bin, /data]}
---
apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: dev}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read, execute], at: [/bin]}
        - {allow: [all], at: [/dev]}
---
apiVersion: policyd/v1
kind: Binding
metadata: {name: edge}
spec:
  match: {image: ["nginx:*"], namespace: [edge]}
  policy: box
`

// Containers of the real runtimes, on a root file system of busybox alone.
func TestRuntimes(t *testing.T) {
	testkernel.RequireRoot(t)
	if sup := landlock.Probe(); sup.State != landlock.Available {
		testkernel.Skip(t, "Landlock", sup.Err.Error())
	}
	for _, runtime := range []string{"runc", "crun"} {
		testkernel.RequireTool(t, runtime, "apt-get install "+runtime)
	}
	dir := t.TempDir()
	// The root of a user namespace is another user on the way to a bundle.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	socket := startPolicyd(t, dir)
	for _, runtime := range []string{"runc", "crun"} {
		t.Run(runtime, func(t *testing.T) {
			e := newEngine(t, dir, runtime, socket)
			plain := e.bundle("", nil, "true")
			if code, _, errOut := e.callRuntime(runtime, "run", "--bundle", plain, e.id()); code != 0 {
				testkernel.Skip(t, runtime+" in working order", "run where containers can be started; it says: "+errOut)
			}
			if code, out, errOut := e.run("", nil, "cat", "/secret"); code != 0 || out != "told\n" {
				t.Fatalf("not confined: exit %d, %q, %q", code, out, errOut)
			}
			testRun(t, e)
			testCreateAndExec(t, e)
			testBindings(t, e)
			testMany(t, e)
			e.put("runc.yaml", strings.Replace(read(t, e.dir+"/runc.yaml"), "policyd.sock", "absent.sock", 1), 0o644)
			if code, out, errOut := e.run("box", nil, "echo", "ran"); code != 1 || out != "" || !strings.Contains(errOut, "not reachable") {
				t.Errorf("without policyd: exit %d, %q, %q", code, out, errOut)
			}
		})
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func process(key string, value any) func(map[string]any) {
	return func(spec map[string]any) { spec["process"].(map[string]any)[key] = value }
}

// failed is any exit code but 0: the runtimes have their own.
const failed = -1

func testRun(t *testing.T, e *engine) {
	const look = "id -u; cat /data/open; cat /secret"
	writable := func(spec map[string]any) { spec["root"].(map[string]any)["readonly"] = false }
	seccomp := func(call string, errno int, more ...func(map[string]any)) func(map[string]any) {
		return func(spec map[string]any) {
			spec["linux"].(map[string]any)["seccomp"] = map[string]any{
				"defaultAction": "SCMP_ACT_ALLOW",
				"syscalls":      []any{map[string]any{"names": []string{call}, "action": "SCMP_ACT_ERRNO", "errnoRet": errno}},
			}
			for _, change := range more {
				change(spec)
			}
		}
	}
	failing := func(kind string) func(map[string]any) {
		return func(spec map[string]any) {
			spec["hooks"] = map[string]any{kind: []any{map[string]any{"path": "/bin/false"}}}
		}
	}
	mapped := func(spec map[string]any) {
		linux := spec["linux"].(map[string]any)
		linux["namespaces"] = append(linux["namespaces"].([]any), map[string]any{"type": "user"})
		one := []any{map[string]any{"containerID": 0, "hostID": 100000, "size": 65536}}
		linux["uidMappings"], linux["gidMappings"] = one, one
	}
	paused := func(spec map[string]any) {
		spec["annotations"].(map[string]any)["io.kubernetes.cri.container-type"] = "sandbox"
	}
	hooks := func(spec map[string]any) {
		// One that reads what it is told: crun may fail to write to another.
		hook := []any{map[string]any{"path": "/bin/sh", "args": []string{"sh", "-c", "while read -r x; do :; done"}}}
		spec["hooks"] = map[string]any{"prestart": hook, "createRuntime": hook, "createContainer": hook, "startContainer": hook, "poststart": hook, "poststop": hook}
	}
	for _, tc := range []struct {
		name, profile string
		change        func(map[string]any)
		argv          []string
		code          int
		out, err      string
	}{
		{"read-only root", "box", nil, []string{"sh", "-c", look}, 1, "0\nopen\n", "can't open '/secret': Permission denied"},
		{"writable root", "box", writable, []string{"/bin/sh", "-c", look + "; echo spoiled > /data/new"}, 1, "0\nopen\n", "can't create /data/new: Permission denied"},
		{"another user", "box", process("user", map[string]int{"uid": 1000, "gid": 1000}), []string{"sh", "-c", look}, 1, "1000\nopen\n", "can't open '/secret': Permission denied"},
		{"may gain privileges", "box", process("noNewPrivileges", false), []string{"sh", "-c", "grep NoNewPrivs /proc/self/status; " + look}, 1, "NoNewPrivs:\t1\n0\nopen\n", "Permission denied"},
		{"its arguments", "box@1", nil, []string{"sh", "-c", "tr '\\0' ' ' < /proc/1/cmdline; ls /dev/.policyd"}, 1, "sh -c tr '\\0' ' ' < /proc/1/cmdline; ls /dev/.policyd ", "Permission denied"},
		{"relative to the directory", "box", process("cwd", "/bin"), []string{"./cat", "/data/open"}, 0, "open\n", ""},
		{"missing program", "box", nil, []string{"absent"}, 127, "", "program not found"},
		{"program not granted", "box", nil, []string{"/secret"}, 126, "", "program cannot be executed"},
		{"missing path", "absent", nil, []string{"echo", "ran"}, 125, "", "/no/such/path"},
		{"seccomp", "box", seccomp("landlock_restrict_self", 1), []string{"echo", "ran"}, 125, "", "landlock_restrict_self"},
		{"seccomp, no rules", "box", seccomp("landlock_add_rule", 1), []string{"echo", "ran"}, 125, "", "landlock_add_rule"},
		{"seccomp, no rulesets", "box", seccomp("landlock_create_ruleset", 1), []string{"echo", "ran"}, 125, "", "seccomp"},
		{"seccomp, as if not built", "box", seccomp("landlock_create_ruleset", 38), []string{"echo", "ran"}, 125, "", "not built"},
		{"seccomp, degrade", "soft", seccomp("landlock_create_ruleset", 38), []string{"echo", "ran"}, 125, "", "not built"},
		{"seccomp, may gain privileges", "box", seccomp("landlock_restrict_self", 1, process("noNewPrivileges", false)), []string{"echo", "ran"}, 125, "", "landlock_restrict_self"},
		{"seccomp, as if restricted", "box", seccomp("landlock_restrict_self", 0), []string{"echo", "ran"}, 125, "", "something else than the kernel"},
		{"seccomp, as if there were rulesets", "box", seccomp("landlock_create_ruleset", 0), []string{"echo", "ran"}, 125, "", "something else than the kernel"},
		{"relative in the root", "box", nil, []string{"bin/cat", "/data/open"}, 0, "open\n", ""},
		{"relative, missing", "box", nil, []string{"./bin/absent"}, 127, "", "program not found"},
		{"relative, of another folder", "box", process("cwd", "/bin"), []string{"bin/cat", "/data/open"}, 127, "", "program not found"},
		{"by its own path", "box", process("env", []string{"PATH=/nowhere:/bin"}), []string{"cat", "/data/open"}, 0, "open\n", ""},
		{"no path", "box", process("env", []string{}), []string{"cat", "/data/open"}, 127, "", "program not found"},
		{"no path, absolute", "box", process("env", []string{}), []string{"/bin/cat", "/data/open"}, 0, "open\n", ""},
		{"another user, may gain", "box", func(spec map[string]any) {
			process("user", map[string]int{"uid": 1000, "gid": 1000})(spec)
			process("noNewPrivileges", false)(spec)
		}, []string{"sh", "-c", look}, 1, "1000\nopen\n", "Permission denied"},
		{"pause", "none", paused, []string{"cat", "/secret"}, 0, "told\n", ""},
		{"hook that fails", "box", failing("createRuntime"), []string{"echo", "ran"}, failed, "", ""},
		{"hook in the container that fails", "box", failing("createContainer"), []string{"echo", "ran"}, failed, "", ""},
		{
			"its place is kept", "dev", nil,
			[]string{"sh", "-c", "mv /dev/.policyd /dev/x; mv /dev/.policyd/launch /dev/x; rm -r /dev/.policyd; echo >/dev/.policyd/new; echo >/dev/.policyd/launch; echo /dev/.policyd/* /dev/x"},
			0, "/dev/.policyd/launch /dev/.policyd/profile /dev/x\n", "/dev/.policyd/new: Read-only file system",
		},
		{"user namespace", "box", mapped, []string{"sh", "-c", look}, 1, "0\nopen\n", "can't open '/secret': Permission denied"},
		{"hooks", "box", hooks, []string{"cat", "/data/open", "/secret"}, 1, "open\n", "Permission denied"},
		{"no such policy", "none", nil, []string{"echo", "ran"}, 1, "", "none"},
	} {
		code, out, errOut := e.run(tc.profile, tc.change, tc.argv...)
		if (tc.code == failed && code == 0 || tc.code != failed && code != tc.code) || out != tc.out || !strings.Contains(errOut, tc.err) {
			t.Errorf("%s: exit %d, %q, %q; want %d, %q, %q", tc.name, code, out, errOut, tc.code, tc.out, tc.err)
		}
	}
}

func testBindings(t *testing.T, e *engine) {
	by := read(t, e.dir+"/runc.yaml")
	e.put("runc.yaml", by+"select: bindings\n", 0o644)
	defer e.put("runc.yaml", by, 0o644)
	in := func(namespace string) func(map[string]any) {
		return func(spec map[string]any) {
			spec["annotations"] = map[string]any{"io.kubernetes.cri.image-name": "nginx:1", "io.kubernetes.cri.sandbox-namespace": namespace, "policyd.dev/profile": "absent"}
		}
	}
	if code, out, errOut := e.run("", in("edge"), "cat", "/data/open", "/secret"); code != 1 || out != "open\n" || !strings.Contains(errOut, "Permission denied") {
		t.Errorf("bound: exit %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := e.run("", in("core"), "cat", "/data/open"); code != 1 || out != "" || !strings.Contains(errOut, "bindings.unmatched") {
		t.Errorf("not bound: exit %d, %q, %q", code, out, errOut)
	}
}

// Containers that are started at once have each their own.
func testMany(t *testing.T, e *engine) {
	const n = 64
	dirs, ids := make([]string, n), make([]string, n)
	for i := range n {
		dirs[i] = e.bundle("box", nil, "cat", "/data/open", "/secret")
		ids[i] = e.id()
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if code, out, errOut := e.call("run", "--bundle", dirs[i], ids[i]); code != 1 || out != "open\n" || !strings.Contains(errOut, "Permission denied") {
				t.Errorf("one of many: exit %d, %q, %q", code, out, errOut)
			}
		})
	}
	all.Wait()
}

func testCreateAndExec(t *testing.T, e *engine) {
	dir := e.bundle("box", nil, "sleep", "60")
	id := e.id()
	if code, _, errOut := e.call("create", "--bundle", dir, id); code != 0 {
		t.Fatalf("create: exit %d, %q", code, errOut)
	}
	t.Cleanup(func() {
		if code, _, errOut := e.call("delete", "--force", id); code != 0 {
			t.Errorf("delete: exit %d, %q", code, errOut)
		}
		if r, err := containers.Read(e.dir+"/run/containers", e.dir+"/root", id); err == nil {
			t.Errorf("after delete: %+v", r)
		}
	})
	if code, _, errOut := e.call("start", id); code != 0 {
		t.Fatalf("start: exit %d, %q", code, errOut)
	}
	const denied = "can't open '/secret': Permission denied"
	r, err := containers.Read(e.dir+"/run/containers", e.dir+"/root", id)
	if err != nil || r.Version != "box@1" || r.Look().State != containers.Running {
		t.Errorf("its record: %+v, %v", r, err)
	}
	if code, out, errOut := e.call("exec", id, "cat", "/data/open", "/secret"); code != 1 || out != "open\n" || !strings.Contains(errOut, denied) {
		t.Errorf("exec: exit %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := e.call("exec", "--user", "1000:1000", "--cwd", "/bin", id, "./cat", "/secret"); code != 1 || out != "" || !strings.Contains(errOut, denied) {
		t.Errorf("exec as another user: exit %d, %q, %q", code, out, errOut)
	}
	file := e.put("process.json", `{"terminal":false,"user":{"uid":0,"gid":0},"args":["cat","/data/open","/secret"],"env":["PATH=/bin"],"cwd":"/"}`, 0o600)
	if code, out, errOut := e.call("exec", "--process", file, id); code != 1 || out != "open\n" || !strings.Contains(errOut, denied) {
		t.Errorf("exec by a file: exit %d, %q, %q", code, out, errOut)
	}
	free := e.put("process-free.json", `{"terminal":false,"user":{"uid":1000,"gid":1000},"args":["./cat","/data/open","/secret"],"env":["PATH=/bin"],"cwd":"/bin","noNewPrivileges":false}`, 0o600)
	if code, out, errOut := e.call("exec", "--process", free, "--detach=false", id); code != 1 || !strings.Contains(errOut, "without a value") {
		t.Errorf("exec, an option's value: exit %d, %q, %q", code, out, errOut)
	}
	for range 2 { // the second finds the file edited
		if code, out, errOut := e.call("exec", "-p", free, id); code != 1 || out != "open\n" || !strings.Contains(errOut, denied) {
			t.Errorf("exec by a file, another user: exit %d, %q, %q", code, out, errOut)
		}
	}
	pid := e.dir + "/exec.pid"
	if code, _, errOut := e.call("exec", "--detach", "--pid-file", pid, id, "sleep", "60"); code != 0 || read(t, pid) == "" {
		t.Errorf("exec, detached: exit %d, %q", code, errOut)
	}
	if code, out, errOut := e.call("exec", id, "absent"); code != 127 || out != "" || !strings.Contains(errOut, "program not found") {
		t.Errorf("exec of nothing: exit %d, %q, %q", code, out, errOut)
	}
	// Two domains, though of one profile: docs/containers.md tells what that means.
	if code, out, errOut := e.call("exec", id, "cat", "/proc/1/environ"); code != 1 || out != "" || !strings.Contains(errOut, "Permission denied") {
		t.Errorf("exec, a look at the first process: exit %d, %q, %q", code, out, errOut)
	}
	// A second one of its name, without a profile, takes none from the first.
	other := e.bundle("", nil, "true")
	if code, _, _ := e.call("create", "--bundle", other, id); code == 0 {
		t.Error("two containers of one name")
	}
	if code, out, errOut := e.call("exec", id, "cat", "/secret"); code != 1 || out != "" || !strings.Contains(errOut, denied) {
		t.Errorf("exec after that: exit %d, %q, %q", code, out, errOut)
	}
}
