package landlock

import (
	"strings"

	"golang.org/x/sys/unix"
)

// procRootIno is PROC_ROOT_INO of the kernel's include/linux/proc_fs.h.
const procRootIno = 1

// openWalking opens an absolute path as openat2(2) does with RESOLVE_NO_MAGICLINKS,
// where a seccomp filter hides that call: systemd's does for RestrictSUIDSGID=, which
// DynamicUser= brings along. It refuses more: every link on procfs but those right in
// its root (self, mounts) is taken for a magic one.
func openWalking(path string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	root := func() (int, error) { return unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) }
	if len(path) >= unix.PathMax {
		return -1, unix.ENAMETOOLONG
	}
	at, err := root()
	if err != nil {
		return -1, err
	}
	links := 0
	for rest := strings.TrimLeft(path, "/"); rest != ""; {
		name, after, folder := strings.Cut(rest, "/")
		next, err := unix.Openat(at, name, flags, 0)
		if err != nil {
			unix.Close(at)
			return -1, err
		}
		target, link, err := followed(at, next)
		if err == nil && link {
			unix.Close(next)
			if links++; links > maxLinks {
				err = unix.ELOOP
			} else if strings.HasPrefix(target, "/") {
				unix.Close(at)
				if at, err = root(); err != nil {
					return -1, err
				}
			}
			rest = target
			if folder {
				rest += "/" + after
			}
			rest = strings.TrimLeft(rest, "/")
		} else if err == nil {
			unix.Close(at)
			at = next
			if rest = strings.TrimLeft(after, "/"); folder && rest == "" {
				err = isFolder(at)
			}
		} else {
			unix.Close(next)
		}
		if err != nil {
			unix.Close(at)
			return -1, err
		}
	}
	return at, nil
}

// followed gives where a symbolic link leads to, unless it is a magic one.
func followed(dir, fd int) (target string, link bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, err
	}
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return "", false, err
	}
	if fs.Type == unix.PROC_SUPER_MAGIC {
		var parent unix.Stat_t
		if err := unix.Fstat(dir, &parent); err != nil {
			return "", false, err
		}
		if parent.Ino != procRootIno || parent.Dev != st.Dev {
			return "", false, unix.ELOOP
		}
	}
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(fd, "", buf[:])
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(buf[:n]), true, err
}

func isFolder(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	return nil
}
