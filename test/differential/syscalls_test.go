package differential_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// What the kernel's own tests hold of the three system calls, which no policy
// can ask for: policyd refuses it earlier, and has to be right about it.

// TestSystemCalls is those tables on each kernel.
func TestSystemCalls(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		t.Run("ruleset attributes", rulesetAttributes)
		t.Run("seventeenth layer", seventeenthLayer)
		t.Run("rights on files and directories", rightsOnFilesAndDirectories)
		t.Run("ports beyond", portsBeyond)
		t.Run("rule before mount", ruleBeforeMount)
	})
}

// onThread runs f on a thread that ends with it, so that it may be restricted.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func ruleset(t *testing.T, attr ll.RulesetAttr) int {
	t.Helper()
	fd, err := createRuleset(unsafe.Pointer(&attr), sizeFor(landlock.Probe().ABI))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// sizeFor is the size of landlock_ruleset_attr by ABI.
func sizeFor(abi int) uintptr {
	switch {
	case abi < 4:
		return 8
	case abi < 6:
		return 16
	case abi < 10:
		return 24
	}
	return 48
}

func createRuleset(attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(attr), size, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// rulesetAttributes: which attributes landlock_create_ruleset takes.
func rulesetAttributes(t *testing.T) {
	abi := landlock.Probe().ABI
	var attr [16]uint64
	fs := uint64(profile.Handled(profile.FS, abi))
	for _, tt := range []struct {
		name   string
		size   uintptr
		fs     uint64
		beyond uint64 // in the last word of 128 bytes
		want   error
	}{
		{"nothing handled", sizeFor(abi), 0, 0, unix.ENOMSG},
		{"all of the ABI", sizeFor(abi), fs, 0, nil},
		{"one bit more", sizeFor(abi), fs | (fs + 1), 0, unix.EINVAL},
		{"the size of ABI 1", 8, fs, 0, nil},
		{"less than that", 7, fs, 0, unix.EINVAL},
		{"a struct of the future, empty beyond", 128, fs, 0, nil},
		{"a struct of the future, in use", 128, fs, 1, unix.E2BIG},
	} {
		attr[0], attr[15] = tt.fs, tt.beyond
		fd, err := createRuleset(unsafe.Pointer(&attr), tt.size)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
}

// seventeenthLayer: 16 layers, and no more, again and again.
func seventeenthLayer(t *testing.T) {
	fd := ruleset(t, ll.RulesetAttr{HandledAccessFS: uint64(profile.FSReadFile)})
	err := onThread(func() error {
		for n := range profile.MaxKernelLayers {
			if err := ll.LandlockRestrictSelf(fd, 0); err != nil {
				return fmt.Errorf("layer %d: %w", n+1, err)
			}
		}
		for range 2 {
			if err := ll.LandlockRestrictSelf(fd, 0); !errors.Is(err, unix.E2BIG) {
				return fmt.Errorf("layer 17: %v, want E2BIG", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// rightsOnFilesAndDirectories: a rule on a directory takes every right, one
// on a file those of profile.FileRights.
func rightsOnFilesAndDirectories(t *testing.T) {
	abi := landlock.Probe().ABI
	all := profile.Handled(profile.FS, abi)
	fd := ruleset(t, ll.RulesetAttr{HandledAccessFS: uint64(all)})
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	add := func(path string, a profile.Access) error {
		at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(at)
		return ll.LandlockAddPathBeneathRule(fd, &ll.PathBeneathAttr{ParentFd: at, AllowedAccess: uint64(a)}, 0)
	}
	for bit := profile.Access(1); bit <= all+1; bit <<= 1 {
		onDir, onFile := error(nil), error(nil)
		if bit&profile.FileRights(abi) == 0 {
			onFile = unix.EINVAL // for directories only
		}
		if bit > all {
			onDir, onFile = unix.EINVAL, unix.EINVAL // of no right that is handled
		}
		for path, want := range map[string]error{dir: onDir, file: onFile, "/dev/null": onFile} {
			if err := add(path, bit); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s on %s: %v, want %v", profile.FS.Format(bit), path, err, want)
			}
		}
	}
	if err := add(dir, 0); !errors.Is(err, unix.ENOMSG) {
		t.Errorf("a rule that grants nothing: %v, want ENOMSG", err)
	}
}

// portsBeyond: ports are numbers in the host's order, at most 65535, and one
// too large leaves the rules before it as they are.
func portsBeyond(t *testing.T) {
	if landlock.Probe().ABI < 4 {
		t.Log("not run here: the kernel has no rules on ports; the guest runs it")
		return
	}
	h := newHost(t)
	fd := ruleset(t, ll.RulesetAttr{HandledAccessNet: uint64(profile.NetBindTCP)})
	port := h.ports[0]
	for _, tt := range []struct {
		port uint64
		want error
	}{
		{uint64(port), nil},
		{65535, nil},
		{65536, unix.EINVAL},
		{65537, unix.EINVAL},
		{70000, unix.EINVAL},
		{1 << 32, unix.EINVAL},
		{1<<32 + 1, unix.EINVAL},
		{1<<64 - 1, unix.EINVAL},
	} {
		err := ll.LandlockAddNetPortRule(fd, &ll.NetPortAttr{AllowedAccess: uint64(profile.NetBindTCP), Port: tt.port}, 0)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("port %d: %v, want %v", tt.port, err, tt.want)
		}
	}
	err := onThread(func() error {
		if err := ll.LandlockRestrictSelf(fd, 0); err != nil {
			return err
		}
		for _, tt := range []struct {
			port    uint16
			allowed bool
		}{
			{port, true},
			{port>>8 | port<<8, false}, // the other order of bytes
			{0, false},                 // 65536 did not become 0
			{1, false},                 // nor 65537 1
			{4464, false},              // nor 70000 4464
		} {
			if got := bindErrno(tt.port); (got == unix.EACCES) == tt.allowed {
				t.Errorf("bind %d: %v, granted: %v", tt.port, got, tt.allowed)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func bindErrno(port uint16) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, loopback(port))
}

// ruleBeforeMount: a rule is bound to what a path led to when it was made.
// What is mounted there later is not granted, and once restricted nothing is
// mounted: namespaces and mounts come first.
func ruleBeforeMount(t *testing.T) {
	h := newHost(t)
	if !h.mayMount {
		t.Log("not run here: it mounts, which needs root; the guest runs it")
		return
	}
	dir := filepath.Join(h.dir, "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := profile.NewBuilder([]profile.Layer{{Name: "a", FS: profile.FSReadFile | profile.FSReadDir}})
	b.AddPath(0, dir, profile.FSReadFile|profile.FSReadDir, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		before, err := landlock.Build(p, h.sup)
		if err != nil {
			return err
		}
		defer before.Release()
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
		if err := before.RestrictThread(); err != nil {
			return err
		}
		if err := readDir(dir); !errors.Is(err, unix.EACCES) {
			t.Errorf("what was mounted after the rule: %v, want EACCES", err)
		}
		if err := unix.Unmount(dir, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("umount: %v, want EPERM", err)
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); !errors.Is(err, unix.EPERM) {
			t.Errorf("mount: %v, want EPERM", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func readDir(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
