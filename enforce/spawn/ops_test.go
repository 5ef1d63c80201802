package spawn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// The test binary, started with this in its environment, tries operations, one
// a line, and prints for each "ok" or the name of the errno.
const opEnv = "POLICYD_SPAWN_TEST_OP"

func runOp(ops string) int {
	for line := range strings.SplitSeq(ops, "\n") {
		f := strings.Fields(line)
		op, ok := operations[f[0]]
		if !ok {
			fmt.Println("no operation", f[0])
			return 98
		}
		fmt.Println(errnoName(op(append(f[1:], "", ""))))
	}
	return 0
}

func errnoName(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func openClose(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

var operations = map[string]func(a []string) error{
	"read":     func(a []string) error { return openClose(a[0], unix.O_RDONLY) },
	"write":    func(a []string) error { return openClose(a[0], unix.O_WRONLY) },
	"update":   func(a []string) error { return openClose(a[0], unix.O_RDWR) },
	"list":     func(a []string) error { return openClose(a[0], unix.O_RDONLY|unix.O_DIRECTORY) },
	"create":   func(a []string) error { return openClose(a[0], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) },
	"mkdir":    func(a []string) error { return unix.Mkdir(a[0], 0o700) },
	"mkfifo":   func(a []string) error { return unix.Mkfifo(a[0], 0o600) },
	"mksock":   func(a []string) error { return unix.Mknod(a[0], unix.S_IFSOCK|0o600, 0) },
	"mkchar":   func(a []string) error { return unix.Mknod(a[0], unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	"mkblock":  func(a []string) error { return unix.Mknod(a[0], unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))) },
	"symlink":  func(a []string) error { return unix.Symlink("target", a[0]) },
	"unlink":   func(a []string) error { return unix.Unlink(a[0]) },
	"rmdir":    func(a []string) error { return unix.Rmdir(a[0]) },
	"rename":   func(a []string) error { return unix.Rename(a[0], a[1]) },
	"truncate": func(a []string) error { return unix.Truncate(a[0], 0) },
	"exec": func(a []string) error {
		pid, err := syscall.ForkExec(a[0], []string{a[0]}, &syscall.ProcAttr{})
		if err == nil {
			_, err = syscall.Wait4(pid, nil, 0, nil)
		}
		return err
	},
	// FIONREAD is let through by Landlock on regular files only; on a device it is asked for.
	"ioctl": func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		_, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == unix.ENOTTY {
			err = nil // the device's own answer
		}
		return err
	},
	"bindtcp": func(a []string) error { return socketOp(unix.SOCK_STREAM, a[0], unix.Bind) },
	"bindudp": func(a []string) error { return socketOp(unix.SOCK_DGRAM, a[0], unix.Bind) },
	"conntcp": func(a []string) error { return refusedIsFine(socketOp(unix.SOCK_STREAM, a[0], unix.Connect)) },
	"connudp": func(a []string) error { return socketOp(unix.SOCK_DGRAM, a[0], unix.Connect) },
	"signal": func(a []string) error {
		pid, err := strconv.Atoi(a[0])
		if err != nil {
			return err
		}
		return unix.Kill(pid, 0)
	},
	"connunix": func(a []string) error {
		c, err := net.Dial("unix", a[0])
		if err == nil {
			c.Close()
		}
		return err
	},
	// Reads a file under a domain of the program's own that lets it read nothing.
	"nested": func(a []string) error {
		runtime.LockOSThread()
		attr := struct{ handledFS uint64 }{uint64(profile.FSReadFile)}
		fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
		if errno != 0 {
			return fmt.Errorf("landlock_create_ruleset: %v", errno)
		}
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
			return fmt.Errorf("landlock_restrict_self: %v", errno)
		}
		return openClose(a[0], unix.O_RDONLY)
	},
	"sleep": func(a []string) error { time.Sleep(time.Hour); return nil },
	"nnp": func(a []string) error {
		if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || v != 1 {
			return fmt.Errorf("no_new_privs %d: %w", v, err)
		}
		return nil
	},
	"id": func(a []string) error {
		groups, _ := os.Getgroups()
		return fmt.Errorf("%d %d %v", os.Getuid(), os.Getgid(), groups)
	},
	"hasfile": func(a []string) error { _, err := os.Stat(a[0]); return err },
}

func socketOp(typ int, port string, do func(int, unix.Sockaddr) error) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
}

func refusedIsFine(err error) error {
	if err == unix.ECONNREFUSED {
		return nil
	}
	return err
}
