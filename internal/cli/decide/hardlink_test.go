package decide

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// Hard links in a lower layer of overlayfs have one number and are several
// inodes, those made in the overlay are one: verdicts are the kernel's.
func TestKernelAgreesOnOverlay(t *testing.T) {
	testkernel.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("policyd", dir, "tmpfs", 0, "size=1m"); err != nil {
		testkernel.Skip(t, "mount: "+err.Error(), "run as root with CAP_SYS_ADMIN")
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"/lower", "/upper", "/work", "/on"} {
		must(os.Mkdir(dir+d, 0o755))
	}
	must(os.WriteFile(dir+"/lower/a", nil, 0o644))
	must(os.Link(dir+"/lower/a", dir+"/lower/b"))
	if err := unix.Mount("policyd", dir+"/on", "overlay", 0, "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work"); err != nil {
		testkernel.Skip(t, "overlayfs: "+err.Error(), "a kernel with overlayfs")
	}
	t.Cleanup(func() { unix.Unmount(dir+"/on", unix.MNT_DETACH) })
	must(os.WriteFile(dir+"/on/c", nil, 0o644))
	must(os.Link(dir+"/on/c", dir+"/on/d"))

	sup := landlock.Probe()
	if sup.ABI == 0 {
		testkernel.Skip(t, "Landlock", "a kernel with it, linux 5.13")
	}
	for _, c := range []struct {
		rule, path string
		allowed    bool
	}{{"a", "a", true}, {"a", "b", false}, {"b", "a", false}, {"c", "d", true}, {"d", "d", true}, {"a", "d", false}} {
		p := build(t, []profile.Layer{layer("l", profile.FSReadFile, 0)}, []rule{{0, dir + "/on/" + c.rule, profile.FSReadFile, profile.Fail}})
		d, err := New(p, nil, Options{ABI: sup.ABI, Errata: sup.Errata})
		must(err)
		path := dir + "/on/" + c.path
		q, err := Parse([]string{"open", path, "r"})
		must(err)
		v, err := d.Answer(q)
		must(err)
		var got error
		must(under(p, sup, func() {
			var fd int
			if fd, got = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); got == nil {
				unix.Close(fd)
			}
		}))
		if v.Allowed() != c.allowed || v.Allowed() != (got == nil) || got != nil && !errors.Is(got, syscall.EACCES) {
			t.Errorf("rule on %s, open %s: kernel says %v, verdict %+v", c.rule, c.path, got, v)
		}
	}
}
