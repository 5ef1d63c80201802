package depth

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

const (
	dirName  = "d"
	fileName = "f"
	openDir  = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
)

// nested is a folder with many folders, each in the one before, and a file in
// the deepest. Their paths may be longer than any system call takes, so they are
// gone through step by step.
type nested struct {
	top   int // descriptor of the folder that the first stands in
	depth int
	last  int // descriptor of the deepest
}

// newNested makes the folders in a temporary one, whose path is returned.
func newNested(t testing.TB, depth int) (*nested, string) {
	dir := t.TempDir()
	n := &nested{depth: depth, top: open(t, unix.AT_FDCWD, dir, openDir)}
	last, err := n.descend(func(at int) error { return unix.Mkdirat(at, dirName, 0o755) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.last = last
	fd := open(t, n.last, fileName, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC)
	unix.Close(fd)
	t.Cleanup(func() {
		if err := n.remove(); err != nil {
			t.Error(err)
		}
	})
	return n, dir
}

func open(t testing.TB, at int, name string, flags int) int {
	t.Helper()
	fd, err := unix.Openat(at, name, flags, 0o644)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	return fd
}

// descend steps down, before each step with the folder it starts from and after
// it with the one it came to, and gives a descriptor of the deepest.
func (n *nested) descend(before, after func(at int) error) (at int, err error) {
	at, err = unix.FcntlInt(uintptr(n.top), unix.F_DUPFD_CLOEXEC, 0)
	for i := 0; i < n.depth && err == nil; i++ {
		if before != nil {
			err = before(at)
		}
		var next int
		if err == nil {
			next, err = unix.Openat(at, dirName, openDir, 0)
		}
		unix.Close(at)
		if at = next; err == nil && after != nil {
			err = after(at)
		}
	}
	return at, err
}

// remove goes up by "..", since nothing else holds ten thousand steps.
func (n *nested) remove() error {
	err := unix.Unlinkat(n.last, fileName, 0)
	for i, at := 0, n.last; i < n.depth && err == nil; i++ {
		var up int
		if up, err = unix.Openat(at, "..", openDir, 0); err == nil {
			err = unix.Unlinkat(up, dirName, unix.AT_REMOVEDIR)
		}
		unix.Close(at)
		at = up
	}
	unix.Close(n.top)
	return err
}

// confined is a thread under the layers of a profile, each with one rule on
// every folder, whatever paths the profile's rows have.
type confined struct {
	todo chan func()
	done chan struct{}
}

// confine restricts a thread, which ends with the test.
func (n *nested) confine(t testing.TB, p *profile.Profile) *confined {
	var layers []landlock.Layer
	for i := range p.Layers {
		fd, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: uint64(p.Layers[i].FS)}, 0)
		if err != nil {
			testkernel.Skip(t, fmt.Sprintf("landlock with fs rights of ABI 5: %v", err), "run on linux 6.10 or newer")
		}
		layers = append(layers, landlock.Layer{Name: p.Layers[i].Name, FD: fd})
	}
	rulesets := landlock.FromFDs(layers, p)
	defer rulesets.Release()
	last, err := n.descend(nil, func(at int) error {
		for _, l := range layers {
			rule := ll.PathBeneathAttr{ParentFd: at, AllowedAccess: uint64(granted)}
			if err := ll.LandlockAddPathBeneathRule(l.FD, &rule, 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(last)
	c := &confined{make(chan func()), make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this function
		err := rulesets.RestrictThread()
		started <- err
		for f := range c.todo {
			f()
			c.done <- struct{}{}
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(c.todo) })
	return c
}

// do has the thread call f.
func (c *confined) do(f func()) {
	c.todo <- f
	<-c.done
}

// refused gives how long the kernel takes to refuse to open the file, the mean of n.
func (n *nested) refused(c *confined, times int) (each time.Duration, err error) {
	c.do(func() {
		start := time.Now()
		for range times {
			var fd int
			if fd, err = unix.Openat(n.last, fileName, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(fd)
				err = errors.New("opened")
			}
			if !errors.Is(err, unix.EACCES) {
				return
			}
		}
		each, err = time.Since(start)/time.Duration(times), nil
	})
	return each, err
}

// opened gives how long it takes to open the file and close it again without Landlock.
func (n *nested) opened(times int) (each time.Duration, err error) {
	start := time.Now()
	for range times {
		fd, err := unix.Openat(n.last, fileName, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		unix.Close(fd)
	}
	return time.Since(start) / time.Duration(times), nil
}
