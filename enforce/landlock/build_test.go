package landlock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// TestPathTypes: a FIFO, a device, a socket or a file as a rule's path neither
// blocks nor fails; rights only a directory has are told.
func TestPathTypes(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	root := tree(t, "file")
	fifo, sock := filepath.Join(root, "fifo"), filepath.Join(root, "sock")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(sock, unix.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	for path, typ := range map[string]string{
		fifo: "named pipe", sock: "socket", "/dev/null": "character device", filepath.Join(root, "file"): "regular file",
	} {
		r, err := Build(newProfile(t, layers("a"), rule{path: path, access: read | profile.FSMakeReg}), sup)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		want := Masked{path, typ, profile.FSReadDir | profile.FSMakeReg}
		if len(r.Masked) != 1 || r.Masked[0] != want {
			t.Errorf("%s: masked %+v", typ, r.Masked)
		}
		restricted(t, r, func() {
			if err := canRead(path); err == unix.EACCES {
				t.Errorf("%s: %v", typ, err)
			}
			if err := canRead("/etc/passwd"); err != unix.EACCES {
				t.Errorf("/etc/passwd under a rule for a %s: %v", typ, err)
			}
		})
		r.Release()
	}
	// A rule that loses all leaves nothing, and that is told as an error.
	_, err := Build(newProfile(t, layers("a"), rule{path: fifo, access: profile.FSReadDir}), sup)
	if !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("nothing left: %v", err)
	}
}

func TestMissing(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	root := tree(t, "a/file")
	gone1, gone2, below := filepath.Join(root, "gone1"), filepath.Join(root, "gone2"), filepath.Join(root, "a/file/x")
	skip := profile.Skip
	_, err := Build(newProfile(t, layers("a"), rule{path: gone1, access: read}, rule{path: root, access: read},
		rule{path: gone2, access: read}, rule{path: below, access: read}, rule{path: "/proc/self", access: read, missing: skip}), sup)
	if !errors.Is(err, errs.ErrPathMissing) || !errors.Is(err, errs.ErrPathRefused) {
		t.Fatal(err)
	}
	for _, culprit := range []string{gone1, gone2, below, "/proc/self"} {
		if !strings.Contains(err.Error(), fmt.Sprintf("%q", culprit)) {
			t.Errorf("%v does not name %s", err, culprit)
		}
	}
	r, err := Build(newProfile(t, layers("a"), rule{gone1, read, skip}, rule{below, read, skip}, rule{path: root, access: read}), sup)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Skipped) != 2 {
		t.Errorf("skipped %v", r.Skipped)
	}
	r.Release()
	// All skipped leaves a program with less, so it is no error.
	r, err = Build(newProfile(t, layers("a"), rule{gone1, read, skip}), sup)
	if err != nil {
		t.Fatal(err)
	}
	restricted(t, r, func() {
		if err := canRead(root); err != unix.EACCES {
			t.Errorf("with every rule skipped: %v", err)
		}
	})
	r.Release()
	// Very many culprits are counted.
	var many []rule
	for i := range 100 {
		many = append(many, rule{path: fmt.Sprintf("/nonexistent/%03d", i), access: read})
	}
	if _, err := Build(newProfile(t, layers("a"), many...), sup); err == nil || !strings.Contains(err.Error(), "and 36 more") {
		t.Errorf("many: %v", err)
	}
}

// TestRefused: paths that would grant something of policyd's own.
func TestRefused(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	root := tree(t, "x/y")
	link := func(name, target string) string {
		path := filepath.Join(root, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link("dir", "/proc")
	link("loop2", filepath.Join(root, "loop1"))
	for _, path := range []string{
		"/proc/self", "/proc/self/fd", "/proc/self/status", "/proc/thread-self", "/proc/self/task", fmt.Sprintf("/proc/%d", os.Getpid()),
		fmt.Sprintf("/proc/%d/root", os.Getpid()), "/proc/self/root", "/proc/self/root/etc", "/proc/self/cwd", "/proc/self/exe",
		"/proc/self/fd/0", "/proc/self/ns/mnt", "/dev/fd", "/dev/stdin", "/proc/net", "/proc/mounts", "/proc/1",
		link("self", "/proc/self"), link("selfroot", "/proc/self/root"), filepath.Join(root, "dir/self"), link("twice", filepath.Join(root, "self")),
		link("loop1", filepath.Join(root, "loop2")),
	} {
		if _, err := os.Lstat(path); err != nil {
			continue // no /dev/fd in a guest
		}
		for _, missing := range []profile.Missing{profile.Fail, profile.Skip} {
			_, err := Build(newProfile(t, layers("a"), rule{path, read, missing}), sup)
			if !errors.Is(err, errs.ErrPathRefused) {
				t.Errorf("%s (%s): %v", path, missing, err)
			}
		}
	}
	granted := []string{"/proc", "/proc/sys", "/proc/cpuinfo", "/sys", "/"}
	for _, numbered := range []string{"/proc/irq/[0-9]*", "/proc/irq/[0-9]*/spurious", "/proc/bus/pci/[0-9][0-9]"} { // no processes
		found, err := filepath.Glob(numbered)
		if err != nil {
			t.Fatal(err)
		}
		granted = append(granted, found[:min(1, len(found))]...)
	}
	for _, path := range granted {
		r, err := Build(newProfile(t, layers("a"), rule{path: path, access: read}), sup)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		r.Release()
	}
}

// TestUnreadableFolder: a plain user who cannot see a path cannot grant it.
func TestUnreadableFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root sees everything")
	}
	root := tree(t, "closed/file")
	os.Chmod(filepath.Join(root, "closed"), 0)
	defer os.Chmod(filepath.Join(root, "closed"), 0o755)
	_, err := Build(newProfile(t, layers("a"), rule{filepath.Join(root, "closed/file"), read, profile.Skip}), support(t))
	if !errors.Is(err, errs.ErrPathRefused) {
		t.Errorf("error %v", err)
	}
}

