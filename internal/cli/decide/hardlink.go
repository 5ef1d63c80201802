package decide

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// bound is a row of p on its inode.
type bound struct {
	row  int
	file bool // it is no directory

	// object is held where the numbers of the inode may be those of others too.
	object *os.File
}

// bindRow binds a row to what its path leads to.
func (d *Decider) bindRow(row int, path string, o object) error {
	b := bound{row: row, file: o.kind != profile.Directory}
	if o.linked {
		fd, err := openPath(path, unix.O_PATH)
		if err != nil {
			return err
		}
		b.object = os.NewFile(uintptr(fd), path)
		overlay, err := onOverlay(fd)
		if !overlay {
			b.object.Close()
			b.object = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	d.rules[o.inode] = append(d.rules[o.inode], b)
	return nil
}

// on gives the rows that are bound to what was seen at a real path.
//
// The kernel binds rules to inodes in its memory. They are told apart here by
// numbers of device and inode, except on overlayfs: it gives hard links of a file
// in a lower layer one number, but an inode each (ovl_get_inode, without
// index=on). inotify(7), which marks inodes in memory too, tells.
func (d *Decider) on(at string, o object) ([]bound, error) {
	all := d.rules[o.inode]
	if !o.linked {
		return all, nil
	}
	var rows []bound
	for _, b := range all {
		if b.object != nil {
			same, err := sameInode(b.object, at)
			if err != nil {
				return nil, &fs.PathError{Op: "compare hard links on overlayfs", Path: at, Err: err}
			}
			if !same {
				continue
			}
		}
		rows = append(rows, b)
	}
	return rows, nil
}

func onOverlay(fd int) (bool, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Fstatfs(fd, &st) })
	return st.Type == unix.OVERLAYFS_SUPER_MAGIC, err
}

// sameInode tells whether two files are one inode: a second mark on it is the
// first. Both must be readable.
func sameInode(f *os.File, path string) (bool, error) {
	in, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return false, err
	}
	defer unix.Close(in)
	first, err := unix.InotifyAddWatch(in, ownFD(int(f.Fd())), unix.IN_DELETE_SELF)
	if err != nil {
		return false, err
	}
	second, err := unix.InotifyAddWatch(in, path, unix.IN_DELETE_SELF|unix.IN_DONT_FOLLOW)
	return first == second, err
}
