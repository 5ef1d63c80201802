package containers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func record(id string) *Record {
	return &Record{
		ID: id, Version: "web@7", Digest: digest("a"), Ref: "web@stable", Created: time.Now().UTC().Round(0),
		Parameters: map[string]string{"state": "/srv"},
		Workload:   Workload{Image: "nginx:1", Annotations: map[string]string{"policyd.dev/profile": "web@stable"}},
	}
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "er")
	for _, id := range []string{"a", "web_1.x+y-z", "ä", strings.Repeat("x", maxID), "-a", "..a", "a..b"} {
		r := record(id)
		r.Root, r.Bundle, r.PidFile, r.Engine = "/run/x", "/b", "/p", "podman"
		if err := Write(dir, r); err != nil {
			t.Fatalf("%q: %v", id, err)
		}
		got, err := Read(dir, "/run/x", id)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%q: read %+v, %v", id, got, err)
		}
		if _, err := Read(dir, "/run/other", id); !errors.Is(err, ErrNone) {
			t.Errorf("%q of another root: %v", id, err)
		}
		if err := Remove(dir, "/run/x", id); err != nil {
			t.Error(err)
		}
		if err := Remove(dir, "/run/x", id); err != nil {
			t.Errorf("%q: removed twice: %v", id, err)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", st.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestHostileRecordsAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]func(*Record){
		"no id": func(r *Record) { r.ID = "" }, "up": func(r *Record) { r.ID = "../x" }, "dots": func(r *Record) { r.ID = ".." },
		"here": func(r *Record) { r.ID = "." }, "slash": func(r *Record) { r.ID = "a/b" }, "nul": func(r *Record) { r.ID = "a\x00" },
		"newline": func(r *Record) { r.ID = "a\nb" }, "not utf-8": func(r *Record) { r.ID = "a\xff" }, "long": func(r *Record) { r.ID = strings.Repeat("a", maxID+1) },
		"root": func(r *Record) { r.Root = "run" }, "bundle": func(r *Record) { r.Bundle = "b" }, "pid file": func(r *Record) { r.PidFile = "/a\x00" },
		"version": func(r *Record) { r.Version = "web" }, "version number": func(r *Record) { r.Version = "web@x" }, "version name": func(r *Record) { r.Version = "@1" },
		"digest": func(r *Record) { r.Digest = "abc" }, "digest letters": func(r *Record) { r.Digest = digest("A") }, "pid": func(r *Record) { r.Pid = -1 },
		"created": func(r *Record) { r.Created = time.Time{} }, "large": func(r *Record) { r.Workload.Image = strings.Repeat("x", maxRecord) },
	} {
		r := record("a")
		change(r)
		if err := Write(dir, r); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: written: %v", name, err)
		}
	}
	for _, id := range []string{"", "../x", "a/b", ".."} {
		_, rerr := Read(dir, "", id)
		_, serr := Runtime(dir, id)
		if err := Remove(dir, "", id); !errors.Is(err, ErrInvalid) || !errors.Is(rerr, ErrInvalid) || !errors.Is(serr, ErrInvalid) {
			t.Errorf("%q: remove %v, read %v, runtime %v", id, err, rerr, serr)
		}
	}
	if _, err := Runtime("relative", "a"); !errors.Is(err, ErrInvalid) {
		t.Error("relative root:", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A list goes on over whatever lies in the folder, and says what it could not read.
func TestListSurvivesGarbage(t *testing.T) {
	dir := t.TempDir()
	ours := record("alive")
	ours.Pid = os.Getpid()
	if err := Write(dir, ours); err != nil {
		t.Fatal(err)
	}
	whole, _ := ours.encode()
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	put("empty.json", "", 0o600)
	put("half.json", string(whole[:len(whole)/2]), 0o600)
	put("more.json", string(whole)+"{}", 0o600)
	put("unknown.json", `{"id":"a","surprise":1}`, 0o600)
	put("renamed.json", string(whole), 0o600)
	put("writable.json", string(whole), 0o666)
	put("large.json", strings.Repeat(" ", maxRecord+2), 0o600)
	put("notes.txt", "not looked at", 0o600)
	put(".new-1", "cut off", 0o600)
	if err := os.Mkdir(filepath.Join(dir, "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, ours.file()), filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	all, bad := List(dir)
	if len(all) != 1 || all[0].ID != "alive" || all[0].State != Running || all[0].Init != os.Getpid() {
		t.Errorf("list: %+v", all)
	}
	if len(bad) != 9 {
		t.Errorf("%d errors: %v", len(bad), bad)
	}
	if all, bad := List(filepath.Join(dir, "none")); len(all)+len(bad) > 0 {
		t.Error("no folder:", all, bad)
	}
	if _, bad := List(filepath.Join(dir, "notes.txt")); len(bad) != 1 {
		t.Error("a file for a folder:", bad)
	}
}

func TestLife(t *testing.T) {
	root, files := t.TempDir(), t.TempDir()
	self := os.Getpid()
	ticks, ok := startOf(self)
	if !ok || time.Since(started(ticks)) < 0 || time.Since(started(ticks)) > time.Hour {
		t.Fatalf("this process started at %v (%d)", started(ticks), ticks)
	}
	runtime := func(id, file, text string, fifo bool, config string) {
		t.Helper()
		dir := filepath.Join(root, id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{file: text, "config.json": config, "exec.fifo": map[bool]string{true: "-"}[fifo]} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	runc := func(id string, pid int, start uint64, d string, fifo bool) {
		runtime(id, "state.json", fmt.Sprintf(`{"init_process_pid":%d,"init_process_start":%d,"config":{"labels":["bundle=/b","policyd.dev/applied=%s","policyd.dev/version=web@7","x"]}}`, pid, start, d), fifo, "")
	}
	crun := func(id string, pid int, start uint64, config string) {
		runtime(id, "status", fmt.Sprintf(`{"pid":%d,"process-start-time":%d,"bundle":"/b"}`, pid, start), false, config)
	}
	runc("running", self, ticks, digest("a"), false)
	runc("created", self, ticks, digest("a"), true)
	runc("reused", self, ticks+1, digest("a"), false)
	runc("ended", 0, 0, digest("a"), false)
	runc("another", self, ticks, digest("b"), false)
	runc("unconfined", self, ticks, "", false)
	crun("crun", self, ticks, `{"annotations":{"policyd.dev/applied":"`+digest("a")+`"}}`)
	crun("crun-half", self, ticks, "")
	runtime("garbage", "state.json", `{`, false, "")
	runtime("youki", "state.json", `{"ociVersion":"v1.0.2","id":"youki","status":"running","pid":1,"bundle":"/b","annotations":{"policyd.dev/applied":"`+digest("a")+`"}}`, false, "")
	runtime("none-of-crun", "status", `{"pid":1}`, false, `{}`)
	runtime("twice", "state.json", `{"config":{"labels":["bundle=/b","policyd.dev/applied=`+digest("a")+`","policyd.dev/applied=="]}}`, false, "")

	pidFile := func(name, text string, age time.Duration) string {
		t.Helper()
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		id     string
		change func(*Record)
		want   Life
	}{
		{"running", nil, Running},
		{"created", nil, Created},
		{"reused", nil, Stopped},
		{"ended", nil, Stopped},
		{"another", nil, Gone},
		{"unconfined", nil, Gone},
		{"never", nil, Gone},
		{"crun", nil, Running},
		{"crun-half", nil, Unknown},
		{"garbage", nil, Unknown},
		{"twice", nil, Unknown},
		{"youki", nil, Unknown},
		{"none-of-crun", nil, Unknown},
		{"pid", func(r *Record) { r.Root, r.Pid, r.Start = "", self, ticks }, Running},
		{"pid of another", func(r *Record) { r.Root, r.Pid, r.Start = "", self, ticks+1 }, Gone},
		{"no pid", func(r *Record) { r.Root, r.Pid = "", 1<<22+1 }, Gone},
		{"file", func(r *Record) { r.Root, r.PidFile = "", pidFile("a", fmt.Sprintf("%d\n", self), 0) }, Running},
		{"older file", func(r *Record) { r.Root, r.PidFile = "", pidFile("b", fmt.Sprint(self), 48*time.Hour) }, Gone},
		{"no number", func(r *Record) { r.Root, r.PidFile = "", pidFile("c", "x", 0) }, Unknown},
		{"long file", func(r *Record) { r.Root, r.PidFile = "", pidFile("d", strings.Repeat("1", 65), 0) }, Unknown},
		{"negative", func(r *Record) { r.Root, r.PidFile = "", pidFile("e", "-1", 0) }, Unknown},
		{"no file yet", func(r *Record) { r.Root, r.PidFile = "", filepath.Join(files, "none") }, Unknown},
		{"no file", func(r *Record) {
			r.Root, r.PidFile, r.Created = "", filepath.Join(files, "none"), r.Created.Add(-time.Hour)
		}, Gone},
		{"nothing", func(r *Record) { r.Root = "" }, Unknown},
	} {
		r := record(tc.id)
		r.Root = root
		if tc.change != nil {
			tc.change(r)
		}
		if now := r.Look(); now.State != tc.want {
			t.Errorf("%s: %s, want %s", tc.id, now.State, tc.want)
		}
	}
	if st, err := Runtime(root, "running"); err != nil || st.Bundle != "/b" || st.Version != "web@7" || st.Digest != digest("a") {
		t.Errorf("runtime: %+v, %v", st, err)
	}
}

// A create that fails because the name is taken does not change what is said of the container that has it.
func TestOfTwoRecordsTheRuntimesCounts(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	first, second := record("c"), record("c")
	first.Root, second.Root = root, root
	second.Digest, second.Version, second.Created = digest("b"), "web@8", first.Created.Add(time.Second)
	for _, r := range []*Record{first, second} {
		if err := Write(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := Read(dir, root, "c"); err != nil || r.Version != "web@8" {
		t.Errorf("the runtime knows none: %+v, %v", r, err)
	}
	if err := os.Mkdir(filepath.Join(root, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	state := `{"init_process_pid":0,"config":{"labels":["bundle=/b","policyd.dev/applied=` + first.Digest + `"]}}`
	if err := os.WriteFile(filepath.Join(root, "c", "state.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Read(dir, root, "c"); err != nil || r.Version != "web@7" {
		t.Errorf("the runtime has the first: %+v, %v", r, err)
	}
	if all, bad := List(dir); len(all) != 1 || all[0].Version != "web@7" || all[0].State != Stopped || len(bad) > 0 {
		t.Errorf("list: %+v, %v", all, bad)
	}
}

func TestPrune(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	gone, fresh, alive := record("gone"), record("fresh"), record("alive")
	gone.Root, fresh.Root, alive.Pid = root, root, os.Getpid()
	for _, r := range []*Record{gone, fresh, alive} {
		if err := Write(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".new-1", "garbage.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-time.Hour)
	for _, name := range []string{gone.file(), alive.file(), ".new-1", "garbage.json"} {
		if err := os.Chtimes(filepath.Join(dir, name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	if err := Prune(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	want := map[string]bool{fresh.file(): true, alive.file(): true, "garbage.json": true}
	if err != nil || len(names) != len(want) {
		t.Errorf("left %v, %v", names, err)
	}
	for _, n := range names {
		if !want[n] {
			t.Errorf("left %s", n)
		}
	}
	if err := Prune(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

func TestRootOf(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	runc := "/run/runc"
	if os.Geteuid() != 0 {
		runc = "/run/user/7/runc"
	}
	here, _ := filepath.Abs("x")
	for _, tc := range []struct{ runtime, option, want string }{
		{"/usr/sbin/runc", "", runc},
		{"/usr/bin/crun", "", "/run/user/7/crun"},
		{"/usr/bin/youki", "", ""},
		{"/usr/bin/youki", "/r", "/r"},
		{"/usr/sbin/runc", "/run/containerd/runc/k8s.io/", "/run/containerd/runc/k8s.io"},
		{"/usr/sbin/runc", "x", here},
	} {
		if got := RootOf(tc.runtime, tc.option); got != tc.want {
			t.Errorf("%s --root %q: %q, want %q", tc.runtime, tc.option, got, tc.want)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := RootOf("crun", ""); got != "/run/crun" {
		t.Error(got)
	}
}

func FuzzDecode(f *testing.F) {
	b, _ := record("a").encode()
	f.Add(b)
	f.Add([]byte(`{"id":"../x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", b, err)
		}
		if back, err := decode(again); err != nil || back.ID != r.ID || back.Digest != r.Digest {
			t.Fatalf("%q came back as %+v, %v", b, back, err)
		}
		r.file()
	})
}

// A user's engine starts the runtime as root of a user namespace.
func TestRootOfAUser(t *testing.T) {
	const env = "POLICYD_TEST_ROOT_OF"
	if os.Getenv(env) != "" {
		fmt.Println("root:", RootOf("/usr/sbin/runc", ""))
		return
	}
	for user, want := range map[string]string{"alice": "/run/user/7/runc", "root": "/run/runc", "": "/run/runc"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRootOfAUser$")
		cmd.Env = append(os.Environ(), env+"=1", "XDG_RUNTIME_DIR=/run/user/7", "USER="+user)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if cmd.Process == nil {
			t.Skip("no user namespaces here:", err)
		}
		if err != nil || !strings.Contains(string(out), "root: "+want+"\n") {
			t.Errorf("USER=%q: %v, %s, want %s", user, err, out, want)
		}
	}
}
