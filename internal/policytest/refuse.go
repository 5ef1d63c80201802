package policytest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// Reasons for which an operation is not performed.
const (
	skipChanges = "it would change this host: only what is in the scratch tree is changed"
	skipDevice  = "opening that device may have an effect: only null, zero, full, random, urandom and terminals are opened"
)

// refuse says why an operation must not be performed on this host, or "".
// It is asked when the tree is there.
func (f *performer) refuse(op *profile.Operation) string {
	follow := false
	switch op.Kind {
	case profile.OpOpen, profile.OpIoctlDev:
		if device(op.Path) && op.Open&profile.OpenPath == 0 {
			return skipDevice
		}
		if !changes(op) {
			if f.inside(op.Path, true) {
				return ""
			}
			if st, err := os.Stat(op.Path); err == nil && st.Mode()&os.ModeNamedPipe != 0 {
				return skipChanges
			}
			return ""
		}
		follow = true
	case profile.OpTruncate:
		follow = true
	case profile.OpMkdir, profile.OpMknod, profile.OpSymlink, profile.OpUnlink, profile.OpRmdir:
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		if !f.inside(op.NewPath, false) {
			return skipChanges
		}
	default:
		return ""
	}
	if !f.inside(op.Path, follow) {
		return skipChanges
	}
	return ""
}

// changes tells whether an operation can change what is in a tree.
func changes(op *profile.Operation) bool {
	switch op.Kind {
	case profile.OpOpen:
		return op.Open&(profile.OpenTruncate|profile.OpenCreate) != 0
	case profile.OpTruncate, profile.OpMkdir, profile.OpMknod, profile.OpSymlink, profile.OpUnlink, profile.OpRmdir,
		profile.OpRename, profile.OpExchange, profile.OpLink:
		return true
	}
	return false
}

// inside tells whether a path leads into the scratch tree; follow says whether
// through a symbolic link at its end too.
func (f *performer) inside(path string, follow bool) bool {
	root := f.scratch.root
	if root == "" {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	if !follow || err != nil {
		if st, lerr := os.Lstat(path); follow && lerr == nil && st.Mode()&os.ModeSymlink != 0 {
			return false // it leads to nothing: where would it be made?
		}
		// By hand: package filepath takes ".." for the folder above as the text
		// has it, the kernel for the one above where a link leads.
		dir, last := splitPath(path)
		if real, err = filepath.EvalSymlinks(dir); err != nil {
			return strings.HasPrefix(path, root+"/") && errors.Is(err, fs.ErrNotExist) // nothing can be made there
		}
		real = filepath.Join(real, last)
	}
	return real == root || strings.HasPrefix(real, root+"/")
}

// splitPath cuts an absolute path before its last name.
func splitPath(path string) (dir, last string) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "/", "."
	}
	return path[:i+1], path[i+1:]
}

// device tells whether a path leads to a device that opening may have an
// effect on (a watchdog, a tape).
func device(path string) bool {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false
	}
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return true
	case unix.S_IFCHR:
		switch {
		case major == 0 && minor == 0: // a whiteout
		case major == 1 && (minor == 3 || minor == 5 || minor >= 7 && minor <= 9): // null, zero, full, random, urandom
		case major == 5 && (minor == 0 || minor == 2), major >= 136 && major <= 143: // tty, ptmx, terminals
		default:
			return true
		}
	}
	return false
}
