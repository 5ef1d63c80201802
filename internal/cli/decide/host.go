package decide

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// maxLinks is how many symbolic links a path may lead through (MAXSYMLINKS).
const maxLinks = 40

// inode names an object on this host. The time of birth tells apart two files
// that got one number after each other.
type inode struct {
	dev, ino uint64
	birth    unix.StatxTimestamp
}

// object is what was seen at a path.
type object struct {
	inode
	kind     profile.FileType
	mount    uint64
	whiteout bool // a character device of number 0:0
	linked   bool // no directory, with more than one name
}

const lookMask = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_BTIME | unix.STATX_MNT_ID | unix.STATX_NLINK

// lookAt looks at a path, through a symbolic link at its end or not.
func lookAt(path string, follow bool) (object, error) {
	flags := unix.AT_NO_AUTOMOUNT
	if !follow {
		flags |= unix.AT_SYMLINK_NOFOLLOW
	}
	return statx(unix.AT_FDCWD, path, flags)
}

func statx(fd int, path string, flags int) (object, error) {
	var st unix.Statx_t
	err := retry(func() error { return unix.Statx(fd, path, flags, lookMask, &st) })
	if err != nil {
		return object{}, &fs.PathError{Op: "look at", Path: path, Err: err}
	}
	return object{
		inode: inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, st.Btime},
		mount: st.Mnt_id, kind: fileType(st.Mode), linked: st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR,
		whiteout: st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev_major == 0 && st.Rdev_minor == 0,
	}, nil
}

func fileType(mode uint16) profile.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return profile.RegularFile
	case unix.S_IFDIR:
		return profile.Directory
	case unix.S_IFLNK:
		return profile.Symlink
	case unix.S_IFCHR:
		return profile.CharDevice
	case unix.S_IFBLK:
		return profile.BlockDevice
	case unix.S_IFIFO:
		return profile.Fifo
	case unix.S_IFSOCK:
		return profile.Socket
	}
	return profile.NoFile
}

func isMissing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func openPath(path string, flags int) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, &fs.PathError{Op: "look at", Path: path, Err: err}
	}
	return fd, nil
}

// found is where a path leads.
type found struct {
	object        // kind is NoFile when nothing is there
	real   string // absolute, clean and real; of nothing: real as far as there is something
	orphan bool   // not even its folder is there
}

func (f *found) exists() bool { return f.kind != profile.NoFile }

// resolve follows a path as the kernel does; follow says whether also a
// symbolic link at its end. It may lead to nothing: then real is what open(2)
// with O_CREAT, or the system call that makes something there, would make.
func resolve(given string, follow bool) (found, error) {
	at := given
	for range maxLinks {
		f, err := reach(at, follow)
		if !errors.Is(err, unix.ENOENT) {
			return f, err
		}
		trimmed := strings.TrimRight(at, "/")
		dir, last := path.Split(trimmed)
		if last == "" || last == "." || last == ".." {
			return found{}, err
		}
		folder, err := resolve(dir, true)
		if err != nil {
			return found{}, err
		}
		here := path.Join(folder.real, last)
		if !folder.exists() {
			return found{real: here, orphan: true}, nil
		}
		if folder.kind != profile.Directory {
			return found{}, &fs.PathError{Op: "look at", Path: given, Err: unix.ENOTDIR}
		}
		target, isLink := readLink(here)
		if !isLink || !follow {
			return found{real: here}, nil
		}
		if !strings.HasPrefix(target, "/") {
			target = strings.TrimSuffix(folder.real, "/") + "/" + target
		}
		at = target
	}
	return found{}, &fs.PathError{Op: "look at", Path: given, Err: unix.ELOOP}
}

func readLink(name string) (string, bool) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlink(name, buf[:])
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}

// reach has the kernel follow a path to something that is there, and asks it
// for the real path. Nothing is opened: a named pipe does not block.
func reach(at string, follow bool) (found, error) {
	flags := unix.O_PATH
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := openPath(at, flags)
	if err != nil {
		return found{}, err
	}
	defer unix.Close(fd)
	var f found
	if f.object, err = statx(fd, "", unix.AT_EMPTY_PATH); err != nil {
		return found{}, err
	}
	var ok bool
	if f.real, ok = readLink(ownFD(fd)); !ok {
		return found{}, fmt.Errorf("%s: its real path is not to be learnt (is /proc mounted?)", at)
	}
	if again, err := lookAt(f.real, false); err != nil || again.inode != f.inode || !strings.HasPrefix(f.real, "/") {
		return found{}, fmt.Errorf("%s: leads to %s, which no path of this host names", at, f.real)
	}
	return f, nil
}
