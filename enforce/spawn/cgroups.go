package spawn

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// cgroups makes one cgroup (v2) per group. It enables no controllers: cgroup.kill
// and cpu.stat need none, and with none enabled a cgroup may hold both processes
// (policyd itself) and groups below it.
type cgroups struct {
	root string

	mu     sync.Mutex
	former map[string]bool // roots of this state folder's policyd in other cgroups
}

func newCgroups(o Options) (*cgroups, error) {
	root := o.CgroupRoot
	if root == "" {
		own, err := ownCgroup()
		if err != nil {
			return nil, err
		}
		name, err := rootName(o.StateDir)
		if err != nil {
			return nil, err
		}
		root = filepath.Join(own, name)
	}
	c := &cgroups{root: root}
	if o.CgroupRoot != "" || o.StateDir != "" {
		c.sweepProbes()
	}
	if err := c.try(); err != nil {
		return nil, err
	}
	if o.CgroupRoot == "" && o.StateDir != "" {
		c.sweepRoots()
	}
	return c, nil
}

// rootName names the root of a state folder's groups. The inode is part of it
// because two policyds with different file systems may share a cgroup and see
// the same path.
func rootName(state string) (string, error) {
	if state == "" {
		return "policyd", nil
	}
	path, err := filepath.EvalSymlinks(state)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", st.Dev, st.Ino, path))
	return rootPrefix + hex.EncodeToString(sum[:6]), nil
}

const rootPrefix = "policyd-"

// try makes a group and forks into it. The program does not exist, so that the
// errno tells what fork said: a cgroup that may not be entered is EACCES, EBUSY
// or EOPNOTSUPP, and only a fork that worked comes to ENOENT.
func (c *cgroups) try() error {
	made := os.Mkdir(c.root, 0o755)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	if made == nil {
		defer os.Remove(c.root) // the first group makes it again
	}
	g, err := c.newGroup(probePrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36))
	if err != nil {
		return err
	}
	defer func() { _ = g.Remove() }() // what stays is swept at the next start
	if err := unix.Faccessat(int(g.dir.Fd()), "cgroup.kill", unix.W_OK, 0); err != nil {
		return fmt.Errorf("%s/cgroup.kill: %w", g.path, err)
	}
	_, err = syscall.ForkExec(filepath.Join(g.path, "no-program"), []string{"no-program"},
		&syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.dir.Fd())}})
	if !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("fork into %s: %w", g.path, err)
	}
	return nil
}

const probePrefix = "probe-"

// sweepProbes removes what a policyd that was killed in try has left.
func (c *cgroups) sweepProbes() {
	old, _ := filepath.Glob(filepath.Join(c.root, probePrefix+"*"))
	for _, path := range old {
		_ = os.Remove(path) // never one with a process in it
	}
}

// sweepRoots removes the roots beside ours that have no group in them: of policyds
// that were killed, whose state folders may be gone. A policyd that is there makes
// its own again with its next group.
func (c *cgroups) sweepRoots() {
	digest := strings.Repeat("[0-9a-f]", len(filepath.Base(c.root))-len(rootPrefix))
	roots, _ := filepath.Glob(filepath.Join(filepath.Dir(c.root), rootPrefix+digest))
	for _, path := range roots {
		if path != c.root {
			_ = unix.Rmdir(path) // never one with a process or a group in it
		}
	}
}

func (c *cgroups) Name() string { return "cgroup" }
func (c *cgroups) Root() string { return c.root }

func (c *cgroups) OpenGroup(path string) (Group, error) {
	g, err := openGroup(path)
	if root := filepath.Dir(path); err == nil && root != c.root && filepath.Base(root) == filepath.Base(c.root) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.former == nil {
			c.former = make(map[string]bool)
		}
		c.former[root] = true
	}
	return g, err
}

// Close removes the roots that have no group in them.
func (c *cgroups) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for root := range c.former {
		_ = os.Remove(root) // in a cgroup we may have nothing to say in any more
	}
	err := os.Remove(c.root)
	for _, ok := range []error{fs.ErrNotExist, syscall.EBUSY, syscall.ENOTEMPTY} {
		if errors.Is(err, ok) {
			return nil
		}
	}
	return err
}

func (c *cgroups) NewGroup(id string) (Group, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	g, err := c.newGroup(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errs.ErrContainment, err)
	}
	return g, nil
}

func (c *cgroups) newGroup(id string) (*cgroupGroup, error) {
	path := filepath.Join(c.root, id)
	err := os.Mkdir(path, 0o755)
	for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < 3; tries++ { // somebody tidied up
		if err = os.Mkdir(c.root, 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Mkdir(path, 0o755)
		}
	}
	if err != nil {
		return nil, err
	}
	g, err := openCgroupDir(path)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	return g, nil
}
