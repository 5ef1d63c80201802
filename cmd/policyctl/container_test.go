package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
)

const boxPolicy = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: box}
spec:
  abi: 3
  parameters: [{name: state, within: [/data, /mnt]}]
  variables: {state: [/data]}
  layers:
    - name: outer
      paths:
        - {allow: [all], at: [/]}
    - name: inner
      paths:
        - {allow: [read, execute], at: [/bin]}
        - {allow: [read], at: ["${state}", /proc]}
`

// host is a policyd with an OCI runtime behind policyd-runc.
type host struct {
	t        *testing.T
	dir      string
	socket   string
	programs string
	runtime  string
}

func newHost(t *testing.T, runtime string) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir(), programs: t.TempDir(), runtime: runtime}
	path := testkernel.RequireTool(t, runtime, "apt-get install "+runtime)
	cmd := exec.Command("go", "build", "-o", h.programs+"/", "../policyd-runc", "../policyd-launch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h.put("policyd.yaml", "")
	h.socket = filepath.Join(h.dir, "s/run/policyd.sock")
	h.put("runc.yaml", fmt.Sprintf("runtime: %s\nsocket: %s\nstate: %s/st\nrecords: %s/s/run/oci/containers\n", path, h.socket, h.dir, h.dir))
	daemon := exec.Command(filepath.Join(daemons, "policyd"), "--config", h.dir+"/policyd.yaml", "--state-dir", h.dir+"/s")
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	if code, out := h.ctl("status", "--wait=20", "-q"); code != 0 {
		t.Fatal(out)
	}
	return h
}

func (h *host) put(name, text string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// ctl runs policyctl and gives all that it prints.
func (h *host) ctl(args ...string) (code int, out string) {
	h.t.Helper()
	return h.call(append([]string{filepath.Join(daemons, "policyctl"), "--socket", h.socket}, args...))
}

// runc runs the runtime; crun refuses hybrid cgroups, so it does not get to see them.
func (h *host) runc(args ...string) (code int, out string) {
	h.t.Helper()
	argv := append([]string{h.programs + "/policyd-runc", "--root", h.dir + "/root"}, args...)
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err == nil && h.runtime == "crun" {
		argv = append([]string{"unshare", "-m", "sh", "-c", `umount -l /sys/fs/cgroup/unified; exec "$@"`, "sh"}, argv...)
	}
	return h.call(argv)
}

// call gives a program a file to write to and no pipe, which a container would hold.
func (h *host) call(argv []string) (code int, out string) {
	h.t.Helper()
	f, err := os.CreateTemp(h.dir, "out")
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), "POLICYD_RUNC_CONFIG="+h.dir+"/runc.yaml", "NO_COLOR=1")
	if err := cmd.Run(); cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		h.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// bundle is a container of busybox on an overlay, with hard links in its lower layer and a folder of the host at /mnt.
func (h *host) bundle(annotations map[string]string) string {
	h.t.Helper()
	program, err := os.ReadFile(testkernel.RequireTool(h.t, "busybox", "apt-get install busybox-static"))
	if err != nil {
		h.t.Fatal(err)
	}
	busybox := h.put("lower/bin/busybox", string(program))
	h.put("lower/data/open", "open\n")
	h.put("lower/etc/shadow", "told\n")
	h.put("hosted/file", "hosted\n")
	err = os.Chmod(busybox, 0o755)
	for _, name := range []string{"sh", "cat", "sleep"} {
		err = errors.Join(err, os.Link(busybox, h.dir+"/lower/bin/"+name))
	}
	for _, d := range []string{"lower/proc", "lower/dev", "lower/sys", "lower/mnt", "upper", "work", "bundle/rootfs"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(h.dir, d), 0o755))
	}
	if err != nil {
		h.t.Fatal(err)
	}
	root := h.dir + "/bundle/rootfs"
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", h.dir, h.dir, h.dir)
	if err := syscall.Mount("overlay", root, "overlay", 0, options); err != nil {
		testkernel.Skip(h.t, "overlayfs", "run where it can be mounted: "+err.Error())
	}
	h.t.Cleanup(func() {
		if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
			h.t.Error(err)
		}
	})
	text, err := os.ReadFile("../../enforce/oci/testdata/runc-spec.json")
	if err != nil {
		h.t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		h.t.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"sleep", "60"}
	delete(process, "rlimits") // more than the machine may allow
	spec["annotations"] = annotations
	spec["mounts"] = append(spec["mounts"].([]any), map[string]any{"destination": "/mnt", "type": "bind", "source": h.dir + "/hosted", "options": []string{"bind", "ro"}})
	if text, err = json.Marshal(spec); err != nil {
		h.t.Fatal(err)
	}
	h.put("bundle/config.json", string(text))
	return h.dir + "/bundle"
}

// A container is listed with what it runs under and what it would get now, and what it is refused is explained as
// paths are in it.
func TestContainers(t *testing.T) {
	testkernel.RequireRoot(t)
	for _, runtime := range []string{"runc", "crun"} {
		t.Run(runtime, func(t *testing.T) { testContainer(t, newHost(t, runtime)) })
	}
}

func testContainer(t *testing.T, h *host) {
	id := fmt.Sprintf("policyctl-test-%d-%s", os.Getpid(), h.runtime)
	policy := h.put("box.yaml", boxPolicy)
	if code, out := h.ctl("apply", "-f", policy); code != 0 {
		t.Fatal(out)
	}
	dir := h.bundle(map[string]string{"policyd.dev/profile": "box", "policyd.dev/param.state": "/etc"})
	if code, out := h.runc("create", "--bundle", dir, id); code != 1 || !strings.Contains(out, `policyd.dev/param.state="/etc"`) || !strings.Contains(out, "within") {
		t.Fatalf("a value that the policy does not take: exit %d, %s", code, out)
	}
	config, err := os.ReadFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	h.put("bundle/config.json", strings.Replace(string(config), `"policyd.dev/param.state":"/etc"`, `"policyd.dev/param.state":"/mnt"`, 1))
	if code, out := h.runc("create", "--bundle", dir, id); code != 0 {
		testkernel.Skip(t, h.runtime+" in working order", "run where containers can be started; it says: "+out)
	}
	t.Cleanup(func() { h.runc("delete", "--force", id) })
	expect := func(code int, args []string, want ...string) {
		t.Helper()
		got, out := h.ctl(args...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%q: no %q in\n%s", args, w, out)
			}
		}
		if got != code {
			t.Errorf("%q: exit %d, want %d\n%s", args, got, code, out)
		}
	}
	expect(0, []string{"ps"}, id+"  box@1   created")
	if code, out := h.runc("start", id); code != 0 {
		t.Fatal(out)
	}
	// The launcher opens the paths of the policy and is then the program.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if code, _ := h.runc("exec", id, "cat", "/mnt/file"); code == 0 {
			break
		}
	}
	expect(0, []string{"ps", "--containers", "-o", "wide"}, "box@1   running", "asked for box, with state=/mnt")
	expect(0, []string{"ps", "--containers", "-o", "json"}, `"state": "CONTAINER_STATE_RUNNING"`, `"ref": "box"`, `"outdated": false`)
	expect(0, []string{"ps", "-o", "yaml"}, "id: "+id)
	expect(0, []string{"ps", "--containers", "-o", "name"}, "container/"+id)
	if _, out := h.ctl("ps", "-o", "name"); out != "" {
		t.Errorf("names for kill and rm: %s", out)
	}
	isContainer := " is a container, which its engine starts and ends: "
	expect(1, []string{"kill", id}, id+isContainer+h.runtime+" --root "+h.dir+"/root kill "+id)
	expect(1, []string{"logs", "container/" + id}, isContainer+"what called "+h.runtime)
	expect(125, []string{"wait", id[:len(id)-2]}, isContainer)
	if _, out := h.ctl("ps", "--sandboxes"); strings.Contains(out, id) {
		t.Errorf("sandboxes alone: %s", out)
	}

	question := func(words ...string) []string { return append([]string{"explain", "--container", id, "--"}, words...) }
	expect(1, question("open", "/etc/shadow", "r"), "container "+id+" (box@1): open /etc/shadow r: refused with EACCES",
		"+ outer: read_file by /", "layer inner refuses: no rule grants read_file", "box.yaml:12")
	expect(0, question("open", "/mnt/file", "r"), "+ inner: read_file by /mnt", "box.yaml:15")
	expect(1, question("open", "/data/open", "r"), "layer inner refuses")
	expect(0, question("exec", "/bin/cat"), "+ inner: execute, read_file by /bin")
	expect(2, question("rename", "/data/open", "/mnt/x"), "different mounts")
	expect(1, []string{"check", "--container", "container/" + id[:len(id)-1], "-o", "json", "--", "open", "etc/shadow", "r"}, `"verdict": "deny"`, `"name": "inner"`)
	expect(1, []string{"check", "--container", id, "--lexical", "--", "open", "/etc/shadow", "r"}, "layer inner refuses")
	// The container does what was said.
	if code, out := h.runc("exec", id, "cat", "/mnt/file", "/etc/shadow", "/data/open"); code != 1 || !strings.Contains(out, "hosted\n") || !strings.Contains(out, "'/etc/shadow': Permission denied") || !strings.Contains(out, "'/data/open': Permission denied") {
		t.Errorf("exec: exit %d, %s", code, out)
	}
	// A value leads nowhere else in the container either.
	if err := os.Symlink("/etc", h.dir+"/hosted/out"); err != nil {
		t.Fatal(err)
	}
	config, err = os.ReadFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	h.put("bundle/config.json", strings.Replace(string(config), `"policyd.dev/param.state":"/mnt"`, `"policyd.dev/param.state":"/mnt/out"`, 1))
	if code, out := h.runc("run", "--bundle", dir, id+"-out"); code != 125 || !strings.Contains(out, "must lie within") {
		t.Errorf("a link out of within: exit %d, %s", code, out)
	}
	// Nothing of the look is left in it.
	if _, out := h.runc("exec", id, "cat", "/proc/self/mounts"); strings.Count(out, " /dev/.policyd") != 3 {
		t.Errorf("mounts:\n%s", out)
	}

	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"explain", "--container", "none", "--", "open", "/a", "r"}, 2, "policyd knows none"},
		{[]string{"explain", "--container", "", "--", "open", "/a", "r"}, 2, "the id is empty"},
		{[]string{"explain", "--container", "../" + id, "--", "open", "/a", "r"}, 2, "policyd knows none"},
		{[]string{"explain", "box", "--container", id, "--", "open", "/a", "r"}, 2, "only one of them"},
		{[]string{"explain", "-f", policy, "--container", id, "--", "open", "/a", "r"}, 2, "only one of them"},
		{[]string{"check", "--container", id, "--set", "state=/mnt", "--", "open", "/a", "r"}, 2, "leave --set"},
		{[]string{"check", "--container", id, "--abi", "3", "--", "open", "/a", "r"}, 2, "leave --set and --abi"},
		{[]string{"check", "--container", id}, 2, "the question is missing"},
		{[]string{"ps", "-o", "dot"}, 2, "this command can do"},
	} {
		expect(tc.code, tc.args, tc.want)
	}
	if _, out := h.ctl("__complete", "explain", "--container", "policyctl-test-"); !strings.Contains(out, id+"\tbox@1") {
		t.Errorf("completion: %s", out)
	}

	// What it would get now.
	h.put("box.yaml", strings.Replace(boxPolicy, "name: box", "name: box, description: newer", 1))
	expect(0, []string{"apply", "-f", policy}, "changed")
	expect(0, []string{"ps", "--outdated"}, id, "outdated: now box@2")
	expect(0, []string{"ps", "--outdated", "--policy", "none", "-o", "json"}, `"containers": []`)
	// A version that policyd no longer has is taken from the container itself.
	expect(0, []string{"delete", "box", "--expect", "2"})
	expect(0, []string{"ps", "-o", "wide"}, "outdated: it would not be started now: ", "deleted")
	expect(1, question("open", "/etc/shadow", "r"), "layer inner refuses", "policyd no longer has the version")

	testNoSmack(h, id, dir)
	if code, out := h.runc("kill", id, "KILL"); code != 0 {
		t.Fatal(out)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, out := h.ctl("ps", "--containers", "-a"); strings.Contains(out, "ended") {
			break
		}
	}
	if _, out := h.ctl("ps", "--containers"); strings.Contains(out, id) {
		t.Errorf("ended ones without -a: %s", out)
	}
	expect(2, question("open", "/etc/shadow", "r"), "it does not run")
	if code, out := h.runc("delete", id); code != 0 {
		t.Fatal(out)
	}
	if _, out := h.ctl("ps", "--containers", "-a"); strings.Contains(out, id) {
		t.Errorf("after delete: %s", out)
	}
}

// Without Smack in the kernel a container of a policy with a label is not started, unless the policy says degrade.
func testNoSmack(h *host, id, dir string) {
	t := h.t
	t.Helper()
	if _, err := os.Stat("/proc/self/attr/smack/current"); err == nil {
		return // with Smack it is the affair of the tests of policyd-runc
	}
	text := strings.Replace(boxPolicy, "  layers:", "  process: {smackLabel: Web}\n  layers:", 1)
	hard := h.put("hard.yaml", strings.Replace(text, "name: box", "name: hard", 1))
	soft := h.put("soft.yaml", strings.Replace(strings.Replace(text, "name: box", "name: soft", 1), "spec:", "spec:\n  enforcement: degrade", 1))
	if code, out := h.ctl("apply", "-f", hard, "-f", soft); code != 0 {
		t.Fatal(out)
	}
	config, err := os.ReadFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	under := func(policy string) (code int, out string) {
		h.put("bundle/config.json", strings.Replace(string(config), `"policyd.dev/profile":"box"`, `"policyd.dev/profile":"`+policy+`"`, 1))
		return h.runc("create", "--bundle", dir, id+"-"+policy)
	}
	if code, out := under("hard"); code != 1 || !strings.Contains(out, "its Smack label Web: ") || !strings.Contains(out, "smack is not") {
		t.Errorf("a label on a kernel without Smack: exit %d, %s", code, out)
	}
	h.put("bundle/config.json", strings.Replace(string(config), `"policyd.dev/param.state":"/mnt/out"`, `"policyd.dev/param.state":"/mnt"`, 1))
	config, err = os.ReadFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if code, out := under("soft"); code != 0 {
		t.Fatalf("degrade: exit %d, %s", code, out)
	}
	defer h.runc("delete", "--force", id+"-soft")
	if _, out := h.ctl("ps", "--containers", "--policy", "soft", "-o", "wide"); !strings.Contains(out, "not enforced: Smack label Web (this kernel has no Smack)") {
		t.Errorf("ps: %s", out)
	}
}
