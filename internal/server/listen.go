package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the room of sockaddr_un.sun_path without its final NUL (unix(7)).
const maxSocketPath = 107

// ListenUnix listens on a path with exactly this mode and group; gid -1 keeps the process's own.
//
// At no moment is the socket more open than that: it is bound with a mode that leaves it to its
// owner, and only then given away. A lock file beside it tells a live daemon from a socket that a dead one
// left: the first is an error, the second is replaced. The folder is made when it is missing,
// and refused when others could put another socket in this one's place.
func ListenUnix(path string, mode fs.FileMode, gid int) (net.Listener, error) {
	switch {
	case path == "" || path[0] == '@' || path[0] == 0:
		return nil, fmt.Errorf("socket %q: abstract sockets have no permissions and are not used; give an absolute path", path)
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("socket %q: not an absolute path", path)
	case strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("socket %q: holds a NUL", path)
	case len(path) > maxSocketPath:
		return nil, fmt.Errorf("socket %s: the path has %d bytes; the kernel takes %d; choose a shorter one with --listen", path, len(path), maxSocketPath)
	}
	if err := socketFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	l, err := bindUnix(path, mode, gid)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &unixListener{UnixListener: l, lock: lock}, nil
}

// socketFolder makes the folder, or checks that only its owner can change names in it.
func socketFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("folder %s belongs to uid %d, who could replace the socket", dir, st.Uid)
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("others can write in folder %s (mode %04o) and could replace the socket", dir, st.Mode&0o7777)
	}
	return nil
}

// lockSocket takes the lock that a policyd holds as long as it listens there.
func lockSocket(path string) (*os.File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("socket %s: another policyd is listening there", path)
		}
		return nil, fmt.Errorf("socket %s: lock: %w", path, err)
	}
	return lock, nil
}

// bindUnix wants the lock. Whoever still accepts connections there without it is not a policyd, and is left alone.
func bindUnix(path string, mode fs.FileMode, gid int) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil {
		switch info.Mode().Type() {
		case fs.ModeSocket:
		case fs.ModeSymlink:
			return nil, errors.New("a symbolic link has this name, and none is followed; name the place itself, or remove the link")
		default:
			return nil, errors.New("something that is not a socket has this name")
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
			return nil, errors.New("another program is listening there")
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("cannot tell whether a program is listening there: %w", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := bindForOwner(path)
	if err != nil {
		return nil, err
	}
	if gid >= 0 {
		err = os.Lchown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// bindForOwner binds a socket that its owner alone can connect to. bind(2) makes the name with the mode of the socket's own
// inode, less the umask (unix_bind_bsd in net/unix/af_unix.c), so that is set first. The umask itself is the whole
// process's, and left alone: other threads are making files.
func bindForOwner(path string) (*net.UnixListener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var inner error
		err := c.Control(func(fd uintptr) { inner = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, inner)
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// unixListener gives back the lock after the socket is gone. The lock's file stays: removing it
// would let two daemons each lock a file of that name.
type unixListener struct {
	*net.UnixListener
	lock *os.File
}

func (l *unixListener) Close() error {
	err := l.UnixListener.Close()
	l.lock.Close()
	return err
}
