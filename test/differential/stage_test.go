package differential_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
)

// host is what all scenarios on one kernel share.
type host struct {
	dir      string // a real path
	top      string // of the mount it is in
	sup      landlock.Support
	ports    [8]uint16
	erratum3 bool // disconnected directories keep the rules of their mount
	erratum4 bool // a whiteout is made with make_reg
	mayMknod bool
	mayMount bool
	mounted  bool // top is not "/"
	made     int  // trees

	liveEvery int
}

func newHost(t testing.TB) *host {
	t.Helper()
	dir := memoryDir()
	if dir == "" {
		dir = t.TempDir()
	} else {
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
	h, err := hostIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// hostIn makes the scenarios' trees in a folder that is there.
func hostIn(dir string) (h *host, err error) {
	h = &host{sup: landlock.Probe(), liveEvery: liveEvery}
	if h.sup.State != landlock.Available {
		return nil, h.sup.Err
	}
	for _, e := range h.sup.Errata {
		h.erratum3 = h.erratum3 || e == 3
		h.erratum4 = h.erratum4 || e == 4
	}
	if h.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if h.top, err = mountPointOf(h.dir); err != nil {
		return nil, err
	}
	h.mounted = h.top != "/"
	probe := filepath.Join(h.dir, "probe")
	h.mayMknod = unix.Mknod(probe, unix.S_IFCHR|0o777, int(unix.Mkdev(1, 3))) == nil
	h.mayMount = errors.Is(unix.Mount("none", h.dir, "no-such-type", 0, ""), unix.ENODEV)
	for i, port := 0, uint16(20000+os.Getpid()%8000); i < len(h.ports); port++ {
		if bindable(unix.SOCK_STREAM, port) && bindable(unix.SOCK_DGRAM, port) {
			h.ports[i] = port
			i++
		}
	}
	return h, nil
}

// release names the kernel.
func (h *host) release() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(uts.Release[:])
}

// mountPointOf gives the root of the mount that path is in.
func mountPointOf(path string) (string, error) {
	var of, above unix.Statx_t
	for err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &of); path != "/"; path = filepath.Dir(path) {
		if err == nil {
			err = unix.Statx(unix.AT_FDCWD, filepath.Dir(path), 0, unix.STATX_MNT_ID, &above)
		}
		if err != nil || above.Mnt_id != of.Mnt_id {
			return path, err
		}
	}
	return "/", nil
}

// memoryDir makes a folder in memory where there is one that programs can be
// started from, since a run makes thousands of trees.
func memoryDir() string {
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) != nil || fs.Flags&unix.ST_NOEXEC != 0 {
		return ""
	}
	dir, err := os.MkdirTemp("/dev/shm", "policyd-differential-")
	if err != nil {
		return ""
	}
	return dir
}

func bindable(typ int, port uint16) bool {
	fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Bind(fd, loopback(port)) == nil
}

func loopback(port uint16) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}
}

// port gives the number behind a scenario's name for it.
func (h *host) port(name string) uint16 {
	if len(name) == 2 && name[0] == 'p' && name[1] < '8' {
		return h.ports[name[1]-'0']
	}
	n, _ := strconv.ParseUint(name, 10, 16)
	return uint16(n)
}

// exitZero is a program for amd64 that ends with 0: an ELF header, one segment,
// and exit(0).
var exitZero = func() []byte {
	code := "\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05" // mov eax, 60; xor edi, edi; syscall
	le := func(v uint64, n int) (s string) {
		for range n {
			s, v = s+string([]byte{byte(v)}), v>>8
		}
		return s
	}
	const base, header = 0x400000, 64 + 56
	elf := "\x7fELF\x02\x01\x01" + le(0, 9) + le(2, 2) + le(62, 2) + le(1, 4) + le(base+header, 8) + le(64, 8) + le(0, 8) +
		le(0, 4) + le(64, 2) + le(56, 2) + le(1, 2) + le(0, 2) + le(0, 2) + le(0, 2)
	size := uint64(header + len(code))
	segment := le(1, 4) + le(5, 4) + le(0, 8) + le(base, 8) + le(base, 8) + le(size, 8) + le(size, 8) + le(0x1000, 8)
	return []byte(elf + segment + code)
}()

// stage is the tree of one scenario on disk and what is around the thread.
type stage struct {
	h       *host
	sc      *scenario
	m       *model
	fds     []int
	outside chan func()   // runs what the restricted thread could not
	targets map[int]int   // processes by what they share with the thread
	end     chan struct{} // ends the sibling
}

// create makes the tree, on the thread that will be restricted.
func (st *stage) create() error {
	if err := os.Mkdir(st.m.dir, 0o777); err != nil {
		return err
	}
	for i := range st.sc.tree {
		if e := &st.sc.tree[i]; e.mount {
			// A mount namespace of this thread's own, which ends with it.
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("make mounts private: %w", err)
			}
			break
		}
	}
	for i := range st.sc.tree {
		if !st.m.made[i] {
			continue
		}
		if err := st.createEntry(&st.sc.tree[i]); err != nil {
			return fmt.Errorf("make %s: %w", st.sc.tree[i].String(), err)
		}
	}
	return nil
}

func (st *stage) createEntry(e *entry) error {
	path := st.m.path(e.path)
	switch e.how {
	case linked:
		return unix.Link(st.m.path(e.source), path)
	case moved:
		return unix.Rename(st.m.path(e.source), path)
	case held:
		fd, err := unix.Open(st.m.path(e.source), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			st.fds = append(st.fds, fd)
			st.m.holds[e.path].fd = fd
		}
		return err
	}
	switch e.kind {
	case dir:
		if err := unix.Mkdir(path, 0o777); err != nil || !e.mount {
			return err
		}
		if e.source != "" {
			return unix.Mount(st.m.path(e.source), path, "", unix.MS_BIND, "")
		}
		return unix.Mount("none", path, "tmpfs", 0, "mode=777")
	case symlink:
		return os.Symlink("nowhere", path)
	case sock:
		if e.stage > 0 {
			return nil // made when the thread is that far
		}
		return st.listen(path, unix.SOCK_DGRAM, false)
	case file:
		if err := os.WriteFile(path, exitZero, 0o777); err != nil || !e.mount {
			return err
		}
		return unix.Mount(st.m.path(e.source), path, "", unix.MS_BIND, "")
	}
	return mknod(path, e.kind)
}

// mknod makes a special file, a whiteout with the number of one.
func mknod(path string, k kind) error {
	mode, dev := uint32(unix.S_IFREG), 0
	switch k {
	case fifo:
		mode = unix.S_IFIFO
	case sock:
		mode = unix.S_IFSOCK
	case whiteout:
		mode = unix.S_IFCHR
	case char:
		mode, dev = unix.S_IFCHR, int(unix.Mkdev(1, 3))
	case block:
		mode, dev = unix.S_IFBLK, int(unix.Mkdev(7, 250))
	}
	return unix.Mknod(path, mode|0o777, dev)
}

// do runs f on a thread that is not restricted.
func (st *stage) do(f func()) {
	done := make(chan struct{})
	st.outside <- func() { f(); close(done) }
	<-done
}

// close ends what the stage holds. It runs outside.
func (st *stage) close() {
	if st.end != nil {
		close(st.end)
	}
	for _, fd := range st.fds {
		unix.Close(fd)
	}
	for _, pid := range st.targets {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}
