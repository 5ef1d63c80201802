package landlock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Walking leads where openat2 leads, and refuses at least what that refuses.
func TestWalking(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a/f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"c/rel": "../a/b", "c/abs": dir + "/a", "c/chain": "abs/f", "c/loop": "loop", "c/dangling": "none",
		"c/up": "..", "c/slash": "../a/", "c/file": "../a/f", "c/fileslash": "../a/f/", "c/proc": "/proc/self/root", "c/root": "/",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"/", "//", "/usr//bin/./sh", "/bin/sh", "/..", "/../usr", "/etc/mtab", "/etc/mtab/", "/dev/null", "/dev/null/", "/proc/sys", "/proc/mounts", "/" + strings.Repeat("x", 256), "/" + strings.Repeat("x/", 3000), "/nothing/here"}
	for _, p := range []string{"a", "a/", "a/f", "a/f/", "a/f/x", "a/../c", "c/rel", "c/rel/", "c/rel/..", "c/abs/f", "c/chain", "c/loop", "c/dangling", "c/up/a/f", "c/slash/f", "c/file", "c/file/", "c/fileslash", "c/proc", "c/proc/usr", "c/root", "c/root/usr"} {
		paths = append(paths, filepath.Join(dir, "x")[:len(dir)+1]+p)
	}
	compared := 0
	for _, path := range paths {
		want, werr := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
		got, err := openWalking(path)
		if !errors.Is(err, werr) {
			t.Errorf("%s: %v, openat2 says %v", path, err, werr)
		}
		if err == nil && werr == nil {
			var g, w unix.Stat_t
			if unix.Fstat(got, &g) != nil || unix.Fstat(want, &w) != nil || g.Ino != w.Ino || g.Dev != w.Dev {
				t.Errorf("%s leads to %d, openat2 to %d", path, g.Ino, w.Ino)
			}
			compared++
		}
		unix.Close(got)
		unix.Close(want)
	}
	if compared < 20 {
		t.Errorf("%d paths compared", compared)
	}
	for _, path := range []string{"/proc/self/cwd", "/proc/self/fd/0", "/proc/thread-self/root/usr", "/proc/self/exe", "/proc/self/ns/mnt", "/proc/1/root"} {
		if fd, err := openWalking(path); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %d, %v", path, fd, err)
		}
	}
}
