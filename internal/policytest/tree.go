package policytest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
)

// entry is one object of a scratch tree, as it crosses to the process that
// performs.
type entry struct {
	Kind, Path, Content, To string
	Mode                    uint32
	Device                  uint64
}

func entries(spec *apiv1.PolicyTestSpec) ([]entry, error) {
	var out []entry
	for _, e := range spec.GetTree() {
		kind, path, err := policy.TestObject(e)
		if err != nil {
			return nil, err
		}
		n := entry{Kind: kind, Path: path, Content: e.GetContent(), To: e.GetTo(), Mode: 0o644}
		if kind == "dir" {
			n.Mode = 0o755
		}
		if kind == "symlink" && spec.GetLexical() && strings.HasPrefix(n.To, "/") {
			n.To = policy.TestRoot + n.To // the other machine's root
		}
		if e.GetMode() != "" {
			mode, err := strconv.ParseUint(e.GetMode(), 8, 16)
			if err != nil {
				return nil, err
			}
			n.Mode = uint32(mode)
		}
		device := e.GetDevice()
		switch {
		case device != "":
		case kind == "char":
			device = "1:3"
		case kind == "block":
			device = "7:0"
		}
		if major, minor, ok := strings.Cut(device, ":"); ok {
			ma, err := strconv.ParseUint(major, 10, 32)
			mi, err2 := strconv.ParseUint(minor, 10, 32)
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			n.Device = unix.Mkdev(uint32(ma), uint32(mi))
		}
		out = append(out, n)
	}
	return out, nil
}

// scratch is a folder of its own for one test; "" is none.
type scratch struct {
	root    string
	tree    []entry
	sockets []net.Listener
}

// newScratch makes the folder, which every attempt fills anew.
func newScratch(tree []entry) (*scratch, error) {
	dir, err := os.MkdirTemp("", "policytest-")
	if err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(dir)
	if err == nil && strings.ContainsAny(root, " \t\r\n'\"\\#$") {
		err = fmt.Errorf("%s: the folder for scratch trees must have no blank, quote, #, $ or backslash in its path; TMPDIR chooses it", root)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &scratch{root: root, tree: tree}, nil
}

// errNoDevice is wrapped where a device cannot be made.
var errNoDevice = errors.New("devices can only be made by root, outside of user namespaces")

// fill makes the tree; what was there goes away. Nothing is made or changed
// outside of the folder: a symbolic link of the tree that leads out of it is not
// followed, and an object beneath one is an error.
func (s *scratch) fill() error {
	if err := s.clear(); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range s.tree {
		if err := s.add(root, &e); err != nil {
			return fmt.Errorf("tree: %s %s: %w", e.Kind, e.Path, err)
		}
	}
	// Modes last, so that a folder nobody may write to can be filled.
	for i := len(s.tree) - 1; i >= 0; i-- {
		if e := &s.tree[i]; e.Kind != "symlink" && e.Kind != "link" {
			if err := root.Chmod(e.Path, fileMode(e.Mode)); err != nil {
				return fmt.Errorf("tree: mode of %s: %w", e.Path, err)
			}
		}
	}
	return nil
}

// fileMode is the mode of chmod(2) as package os has it.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	for _, b := range []struct {
		bit  uint32
		mode fs.FileMode
	}{{unix.S_ISUID, fs.ModeSetuid}, {unix.S_ISGID, fs.ModeSetgid}, {unix.S_ISVTX, fs.ModeSticky}} {
		if mode&b.bit != 0 {
			m |= b.mode
		}
	}
	return m
}

func (s *scratch) add(root *os.Root, e *entry) error {
	folder, name := filepath.Split(e.Path)
	if folder = filepath.Clean(folder); folder != "." {
		if err := root.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	switch e.Kind {
	case "dir":
		return root.MkdirAll(e.Path, 0o755)
	case "file":
		return root.WriteFile(e.Path, []byte(e.Content), 0o600)
	case "symlink":
		return root.Symlink(strings.ReplaceAll(e.To, policy.TestRoot, s.root), e.Path)
	case "link":
		return root.Link(strings.TrimPrefix(filepath.Clean("/"+strings.TrimPrefix(e.To, policy.TestRoot)), "/"), e.Path)
	}
	dir, err := root.Open(folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	switch e.Kind {
	case "fifo":
		return unix.Mknodat(int(dir.Fd()), name, unix.S_IFIFO|0o600, 0)
	case "socket":
		return s.listen(dir, name)
	}
	kind := uint32(unix.S_IFCHR)
	if e.Kind == "block" {
		kind = unix.S_IFBLK
	}
	err = unix.Mknodat(int(dir.Fd()), name, kind|0o600, int(e.Device))
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", errNoDevice, err)
	}
	return err
}

// listen makes a unix socket in a folder. Its address holds 107 bytes, so the
// folder is reached through its descriptor.
func (s *scratch) listen(dir *os.File, name string) error {
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // its name is no longer that
	s.sockets = append(s.sockets, l)
	return nil
}

// clear empties the folder.
func (s *scratch) clear() error {
	for _, l := range s.sockets {
		l.Close()
	}
	s.sockets = nil
	// A folder without permissions is in the way of its own removal.
	_ = filepath.WalkDir(s.root, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o755)
		}
		return nil
	})
	list, err := os.ReadDir(s.root)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(s.root, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// remove takes the folder away.
func (s *scratch) remove() error {
	if err := s.clear(); err != nil {
		return err
	}
	return os.Remove(s.root)
}