func TestLinks(t *testing.T) {
	sup := support(t)
	root := tree(t, "real/file")
	link := filepath.Join(root, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	r, err := Build(newProfile(t, layers("a"), rule{path: filepath.Join(link, "file"), access: read}), sup)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if len(r.Links) != 1 || r.Links[0] != (Link{filepath.Join(link, "file"), filepath.Join(root, "real/file")}) {
		t.Errorf("links %+v", r.Links)
	}
	restricted(t, r, func() {
		if err := canRead(filepath.Join(root, "real/file")); err != nil {
			t.Errorf("the target: %v", err)
		}
	})
}

// TestDegrade: what an ABI lacks is an error that names each right, or a list.
func TestDegrade(t *testing.T) {
	sup := support(t)
	if sup.ABI < 6 {
		testkernel.Skip(t, "Landlock ABI 6", "a newer kernel")
	}
	leakCheck(t)
	ls := []profile.Layer{
		{Name: "files", FS: profile.Handled(profile.FS, 5)},
		{Name: "net", Net: profile.NetBindTCP},
		{Name: "scope", Scope: profile.ScopeSignal},
	}
	b := profile.NewBuilder(ls)
	b.AddPath(0, "/", read, false, profile.Fail)
	b.AddPorts(1, 80, 90, profile.NetBindTCP, false)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Build(p, sup.Limit(3))
	if !errors.Is(err, errs.ErrUnsupported) {
		t.Fatal(err)
	}
	for _, name := range []string{"ioctl_dev", "bind_tcp", "signal", `"net"`, "linux 6.7"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	_, err = Build(p, sup.Limit(0))
	if !errors.Is(err, errs.ErrLandlockNotBuilt) || !strings.Contains(err.Error(), "execute") {
		t.Errorf("without Landlock: %v", err)
	}
	p.Degrade = true
	r, err := Build(p, sup.Limit(3))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Missing) != 3 {
		t.Errorf("missing %v", r.Missing)
	}
	restricted(t, r, func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Errorf("bind on ABI 3: %v", err)
		} else {
			l.Close()
		}
		if err := unix.Mkdir(filepath.Join(os.TempDir(), "denied"), 0o700); err != unix.EACCES {
			t.Errorf("mkdir: %v", err)
		}
	})
	r.Release()
	// A layer that keeps nothing is left out; with none left, nothing is enforced and all is named.
	netOnly, err := profile.NewBuilder([]profile.Layer{ls[1]}).Build()
	if err != nil {
		t.Fatal(err)
	}
	netOnly.Degrade = true
	for _, abi := range []int{3, 0} {
		r, err = Build(netOnly, sup.Limit(abi))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Layers) != 0 || len(r.Missing) != 1 || r.Missing[0].Name != "bind_tcp" {
			t.Errorf("abi %d: layers %v, missing %v", abi, r.Layers, r.Missing)
		}
		restricted(t, r, func() {
			if v, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); v != 1 {
				t.Error("no_new_privs is not set")
			}
		})
		r.Release()
	}
}

// TestTooManyLayers: those of policyd's own count, and the error says so.
func TestTooManyLayers(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		sup := support(t)
		var names []string
		for i := range profile.MaxKernelLayers {
			names = append(names, fmt.Sprint("l", i))
		}
		r, err := Build(newProfile(t, layers(names...), rule{path: "/", access: read}), sup)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		one, err := Build(newProfile(t, layers("own"), rule{path: "/", access: read}), sup)
		if err != nil {
			t.Fatal(err)
		}
		defer one.Release()
		onThread(func() {
			if err := r.RestrictThread(); err != nil {
				t.Errorf("%d layers: %v", len(names), err)
			}
		})
		onThread(func() {
			if err := one.RestrictThread(); err != nil {
				t.Error(err)
			}
			err := r.RestrictThread()
			if !errors.Is(err, unix.E2BIG) || !strings.Contains(err.Error(), "policyd itself") || !strings.Contains(err.Error(), `"l15"`) {
				t.Errorf("error %v", err)
			}
		})
		if err := canRead("/etc/passwd"); err != nil {
			t.Errorf("the process is restricted: %v", err)
		}
	})
}

// TestHandOver: descriptors of Rulesets used through FromFDs.
func TestHandOver(t *testing.T) {
	r, err := Build(newProfile(t, layers("a", "b"), rule{path: "/etc", access: read}), support(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	leakCheck(t)
	fds := r.FDs()
	for i := range fds {
		if fds[i].FD, err = unix.FcntlInt(uintptr(fds[i].FD), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	}
	other := FromFDs(fds, nil)
	restricted(t, other, func() {
		if canRead("/etc/passwd") != nil || canRead("/usr") != unix.EACCES {
			t.Error("not the same rulesets")
		}
	})
	other.Release()
}

// TestRestrictStep: an error of the step hook ends the way there.
func TestRestrictStep(t *testing.T) {
	r, err := Build(newProfile(t, layers("a"), rule{path: "/", access: read}), support(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	injected := errors.New("injected")
	for _, name := range []string{"no_new_privs", "restrict_self"} {
		onThread(func() {
			err := r.RestrictThreadStep(func(step string) error {
				if step == name {
					return injected
				}
				return nil
			})
			if err != injected {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
