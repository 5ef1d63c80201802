package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/containers"
)

// other makes policyd answer with another profile from now on.
func (h *host) other(name string) (digest string) {
	h.t.Helper()
	b := profile.NewBuilder([]profile.Layer{{Name: name, FS: profile.FSReadFile}})
	p, err := b.Build()
	if err != nil {
		h.t.Fatal(err)
	}
	h.policyd.encoded = p.Encode()
	return profile.Digest(h.policyd.encoded)
}

func (h *host) profiles() []string {
	all, err := filepath.Glob(h.path("run/profiles/sha256-*"))
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// start has the wrapper create a container of a name, as the fake runtime does: not at all.
func (h *host) start(root, id string) {
	h.t.Helper()
	h.put("bundle/config.json", config(`"policyd.dev/profile":"web@stable","io.kubernetes.cri.container-name":"app","io.kubernetes.cri.image-name":"nginx:1"`), 0o644)
	if code, _, errOut := h.run("--root", root, "create", "--bundle", ".", "--pid-file", "pid", id); code != 42 {
		h.t.Fatal(code, errOut)
	}
}

func TestRecords(t *testing.T) {
	h := newHost(t, "")
	root := h.path("root")
	h.start(root, "one")
	r, err := containers.Read(h.path("run/containers"), root, "one")
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != "web@7" || r.Digest != profile.Digest(h.policyd.encoded) || r.Ref != "web@stable" || r.Bundle != h.path("bundle") ||
		r.PidFile != h.path("bundle/pid") || r.Runtime != h.path("runtime") || r.LastKnown || r.Workload.Image != "nginx:1" || r.Workload.Name != "app" ||
		time.Since(r.Created) > time.Minute {
		t.Errorf("%+v", r)
	}
	// A container that policyd has nothing to do with leaves none, and a refused one neither.
	h.put("bundle/config.json", config(""), 0o644)
	h.run("--root", root, "create", "plain")
	h.put("bundle/config.json", config(`"policyd.dev/profile":"none"`), 0o644)
	h.run("--root", root, "create", "refused")
	if all, err := filepath.Glob(h.path("run/containers/*")); len(all) != 1 || err != nil {
		t.Errorf("records %v, %v", all, err)
	}
	// What the runtime will not delete stays.
	h.state(root, "one", os.Getpid(), r.Digest)
	for _, args := range [][]string{{"delete", "one"}, {"delete", "--all", "one"}, {"delete", "other"}, {"delete"}, {"delete", "--force"}, {"delete", "../one"}} {
		if code, out, _ := h.run(append([]string{"--root", root}, args...)...); code != 42 || !strings.Contains(out, "<delete>") {
			t.Errorf("%q: exit %d, %q", args, code, out)
		}
		if _, err := containers.Read(h.path("run/containers"), root, "one"); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	h.run("--root", root, "delete", "--force", "one")
	if _, err := containers.Read(h.path("run/containers"), root, "one"); err == nil {
		t.Error("deleted by force, and the record is there")
	}
	for _, id := range []string{"", "a/b", ".."} {
		h.put("bundle/config.json", config(`"policyd.dev/profile":"web@stable"`), 0o644)
		if code, _, errOut := h.run("create", id); code != 1 || !strings.Contains(errOut, "no id of a container") {
			t.Errorf("id %q: exit %d, %q", id, code, errOut)
		}
	}
}

// state is what runc keeps of a container.
func (h *host) state(root, id string, pid int, digest string) {
	h.t.Helper()
	rel, err := filepath.Rel(h.dir, root)
	if err != nil {
		h.t.Fatal(err)
	}
	labels := `"bundle=/b"`
	if digest != "" {
		labels += `,"policyd.dev/applied=` + digest + `"`
	}
	h.put(filepath.Join(rel, id, "state.json"), fmt.Sprintf(`{"id":%q,"init_process_pid":%d,"config":{"labels":[%s]}}`, id, pid, labels), 0o600)
}

// exec reads what the runtime keeps, and starts it once.
func TestExecReadsState(t *testing.T) {
	h := newHost(t, "")
	root := h.path("root")
	h.put("bundle/x", "", 0o644)
	h.env = []string{"STATE="} // the runtime knows nothing
	h.state(root, "free", os.Getpid(), "")
	h.state(root, "kept", os.Getpid(), "sha256:12")
	if code, out, errOut := h.run("--root", root, "exec", "kept", "ls"); code != 42 || !strings.Contains(out, "<kept></dev/.policyd/launch>") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := h.run("--root", root, "exec", "free", "ls"); code != 42 || !strings.Contains(out, "<free><ls>") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	// What cannot be read is asked, and what is not known there is refused.
	h.put("root/torn/state.json", "{", 0o600)
	if code, out, errOut := h.run("--root", root, "exec", "torn", "ls"); code != 1 || out != "" || !strings.Contains(errOut, "does not exist") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	h.env = []string{`STATE={"annotations":{"policyd.dev/applied":"sha256:34"}}`}
	h.put("root/other/state.json", `{"id":"other","status":"running","pid":1,"bundle":"/b","annotations":{}}`, 0o600) // of another runtime
	for _, id := range []string{"torn", "other"} {
		if code, out, errOut := h.run("--root", root, "exec", id, "ls"); code != 42 || !strings.Contains(out, "sha256:34") {
			t.Errorf("%s: exit %d, %q, %q", id, code, out, errOut)
		}
	}
}

// A profile's file is there as long as a container is known under it, and goes when another profile is added.
func TestUnusedProfiles(t *testing.T) {
	h := newHost(t, "")
	root := h.path("root")
	first := profile.Digest(h.policyd.encoded)
	h.start(root, "one")
	h.state(root, "one", os.Getpid(), first)
	second := h.other("second")
	h.start(root, "two")
	h.state(root, "two", os.Getpid(), second)
	if got := h.profiles(); len(got) != 2 {
		t.Fatalf("two in use: %v", got)
	}
	h.run("--root", root, "delete", "--force", "one")
	h.put("run/profiles/.new-123", "left by one that was killed", 0o600)

	// Somebody is starting a container: nothing is removed.
	lock, err := os.Open(h.path("run/profiles/.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	third := h.other("third")
	h.start(root, "three")
	if got := h.profiles(); len(got) != 3 {
		t.Errorf("while another starts: %v", got)
	}
	lock.Close()
	h.state(root, "three", os.Getpid(), third)
	fourth := h.other("fourth")
	h.start(root, "four")
	for digest, want := range map[string]bool{first: false, second: true, third: true, fourth: true} {
		if _, err := os.Stat(h.path("run/profiles/" + strings.ReplaceAll(digest, ":", "-"))); (err == nil) != want {
			t.Errorf("%s: %v", digest, err)
		}
	}
	if _, err := os.Stat(h.path("run/profiles/.new-123")); err == nil {
		t.Error("what a killed one left is there")
	}
	// A record that cannot be read may be of any profile.
	h.put("run/containers/"+strings.Repeat("0", 65)+".json", "{", 0o600)
	h.run("--root", root, "delete", "--force", "two")
	h.other("fifth")
	h.start(root, "five")
	if _, err := os.Stat(h.path("run/profiles/" + strings.ReplaceAll(second, ":", "-"))); err != nil {
		t.Errorf("removed, though a record cannot be read: %v", err)
	}
}

// A file that a loss of power has cut off, or that somebody changed, is made anew; a container has the right one.
func TestProfileFileMadeAnew(t *testing.T) {
	h := newHost(t, "")
	h.start(h.path("root"), "one")
	file := h.path("run/profiles/" + strings.ReplaceAll(profile.Digest(h.policyd.encoded), ":", "-"))
	for _, content := range []string{"", "spoiled", string(h.policyd.encoded) + "x", string(h.policyd.encoded[:10])} {
		os.Remove(file)
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		h.start(h.path("root"), "one")
		if got, err := os.ReadFile(file); err != nil || string(got) != string(h.policyd.encoded) {
			t.Errorf("%q: %q, %v", content, got, err)
		}
	}
	h.put("runc.yaml", strings.Replace(h.read("runc.yaml"), h.path("run/containers"), h.path("deep/run/containers"), 1), 0o644)
	h.start(h.path("root"), "one")
	for path, want := range map[string]os.FileMode{"deep": 0o755, "deep/run": 0o700, "deep/run/profiles": 0o700, "deep/run/containers": 0o700} {
		if st, err := os.Stat(h.path(path)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o444 {
		t.Errorf("%v, %v: a container's user must read it", st.Mode(), err)
	}
}

// What policyd refuses is not given when it is away.
func TestLastKnownForgotten(t *testing.T) {
	half := newHost(t, "unreachable: last-known\n")
	half.start("r", "one")
	half.policyd.limited.Store(true)
	half.put("bundle/config.json", config(`"policyd.dev/profile":"web@stable"`), 0o644)
	for _, want := range []string{"process.limits", "none is known"} {
		if code, _, errOut := half.run("run", "two"); code != 1 || !strings.Contains(errOut, want) {
			t.Errorf("exit %d, %q, want %q", code, errOut, want)
		}
		half.server.Stop()
	}
	h := newHost(t, "unreachable: last-known\n")
	h.start("r", "one")
	files, _ := filepath.Glob(h.path("state/last/*"))
	if len(files) != 1 {
		t.Fatal(files)
	}
	kept := h.read("state/last/" + filepath.Base(files[0]))
	h.policyd.gone.Store(true)
	h.put("bundle/config.json", config(`"policyd.dev/profile":"web@stable"`), 0o644)
	if code, _, errOut := h.run("run", "two"); code != 1 || !strings.Contains(errOut, "was deleted") {
		t.Fatal(code, errOut)
	}
	if files, _ := filepath.Glob(h.path("state/last/*")); len(files) != 0 {
		t.Errorf("kept %v", files)
	}
	h.server.Stop()
	if code, _, errOut := h.run("run", "two"); code != 1 || !strings.Contains(errOut, "none is known") {
		t.Errorf("exit %d, %q", code, errOut)
	}
	// Nor is that of others: a file anybody can write, a link, one of another question.
	name := "state/last/" + filepath.Base(files[0])
	h.put(name, kept, 0o600)
	if code, _, errOut := h.run("run", "two"); code != 42 {
		t.Errorf("exit %d, %q", code, errOut)
	}
	h.put("bundle/config.json", config(`"policyd.dev/profile":"web@stable"`), 0o644)
	os.Chmod(h.path(name), 0o666)
	if code, _, errOut := h.run("run", "two"); code != 1 || !strings.Contains(errOut, "can write") {
		t.Errorf("for everybody to write: exit %d, %q", code, errOut)
	}
	os.Remove(h.path(name))
	h.put(name, strings.Replace(kept, `"ref":"web@stable"`, `"ref":"other"`, 1), 0o600)
	if code, _, errOut := h.run("run", "two"); code != 1 || !strings.Contains(errOut, "another question") {
		t.Errorf("of another: exit %d, %q", code, errOut)
	}
}

// A container that the runtime is still making is known to nobody but its record.
func TestProfileOfAContainerInTheMaking(t *testing.T) {
	h := newHost(t, "")
	root := h.path("root")
	first := profile.Digest(h.policyd.encoded)
	h.start(root, "one") // and the runtime has no state of it yet
	h.other("second")
	h.start(root, "two")
	if _, err := os.Stat(h.path("run/profiles/" + strings.ReplaceAll(first, ":", "-"))); err != nil {
		t.Errorf("its profile was taken away: %v", err)
	}
}
