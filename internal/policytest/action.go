package policytest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// action is one attempt at an operation. prepare and close are called outside
// of the sandbox, do inside.
type action struct {
	op   profile.Operation
	peer string // "in", "out"

	abstract string // name of the socket to connect to
	listener int    // descriptor + 1
	child    int
}

func (a *action) prepare() error {
	if a.op.Kind == profile.OpAbstractUnix {
		a.abstract = "@policytest-" + rand.Text()
		if a.peer == "out" {
			return a.listen()
		}
	}
	return nil
}

// listen makes the abstract socket, which belongs to the caller's sandbox.
func (a *action) listen() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	a.listener = fd + 1
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: a.abstract}); err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}

func (a *action) close() {
	if a.listener > 0 {
		unix.Close(a.listener - 1)
		a.listener = 0
	}
	if a.child > 0 {
		_ = unix.Kill(a.child, unix.SIGKILL)
		_ = reap(a.child)
		a.child = 0
	}
}

func reap(pid int) error {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// do performs the operation; the error is the kernel's.
func (a *action) do() error {
	path := a.op.Path
	switch a.op.Kind {
	case profile.OpOpen:
		return a.open(func(int) error { return nil })
	case profile.OpIoctlDev:
		return a.open(func(fd int) error {
			_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
			return err
		})
	case profile.OpExec:
		return execute(path)
	case profile.OpTruncate:
		return unix.Truncate(path, 0)
	case profile.OpMkdir:
		return unix.Mkdir(path, 0o755)
	case profile.OpMknod:
		return unix.Mknod(path, makeMode[a.op.Make]|0o600, int(makeDevice[a.op.Make]))
	case profile.OpSymlink:
		return unix.Symlink("nowhere", path)
	case profile.OpUnlink:
		return unix.Unlink(path)
	case profile.OpRmdir:
		return unix.Rmdir(path)
	case profile.OpRename:
		return unix.Rename(path, a.op.NewPath)
	case profile.OpExchange:
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, a.op.NewPath, unix.RENAME_EXCHANGE)
	case profile.OpLink:
		return unix.Link(path, a.op.NewPath)
	case profile.OpConnectUnix:
		return connectUnix(path)
	case profile.OpSignal:
		return a.signal()
	case profile.OpAbstractUnix:
		if a.peer == "in" {
			if err := a.listen(); err != nil {
				return err
			}
		}
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, func(fd int) error {
			return unix.Connect(fd, &unix.SockaddrUnix{Name: a.abstract})
		})
	case profile.OpMount:
		return unix.Mount("none", "/", "no-such-type", 0, "") // the type is looked up last
	case profile.OpStat:
		var st unix.Stat_t
		return unix.Stat(path, &st)
	case profile.OpSetAttributes:
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err
		}
		return unix.Chmod(path, st.Mode&0o7777)
	}
	return a.network()
}

var makeMode = map[profile.FileType]uint32{
	profile.RegularFile: unix.S_IFREG, profile.Fifo: unix.S_IFIFO, profile.Socket: unix.S_IFSOCK,
	profile.CharDevice: unix.S_IFCHR, profile.BlockDevice: unix.S_IFBLK,
}

// makeDevice are harmless ones: /dev/null, the first loop device.
var makeDevice = map[profile.FileType]uint64{profile.CharDevice: unix.Mkdev(1, 3), profile.BlockDevice: unix.Mkdev(7, 0)}

var openBits = []struct {
	flag profile.OpenFlags
	bit  int
}{
	{profile.OpenTruncate, unix.O_TRUNC},
	{profile.OpenCreate, unix.O_CREAT},
	{profile.OpenDirectory, unix.O_DIRECTORY},
	{profile.OpenPath, unix.O_PATH},
}

// open opens without ever blocking, then uses the descriptor.
func (a *action) open(use func(fd int) error) error {
	flags := unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	switch rw := profile.OpenRead | profile.OpenWrite; a.op.Open & rw {
	case rw:
		flags |= unix.O_RDWR
	case profile.OpenWrite:
		flags |= unix.O_WRONLY
	}
	for _, b := range openBits {
		if a.op.Open&b.flag != 0 {
			flags |= b.bit
		}
	}
	fd, err := unix.Open(a.op.Path, flags, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return use(fd)
}

// execute has the kernel execute a program and ends it before its first
// instruction: what is tested is execve(2), not what the program does.
func execute(path string) error {
	pid, err := syscall.ForkExec(path, []string{path}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return err
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	return reap(pid)
}

// signal asks whether a process may be signalled, without a signal.
func (a *action) signal() error {
	if a.peer == "out" {
		return unix.Kill(os.Getppid(), 0)
	}
	pid, errno := forkPaused()
	if errno != 0 {
		return fmt.Errorf("make a process: %s", errno.Error())
	}
	a.child = pid
	return unix.Kill(pid, 0)
}

func withSocket(domain, typ int, use func(fd int) error) error {
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return use(fd)
}

// connectUnix connects a stream, or a datagram socket where that is what
// listens. The address holds 107 bytes; a longer path goes by its folder.
func connectUnix(path string) error {
	if len(path) > 107 {
		dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))
	}
	connect := func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }
	err := withSocket(unix.AF_UNIX, unix.SOCK_STREAM, connect)
	if errors.Is(err, unix.EPROTOTYPE) {
		err = withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, connect)
	}
	return err
}

// network binds or connects on the loopback.
func (a *action) network() error {
	addr := &unix.SockaddrInet4{Port: int(a.op.Port), Addr: [4]byte{127, 0, 0, 1}}
	bind := func(fd int) error { return unix.Bind(fd, addr) }
	connect := func(fd int) error { return unix.Connect(fd, addr) }
	switch a.op.Kind {
	case profile.OpBindTCP:
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, bind)
	case profile.OpConnectTCP:
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, connect)
	case profile.OpBindUDP:
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, bind)
	case profile.OpConnectUDP:
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, connect)
	case profile.OpSendUDP:
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, func(fd int) error { return unix.Sendto(fd, nil, 0, addr) })
	}
	return fmt.Errorf("%v is not known to policyctl test --enforce", a.op.Kind)
}
