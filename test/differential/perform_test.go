package differential_test

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// outcome is what the kernel answered.
type outcome struct {
	errno   syscall.Errno
	lacking bool // the kernel does not know this way at all
	// Of what was opened: whether ftruncate and ioctl were tried on it, and
	// how that ended.
	truncated, controlled bool
	truncate, ioctl       syscall.Errno
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	if err != nil && !errors.As(err, &e) {
		panic(err)
	}
	return e
}

// perform does a step on the calling thread.
func (st *stage) perform(s *step, f *profile.Facts) outcome {
	var err error
	path, to := st.m.path(s.op.Path), st.m.path(s.op.NewPath)
	if s.by != "" {
		return st.performBy(s, path)
	}
	switch s.op.Kind {
	case profile.OpOpen, profile.OpIoctlDev:
		return open(path, s, f)
	case profile.OpExec:
		err = st.exec(path)
	case profile.OpTruncate:
		err = unix.Truncate(path, 0)
	case profile.OpMkdir:
		err = unix.Mkdir(path, 0o777)
	case profile.OpMknod:
		if s.bind {
			err = st.withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, func(fd int) error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) })
		} else {
			err = mknod(path, s.kind)
		}
	case profile.OpSymlink:
		err = unix.Symlink("nowhere", path)
	case profile.OpUnlink:
		err = unix.Unlink(path)
	case profile.OpRmdir:
		err = unix.Rmdir(path)
	case profile.OpRename:
		err = unix.Rename(path, to)
	case profile.OpExchange:
		err = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	case profile.OpLink:
		err = unix.Link(path, to)
	case profile.OpConnectUnix:
		err = st.withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) })
	case opSignal:
		err = unix.Kill(st.target(s.shared), 0)
	case opAbstract:
		typ := unix.SOCK_DGRAM
		if s.stream {
			typ = unix.SOCK_STREAM
		}
		name := st.abstract(s.shared, typ)
		err = st.withSocket(unix.AF_UNIX, typ, func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: name}) })
	case profile.OpMount:
		err = unix.Mount("none", path, "no-such-type", 0, "")
	case profile.OpStat:
		var stat unix.Stat_t
		err = unix.Lstat(path, &stat)
	case profile.OpSetAttributes:
		err = unix.Chmod(path, 0o777)
	default:
		err = st.network(s)
	}
	return outcome{errno: errnoOf(err)}
}

const (
	opSignal   = profile.OpSignal
	opAbstract = profile.OpAbstractUnix
)

// performBy does a step in another way.
func (st *stage) performBy(s *step, path string) outcome {
	var err error
	switch s.by {
	case "access":
		err = unix.Faccessat(unix.AT_FDCWD, path, unix.F_OK, 0)
	case "readlink":
		_, err = unix.Readlink(path, make([]byte, 64))
	case "statfs":
		err = unix.Statfs(path, new(unix.Statfs_t))
	case "chown":
		err = unix.Lchown(path, os.Getuid(), os.Getgid())
	case "utime":
		err = unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: 1}, {Sec: 1}}, unix.AT_SYMLINK_NOFOLLOW)
	case "noreplace":
		err = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, st.m.path(s.op.NewPath), unix.RENAME_NOREPLACE)
	case "remount":
		err = unix.Mount("none", path, "", unix.MS_REMOUNT, "")
	case "bound":
		err = unix.Mount(path+"/no-such-source", path, "", unix.MS_BIND, "")
	case "pivot":
		// The file system's own refusal is another on each kernel.
		if err = unix.PivotRoot(path, path); err != nil && !errors.Is(err, unix.EPERM) {
			err = unix.EINVAL
		}
	case "send":
		if s.op.Kind == opAbstract {
			path = st.abstract(s.shared, unix.SOCK_DGRAM)
		}
		err = st.withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: path})
		})
		if err == nil {
			st.drain()
		}
	default:
		err = st.network(s)
	}
	return outcome{errno: errnoOf(err), lacking: errors.Is(err, unix.EPROTONOSUPPORT)}
}

// drain takes what was sent to the sockets, else no more can be.
func (st *stage) drain() {
	for _, fd := range st.fds {
		_, _, _ = unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT)
	}
}

// target is the process behind a name of a peer.
func (st *stage) target(peer int) int {
	if peer == ownProcess {
		return os.Getpid()
	}
	return st.targets[peer]
}

func (st *stage) withSocket(domain, typ int, use func(fd int) error) error {
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return use(fd)
}

var openBits = []struct {
	flag profile.OpenFlags
	bit  int
}{
	{profile.OpenTruncate, unix.O_TRUNC},
	{profile.OpenCreate, unix.O_CREAT},
	{profile.OpenDirectory, unix.O_DIRECTORY},
	{profile.OpenPath, unix.O_PATH},
}

// open opens as the step says, never blocks and never follows a symbolic link,
// then tries the rights that were decided at open.
func open(path string, s *step, f *profile.Facts) (o outcome) {
	flags := unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	has := func(f profile.OpenFlags) bool { return s.op.Open&f != 0 }
	switch {
	case has(profile.OpenRead) && has(profile.OpenWrite):
		flags |= unix.O_RDWR
	case has(profile.OpenWrite):
		flags |= unix.O_WRONLY
	}
	for _, f := range openBits {
		if has(f.flag) {
			flags |= f.bit
		}
	}
	fd, err := unix.Open(path, flags, 0o777)
	if err != nil {
		return outcome{errno: errnoOf(err)}
	}
	defer unix.Close(fd)
	if s.op.Kind == profile.OpIoctlDev {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		return outcome{errno: errnoOf(err)}
	}
	if has(profile.OpenPath) {
		return o
	}
	if has(profile.OpenWrite) && (f.Type == profile.RegularFile || f.Type == profile.NoFile) {
		o.truncated, o.truncate = true, errnoOf(unix.Ftruncate(fd, 0))
	}
	if f.Type == profile.CharDevice {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		o.controlled, o.ioctl = true, errnoOf(err)
	}
	return o
}

func (st *stage) exec(path string) error {
	pid, err := syscall.ForkExec(path, []string{path}, &syscall.ProcAttr{})
	if err != nil {
		return err
	}
	var ws unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && ws != 0 {
		err = unix.EIO // not the program's own status
	}
	return err
}
