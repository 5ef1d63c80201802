package landlock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// look is what was seen at a path. Two equal looks mean the same inode: a
// ruleset holds its inodes in memory, so a number cannot be given to another
// file while the ruleset is there, and the time of birth stands by for file
// systems whose numbers are not to be trusted.
type look struct {
	path    string // as the profile has it
	missing bool
	dev     uint64
	ino     uint64
	mnt     uint64
	birth   unix.StatxTimestamp
	mode    uint16
	nlink   uint32
}

func (l *look) isDir() bool { return l.mode&unix.S_IFMT == unix.S_IFDIR }

// same compares what makes an inode and where it was found. The number of links
// and the permission bits may change without the rule being another.
func (l *look) same(o *look) bool {
	return l.missing == o.missing && l.dev == o.dev && l.ino == o.ino && l.mnt == o.mnt &&
		l.birth == o.birth && l.mode&unix.S_IFMT == o.mode&unix.S_IFMT
}

const lookMask = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_INO | unix.STATX_NLINK | unix.STATX_BTIME | unix.STATX_MNT_ID

// lookAt looks at an open descriptor (path "") or at a path, through symbolic links.
func lookAt(fd int, path string) (look, error) {
	var st unix.Statx_t
	flags := 0
	if path == "" {
		flags = unix.AT_EMPTY_PATH
	}
	if err := retry(func() error { return unix.Statx(fd, path, flags, lookMask, &st) }); err != nil {
		return look{}, err
	}
	return look{
		path: path, dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino, mnt: st.Mnt_id,
		birth: st.Btime, mode: st.Mode, nlink: st.Nlink,
	}, nil
}

// again tells whether the path still leads to what was seen.
func (l *look) again() bool {
	now, err := lookAt(unix.AT_FDCWD, l.path)
	if err != nil {
		return l.missing && isMissing(err)
	}
	return l.same(&now)
}

func isMissing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// object is the file or directory a rule's path leads to.
type object struct {
	fd   int // O_PATH
	real string
	look look
}

// openRow opens a row's path and refuses one that symbolic links led out of the
// folder it must lie in. What counts is where the opened object is, so nobody
// can turn a link after the look at it.
func openRow(row *profile.PathRow) (object, error) {
	o, err := open(row.Path)
	if err != nil || row.Within == 0 {
		return o, err
	}
	folder, err := open(row.Path[:row.Within])
	if err == nil {
		unix.Close(folder.fd)
		if o.real == folder.real || strings.HasPrefix(o.real, strings.TrimSuffix(folder.real, "/")+"/") {
			return o, nil
		}
		err = fmt.Errorf("%q: %w: symbolic links lead to %q, out of %q, which a parameter must lie within", row.Path, errs.ErrPathRefused, o.real, row.Path[:row.Within])
	}
	unix.Close(o.fd)
	return object{}, err
}

// open opens a rule's path without opening the file (a named pipe does not
// block, a device sees nothing) and refuses what must not be granted. The error
// wraps errs.ErrPathMissing or errs.ErrPathRefused when the path is the culprit.
func open(path string) (object, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Openat2(unix.AT_FDCWD, path, &how)
		return err
	})
	if err == unix.ENOSYS {
		err = retry(func() (err error) {
			fd, err = openWalking(path)
			return err
		})
	}
	if err != nil {
		return object{}, openError(path, err)
	}
	if fd <= 2 { // Go keeps those open: a seccomp filter has answered with 0, and a rule would be for the standard input
		return object{}, fmt.Errorf("%q: %w: open is answered by something else than the kernel", path, errs.ErrPathRefused)
	}
	o := object{fd: fd}
	if err := o.examine(path); err != nil {
		unix.Close(fd)
		return object{}, err
	}
	return o, nil
}

func (o *object) examine(path string) (err error) {
	if o.look, err = lookAt(o.fd, ""); err != nil {
		return fmt.Errorf("%q: statx: %w", path, err)
	}
	o.look.path = path
	if o.look.nlink == 0 {
		return fmt.Errorf("%q: %w: it was removed just now", path, errs.ErrPathMissing)
	}
	if o.real, err = realPath(o.fd); err != nil {
		return fmt.Errorf("%q: learn its real path (is /proc mounted?): %w", path, err)
	}
	return o.refuse(path)
}

// realPath asks /proc, which in a container may be what its image has there.
func realPath(fd int) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs("/proc/self/fd", &st); err != nil {
		return "", err
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return "", errors.New("/proc is not the kernel's")
	}
	var buf [unix.PathMax]byte
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func openError(path string, err error) error {
	switch {
	case isMissing(err):
		return fmt.Errorf("%q: %w: %w", path, errs.ErrPathMissing, err)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		if fd, err2 := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err2 == nil {
			unix.Close(fd)
			return fmt.Errorf("%q: %w: it leads through a magic link of /proc to something of policyd itself", path, errs.ErrPathRefused)
		}
		return fmt.Errorf("%q: %w: too many symbolic links (a loop?): %w", path, errs.ErrPathRefused, err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%q: %w", path, err)
	}
	return fmt.Errorf("%q: %w: %w", path, errs.ErrPathRefused, err)
}

// refuse names what a rule cannot mean. A process's folder in /proc is bound to
// that process: /proc/self would grant policyd's own, never the sandboxed one's.
func (o *object) refuse(path string) error {
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(o.fd, &fs) }); err != nil {
		return fmt.Errorf("%q: fstatfs: %w", path, err)
	}
	switch fs.Type {
	case unix.NSFS_MAGIC, unix.PID_FS_MAGIC, unix.PIPEFS_MAGIC, unix.SOCKFS_MAGIC:
		return fmt.Errorf("%q: %w: it is on an internal file system of the kernel", path, errs.ErrPathRefused)
	case unix.PROC_SUPER_MAGIC:
		pid, err := o.process()
		if err != nil {
			return fmt.Errorf("%q: %w: %w", path, errs.ErrPathRefused, err)
		}
		if pid != "" {
			return fmt.Errorf("%q: %w: it is the folder of process %s (%s), not of the program to be started", path, errs.ErrPathRefused, pid, o.real)
		}
	}
	return nil
}

// process gives the process whose folder of procfs, or something in it, this is.
func (o *object) process() (string, error) {
	m, err := readMounts()
	if err != nil {
		return "", err
	}
	return m.process(o.real, o.look.mnt)
}

// fileType names the type of a mode for people.
func fileType(mode uint16) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "regular file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFIFO:
		return "named pipe"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR:
		return "character device"
	case unix.S_IFBLK:
		return "block device"
	}
	return "special file"
}

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
