package testkernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The binary of a test is also the init of the guest it runs in. Nothing happens in any other process.
func init() {
	if path := os.Getenv(jobEnv); path != "" && os.Getpid() == 1 {
		guestInit(path)
	}
}

// guestInit is process 1 of a guest. It does not return.
func guestInit(path string) {
	defer powerOff()
	var j job
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err != nil {
		// Without the nonce there is no mark to say it with; the host shows the console's end.
		fmt.Fprintln(os.Stdout, "testkernel: read the job:", err)
		return
	}
	rawConsole()
	if j.Root != nil {
		err := become(j)
		fmt.Fprintf(os.Stdout, "\n%s%v\n", j.marker(markFail), err)
		return
	}
	if err := setUp(j); err != nil {
		fmt.Fprintf(os.Stdout, "\n%s%v\n", j.marker(markFail), err)
		return
	}
	fmt.Fprintf(os.Stdout, "\n%s\n", j.marker(strings.TrimSpace(markStart)))
	status, err := supervise(j)
	if err != nil {
		fmt.Fprintf(os.Stdout, "\n%s%v\n", j.marker(markFail), err)
		return
	}
	fmt.Fprintf(os.Stdout, "%s%d\n", j.marker(markExit), status)
}

func powerOff() {
	_ = unix.IoctlSetInt(1, unix.TCSBRK, 1) // wait until the console's output is written
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	time.Sleep(time.Hour) // process 1 must not end
}

// rawConsole lets the program's bytes through the console's terminal unchanged.
func rawConsole() {
	if t, err := unix.IoctlGetTermios(1, unix.TCGETS); err == nil {
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO
		_ = unix.IoctlSetTermios(1, unix.TCSETS, t)
	}
}

// mount is one file system of the guest.
type mount struct {
	fs, dir, data string
	flags         uintptr
	optional      bool // the kernel, or the host's root, may be without it
}

var mounts = []mount{
	{fs: "proc", dir: "/proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{fs: "sysfs", dir: "/sys", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{fs: "devtmpfs", dir: "/dev", flags: unix.MS_NOSUID},
	{fs: "devpts", dir: "/dev/pts", data: "ptmxmode=0666,mode=0620", optional: true},
	{fs: "tmpfs", dir: "/dev/shm", data: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{fs: "tmpfs", dir: "/tmp", data: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{fs: "tmpfs", dir: "/run", data: "mode=0755", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{fs: "tmpfs", dir: "/var/tmp", data: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV, optional: true},
	{fs: "securityfs", dir: "/sys/kernel/security", optional: true},
	{fs: "smackfs", dir: "/sys/fs/smackfs", optional: true},
	{fs: "cgroup2", dir: "/sys/fs/cgroup", optional: true},
}

// setUp makes the guest's file systems and its loopback interface.
func setUp(j job) error {
	// Descriptors taken before the mounts lead to what these hide.
	kept := map[string]int{}
	for _, path := range j.Keep {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		kept[path] = fd
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.dir, "/dev/") {
			_ = os.Mkdir(m.dir, 0o755)
		}
		err := unix.Mount(m.fs, m.dir, m.fs, m.flags, m.data)
		if errors.Is(err, unix.EBUSY) {
			continue // the kernel has mounted devtmpfs itself
		}
		if err != nil && !m.optional {
			return fmt.Errorf("mount %s on %s: %w", m.fs, m.dir, err)
		}
	}
	for _, path := range j.Keep {
		if err := keepVisible(path, kept[path]); err != nil {
			return fmt.Errorf("keep %s visible: %w", path, err)
		}
	}
	for name, target := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+target, "/dev/"+name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := os.Mkdir(guestHome, 0o700); err != nil {
		return err
	}
	return loopbackUp()
}

// keepVisible binds what fd holds to its path again if a tmpfs has hidden it, and closes fd.
func keepVisible(path string, fd int) error {
	defer unix.Close(fd)
	var was, now unix.Stat_t
	if err := unix.Fstat(fd, &was); err != nil {
		return err
	}
	if err := unix.Stat(path, &now); err == nil && now.Dev == was.Dev && now.Ino == was.Ino {
		return nil
	}
	if was.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	} else {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		f.Close()
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, "")
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// supervise runs the job's program, reaps every orphan meanwhile, and returns the program's exit status.
func supervise(j job) (int, error) {
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(j.Argv[0], j.Argv, &syscall.ProcAttr{
		Dir: j.Dir, Env: j.Env, Files: []uintptr{null.Fd(), 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", j.Argv[0], err)
	}
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", j.Argv[0], err)
		case got != pid:
		case ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case ws.Exited():
			return ws.ExitStatus(), nil
		}
	}
}
