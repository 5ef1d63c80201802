package smackfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// labelTree makes a folder with one file of each kind.
func labelTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"a", "a/b", "a/b/c"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"a/prog", "a/b/file", "a/b/c/deep", "outside"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(dir, "a/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(dir, "a/b/up")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "a/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "outside"), filepath.Join(dir, "a/hard")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLabelFilesDry: what would be done, as any user and on any kernel.
func TestLabelFilesDry(t *testing.T) {
	dir := labelTree(t)
	plan := func(l Labelling) (string, *LabelReport) {
		t.Helper()
		l.DryRun = true
		var out strings.Builder
		l.Each = func(c FileChange) {
			fmt.Fprintf(&out, "%s %s %s\n", strings.TrimPrefix(c.Path, dir), c.Attr, c.New)
		}
		r, err := LabelFiles(t.Context(), filepath.Join(dir, "a"), l)
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), r
	}
	got, r := plan(Labelling{Set: map[Attr]string{AttrAccess: "App", AttrExec: "AppX", AttrTransmute: "TRUE"}, Recursive: true})
	want := `/a SMACK64 App
/a SMACK64TRANSMUTE TRUE
/a/b SMACK64 App
/a/b SMACK64TRANSMUTE TRUE
/a/b/c SMACK64 App
/a/b/c SMACK64TRANSMUTE TRUE
/a/b/c/deep SMACK64 App
/a/b/c/deep SMACK64EXEC AppX
/a/b/file SMACK64 App
/a/b/file SMACK64EXEC AppX
/a/b/up SMACK64 App
/a/fifo SMACK64 App
/a/link SMACK64 App
/a/prog SMACK64 App
/a/prog SMACK64EXEC AppX
`
	if got != want {
		t.Errorf("planned:\n%s", got)
	}
	if len(r.Skipped) != 1 || !strings.HasSuffix(r.Skipped[0], "a/hard: has several names (hard links)") || r.Files != 9 {
		t.Errorf("%+v", r)
	}
	if got, r = plan(Labelling{Set: map[Attr]string{AttrMmap: "App"}, Recursive: true, MaxDepth: 1, HardLinks: true}); got != "/a/hard SMACK64MMAP App\n/a/prog SMACK64MMAP App\n" || len(r.Skipped) != 1 {
		t.Errorf("depth 1: %s %v", got, r.Skipped)
	}
	if got, _ = plan(Labelling{Set: map[Attr]string{AttrAccess: "App"}}); got != "/a SMACK64 App\n" {
		t.Errorf("one: %s", got)
	}

	for name, l := range map[string]Labelling{
		"bad label":         {Set: map[Attr]string{AttrAccess: "a/b"}},
		"empty label":       {Set: map[Attr]string{AttrAccess: ""}},
		"program as star":   {Set: map[Attr]string{AttrExec: "*"}},
		"transmute false":   {Set: map[Attr]string{AttrTransmute: "FALSE"}},
		"exec of a folder":  {Set: map[Attr]string{AttrExec: "A"}},
		"of sockets":        {Set: map[Attr]string{AttrIPIn: "A"}},
		"unknown":           {Set: map[Attr]string{"SMACK65": "A"}},
		"set and removed":   {Set: map[Attr]string{AttrAccess: "A"}, Remove: []Attr{AttrAccess}},
		"unknown to remove": {Remove: []Attr{"X"}},
	} {
		l.DryRun = true
		if r, err := LabelFiles(t.Context(), filepath.Join(dir, "a"), l); !errors.Is(err, errs.ErrInvalid) || r != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LabelFiles(t.Context(), dir+"/none", Labelling{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := LabelFiles(ctx, dir, Labelling{Recursive: true}); !errors.Is(err, context.Canceled) || r.Files != 0 {
		t.Errorf("canceled: %v %v", err, r)
	}
}

// testFileLabels runs on kernels with Smack.
func testFileLabels(t *testing.T) {
	dir := labelTree(t)
	a := filepath.Join(dir, "a")
	set := Labelling{Set: map[Attr]string{AttrAccess: "App", AttrExec: "AppX", AttrMmap: "AppM", AttrTransmute: "TRUE"}, Recursive: true}
	r, err := LabelFiles(t.Context(), a, set)
	if err != nil || r.Changes == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for path, want := range map[string]string{
		a:                              "map[SMACK64:App SMACK64TRANSMUTE:TRUE]",
		a + "/prog":                    "map[SMACK64:App SMACK64EXEC:AppX SMACK64MMAP:AppM]",
		a + "/b/c/deep":                "map[SMACK64:App SMACK64EXEC:AppX SMACK64MMAP:AppM]",
		a + "/link":                    "map[SMACK64:App]",
		filepath.Join(dir, "outside"):  "map[SMACK64:_]",
		filepath.Join(a, "b/up"):       "map[SMACK64:App]",
		filepath.Join(a, "b/up/fifo"):  "map[SMACK64:App]",
		filepath.Join(dir, "a/b/file"): "map[SMACK64:App SMACK64EXEC:AppX SMACK64MMAP:AppM]",
	} {
		got, err := FileLabels(path)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v, want %s", path, got, err, want)
		}
	}
	changes := r.Changes
	if r, err = LabelFiles(t.Context(), a, set); err != nil || r.Changes != 0 || r.Kept != changes {
		t.Errorf("again: %+v, %v", r, err)
	}
	if r, err = LabelFiles(t.Context(), a, Labelling{Remove: []Attr{AttrExec, AttrMmap, AttrTransmute}, Recursive: true}); err != nil || r.Changes != 9 {
		t.Errorf("removed: %+v, %v", r, err)
	}
	if label, err := ExecLabel(a + "/prog"); err != nil || label != "" {
		t.Errorf("exec label %q, %v", label, err)
	}
}

// testProcessLabels: of threads, processes and peers.
func testProcessLabels(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asThread(t, "ProcLabel", func() {
		if label, err := ThreadLabel(); err != nil || label != "ProcLabel" {
			t.Errorf("thread: %q, %v", label, err)
		}
		if label, err := ProcessLabel(unix.Gettid()); err != nil || label != "ProcLabel" {
			t.Errorf("thread by id: %q, %v", label, err)
		}
		// The socket's label is that of the thread that makes it, which is here.
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: sock}); err != nil {
			t.Error(err)
			return
		}
		if label, err := PeerLabel(fd); err != nil || label != "_" {
			t.Errorf("the listener's label: %q, %v", label, err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		_ = raw.Control(func(fd uintptr) {
			if label, err := PeerLabel(int(fd)); err != nil || label != "ProcLabel" {
				t.Errorf("peer: %q, %v", label, err)
			}
		})
		if err := SetSocketLabel(fd, AttrIPOut, "SockOut"); err != nil {
			t.Error(err)
		}
	})
	if label, err := ProcessLabel(os.Getpid()); err != nil || label != "_" {
		t.Errorf("process: %q, %v", label, err)
	}
	if _, err := ProcessLabel(1 << 30); err == nil {
		t.Error("no such process has a label")
	}
}

// asThread runs f on a thread of its own with a label; the thread ends with it.
func asThread(t *testing.T, label string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := os.WriteFile("/proc/thread-self/attr/smack/current", []byte(label), 0); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestProcessLabelsWithoutSmack(t *testing.T) {
	if _, err := ThreadLabel(); err == nil {
		t.Skip("the kernel has Smack")
	} else if !errors.Is(err, errs.ErrSmackDisabled) {
		t.Error(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if _, err := PeerLabel(fds[0]); !errors.Is(err, errs.ErrSmackDisabled) {
		t.Errorf("peer: %v", err)
	}
	if err := SetSocketLabel(fds[0], AttrAccess, "A"); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("socket: %v", err)
	}
	if err := SetSocketLabel(fds[0], AttrIPIn, "a/b"); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("socket: %v", err)
	}
}
