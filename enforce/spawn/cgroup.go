package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

type cgroupGroup struct {
	path   string
	dir    *os.File
	events *os.File // cgroup.events, kept open: it is read on the way of every end
}

func openCgroup(path string) (Group, error) {
	g, err := openCgroupDir(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errs.ErrContainment, err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(g.dir.Fd()), &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		g.close()
		return nil, fmt.Errorf("%w: %q is not a cgroup", errs.ErrContainment, path)
	}
	return g, nil
}

func openCgroupDir(path string) (*cgroupGroup, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	events, err := unix.Openat(fd, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "open", Path: path + "/cgroup.events", Err: err}
	}
	return &cgroupGroup{path: path, dir: os.NewFile(uintptr(fd), path), events: os.NewFile(uintptr(events), "cgroup.events")}, nil
}

func (g *cgroupGroup) close() {
	g.dir.Close()
	g.events.Close()
}

func (g *cgroupGroup) Path() string { return g.path }

// tree lists the group's folder and those the program made below, deepest last.
func (g *cgroupGroup) tree() []string {
	var dirs []string
	_ = filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

func (g *cgroupGroup) Processes() ([]int, error) {
	var pids []int
	for _, dir := range g.tree() {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
				continue
			}
			return nil, err
		}
		for f := range bytes.FieldsSeq(b) {
			pid, err := strconv.Atoi(string(f))
			if err != nil {
				return nil, fmt.Errorf("%s/cgroup.procs: %w", dir, err)
			}
			if pid > 0 { // 0: in a pid namespace we do not see
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

func (g *cgroupGroup) Usage() (Usage, error) {
	pids, err := g.Processes()
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Processes: len(pids)}
	if b, err := os.ReadFile(filepath.Join(g.path, "cpu.stat")); err == nil {
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
				u.CPUUsec, _ = strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			}
		}
	}
	if b, err := os.ReadFile(filepath.Join(g.path, "memory.current")); err == nil {
		u.MemoryBytes, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		return u, err
	}
	// Without the memory controller: what is resident, shared pages counted for each.
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil {
			u.MemoryBytes += st.rssPages * uint64(os.Getpagesize())
		}
	}
	return u, nil
}

func (g *cgroupGroup) Signal(sig syscall.Signal) error {
	return signalAll(g.Processes, sig)
}

// signalAll signals each process of a list that changes all the time. Each is
// held by pidfd before the list is read again; one that is still in it then is
// the one that is held.
func signalAll(list func() ([]int, error), sig syscall.Signal) error {
	pids, err := list()
	if err != nil {
		return err
	}
	held := make(map[int]int, len(pids))
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		}
	}
	if pids, err = list(); err != nil {
		return err
	}
	var failed error
	for _, pid := range pids {
		fd, ok := held[pid]
		if !ok {
			continue // came meanwhile: it was started by one that is signalled
		}
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && err != unix.ESRCH {
			failed = errors.Join(failed, fmt.Errorf("signal pid %d: %w", pid, err))
		}
	}
	return failed
}

// killPatience is how long KillAll waits for processes that do not die: one in
// an uninterruptible sleep cannot.
const killPatience = 10 * time.Second

func (g *cgroupGroup) KillAll() error {
	deadline := time.Now().Add(killPatience)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		populated, err := g.populated()
		if err != nil || !populated {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: processes of %s do not end", errs.ErrContainment, g.path)
		}
		// One write kills the whole tree, also what is being forked (Linux 5.14).
		err = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
		// ENODEV: it was removed meanwhile.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("%w: %w", errs.ErrContainment, err)
		}
		if err != nil {
			if err := signalAll(g.Processes, syscall.SIGKILL); err != nil {
				return err
			}
		}
		time.Sleep(pause)
	}
}

// populated tells whether a process is in the group or below it.
func (g *cgroupGroup) populated() (bool, error) {
	var buf [128]byte
	n, err := g.events.ReadAt(buf[:], 0)
	switch {
	case errors.Is(err, os.ErrClosed), errors.Is(err, syscall.ENODEV): // removed, by us or others
		return false, nil
	case err != nil && !errors.Is(err, io.EOF):
		return false, fmt.Errorf("%w: %s/cgroup.events: %w", errs.ErrContainment, g.path, err)
	}
	return !bytes.Contains(buf[:n], []byte("populated 0")), nil
}

func (g *cgroupGroup) Remove() error {
	err := os.Remove(g.path)
	for tries := 0; errors.Is(err, syscall.EBUSY) && tries < 50; tries++ {
		dirs := g.tree()
		for i := len(dirs) - 1; i >= 0; i-- {
			err = os.Remove(dirs[i])
		}
		if errors.Is(err, syscall.EBUSY) {
			time.Sleep(time.Duration(tries) * 200 * time.Microsecond)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errs.ErrContainment, err)
	}
	g.close()
	return nil
}
