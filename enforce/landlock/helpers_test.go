package landlock

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

const read = profile.FSReadFile | profile.FSReadDir

type rule struct {
	path    string
	access  profile.Access
	missing profile.Missing
}

// layers makes n layers, that handle what ABI 1 has.
func layers(names ...string) []profile.Layer {
	var ls []profile.Layer
	for _, n := range names {
		ls = append(ls, profile.Layer{Name: n, FS: profile.Handled(profile.FS, 1)})
	}
	return ls
}

// newProfile makes a profile; a rule of every layer for each of rules.
func newProfile(t testing.TB, ls []profile.Layer, rules ...rule) *profile.Profile {
	t.Helper()
	b := profile.NewBuilder(ls)
	for i := range ls {
		for _, r := range rules {
			b.AddPath(i, r.path, r.access, false, r.missing)
		}
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func support(t testing.TB) Support {
	t.Helper()
	sup := Probe()
	if sup.State != Available {
		testkernel.Skip(t, "Landlock on the host", sup.Err.Error())
	}
	return sup
}

// leakCheck fails the test when it leaves more descriptors open than it found.
func leakCheck(t testing.TB) {
	t.Helper()
	if r, w, err := os.Pipe(); err == nil { // the first pollable file opens the netpoller's own
		r.Close()
		w.Close()
	}
	before := countFDs(t)
	t.Cleanup(func() {
		if after := countFDs(t); after > before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}

func countFDs(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// restricted runs f on a thread under the rulesets, which ends after it.
func restricted(t testing.TB, r *Rulesets, f func()) {
	t.Helper()
	var err error
	onThread(func() {
		if err = r.RestrictThread(); err == nil {
			f()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// onThread runs f on a thread that ends after it (never the process's first, which would not).
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(f)
			runtime.UnlockOSThread()
		} else {
			f()
		}
		close(done)
	}()
	<-done
}

func canRead(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// tree makes files with their folders and gives the root.
func tree(t testing.TB, files ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(root, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
