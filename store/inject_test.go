package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// injector makes system calls of this process fail: a seccomp filter hands those that write files to a listener in the
// same process, which lets them run or answers with an error (seccomp_unotify(2)).
type injector struct {
	fd int

	mu     sync.Mutex
	nth    int // which call fails, counted from arming; 0: none
	onward bool
	errno  syscall.Errno
	count  int
	hits   []string
	record func(seccompNotif) // nil: calls are not recorded
}

var injected = map[int32]string{
	unix.SYS_PWRITE64: "pwrite", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FSYNC: "fsync",
}

type seccompNotif struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type seccompResponse struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

func newInjector() (*injector, error) {
	const loadNumber, allow = 0, 0x7fff0000
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: loadNumber}}
	for nr := range injected {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: allow})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	flags := unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return nil, fmt.Errorf("seccomp: %w", errno)
	}
	in := &injector{fd: int(fd)}
	go in.listen()
	return in, nil
}

func (in *injector) listen() {
	for {
		var n seccompNotif
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(in.fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue
		}
		r := seccompResponse{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		in.mu.Lock()
		in.count++
		if in.nth > 0 && (in.count == in.nth || in.onward && in.count > in.nth) {
			r.flags, r.errno = 0, -int32(in.errno)
			in.hits = append(in.hits, injected[n.nr])
		}
		if in.record != nil {
			in.record(n)
		}
		in.mu.Unlock()
		unix.Syscall(unix.SYS_IOCTL, uintptr(in.fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	}
}

func (in *injector) arm(nth int, onward bool, errno syscall.Errno) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.nth, in.onward, in.errno, in.count, in.hits = nth, onward, errno, 0, nil
}

func (in *injector) disarm() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.nth = 0
	return in.hits
}

// childInject fails each call of a commit in turn, once and from there on.
func childInject(args []string) error {
	in, err := newInjector()
	if err != nil {
		fmt.Println("unavailable:", err)
		return nil
	}
	for _, errno := range []syscall.Errno{unix.EIO, unix.ENOSPC} {
		for _, onward := range []bool{false, true} {
			for nth := 1; ; nth++ {
				hits, err := in.round(filepath.Join(args[0], fmt.Sprintf("%d-%v-%d.db", errno, onward, nth)), nth, onward, errno)
				if err != nil {
					return fmt.Errorf("%v at call %d (onward %v, hit %v): %w", errno, nth, onward, hits, err)
				}
				if len(hits) == 0 {
					break
				}
				fmt.Println(errno, onward, nth, strings.Join(hits, " "))
			}
		}
	}
	return nil
}

func (in *injector) round(path string, nth int, onward bool, errno syscall.Errno) (hits []string, err error) {
	s, err := Open(path, Options{})
	if err != nil {
		return nil, err
	}
	apply := func(name string, size int) error {
		p := policy(name, "one")
		p.Source = strings.Repeat("x", size)
		_, err := s.Apply(context.Background(), alice, []Put{p})
		return err
	}
	if err := apply("before", 100); err != nil {
		return nil, err
	}
	in.arm(nth, onward, errno)
	failed := apply("struck", 3<<20) // the file must grow for it
	hits = in.disarm()
	stopped := s.failed.Load() != nil
	switch want := map[syscall.Errno]error{unix.EIO: errs.ErrStoreFailed, unix.ENOSPC: errs.ErrStoreFull}[errno]; {
	case len(hits) == 0 && failed != nil:
		return hits, fmt.Errorf("nothing was injected, yet: %w", failed)
	case len(hits) > 0 && failed == nil:
		return hits, errors.New("acknowledged although a call failed")
	case len(hits) > 0 && !errors.Is(failed, want):
		return hits, fmt.Errorf("the error does not say %v: %w", want, failed)
	case stopped && !onward:
		return hits, fmt.Errorf("the store stopped at one failure: %w", *s.failed.Load())
	}
	if _, err := s.Get(KindLandlockPolicy, "struck"); !stopped && (err == nil) != (failed == nil) {
		return hits, fmt.Errorf("answer %v, but afterwards: %v", failed, err)
	}
	after := apply("after", 200<<10)
	if stopped && !errors.Is(after, errs.ErrStoreFailed) {
		return hits, fmt.Errorf("the store goes on writing although its state is not known: %v", after)
	}
	if !stopped && after != nil {
		return hits, fmt.Errorf("a later change: %w", after)
	}
	if err := s.Close(); err != nil {
		return hits, fmt.Errorf("close: %w", err)
	}
	if s, err = Open(path, Options{}); err != nil {
		return hits, fmt.Errorf("open again: %w", err)
	}
	want := map[string]bool{"before": true, "struck": failed == nil, "after": after == nil}
	for name, there := range want {
		if stopped && name == "struck" {
			continue // the answer said that this is not known
		}
		if _, err := s.Get(KindLandlockPolicy, name); (err == nil) != there {
			return hits, fmt.Errorf("%s after opening again: %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		return hits, err
	}
	problems, _, _, err := CheckFile(context.Background(), path)
	if err != nil || len(problems) > 0 {
		return hits, fmt.Errorf("check: %v %w", problems, err)
	}
	return hits, os.Remove(path)
}

// TestEveryCallOfACommitFails: no failed write or sync is ever acknowledged, and none does harm.
func TestEveryCallOfACommitFails(t *testing.T) {
	out := runChild(t, "inject", false, t.TempDir())
	if strings.HasPrefix(out, "unavailable") {
		testkernel.Skip(t, out, "a kernel with seccomp user notification (5.7)")
	}
	for _, call := range []string{"pwrite", "fdatasync", "ftruncate", "fsync"} {
		if !strings.Contains(out, call) {
			t.Errorf("no %s was made to fail:\n%s", call, out)
		}
	}
	t.Log("\n" + out)
}
