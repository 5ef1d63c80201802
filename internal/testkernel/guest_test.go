package testkernel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLandlockABI holds what the guest is for: the newest ABI, whatever the host has.
func TestLandlockABI(t *testing.T) {
	Each(t, Landlock, func(t *testing.T) {
		abi, err := ABI()
		if err != nil {
			t.Fatal(err)
		}
		in, guest := insideGuest()
		if guest && in.Kernel == UML73 && abi != 11 {
			t.Errorf("ABI %d in %s, want 11", abi, in.Kernel)
		}
		if abi < 1 {
			t.Errorf("ABI %d", abi)
		}
	})
}

func TestSmackRules(t *testing.T) {
	Each(t, Smack, func(t *testing.T) {
		RequireRoot(t)
		label, err := os.ReadFile("/proc/self/attr/current")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.TrimRight(label, "\x00\n")); got != "_" {
			t.Errorf("label %q, want _", got)
		}
		if err := os.WriteFile("/sys/fs/smackfs/load2", []byte("TestkernelSubject TestkernelObject rx"), 0); err != nil {
			t.Fatal(err)
		}
		rules, err := os.ReadFile("/sys/fs/smackfs/load2")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(rules), "TestkernelSubject TestkernelObject rx") {
			t.Errorf("rule is not in load2: %q", rules)
		}
	})
}

// TestGuestSystem holds what tests may rely on in every guest.
func TestGuestSystem(t *testing.T) {
	Each(t, Smack, func(t *testing.T) {
		if _, guest := insideGuest(); !guest {
			t.Skip("of guests only")
		}
		t.Run("root", func(t *testing.T) {
			RequireRoot(t)
			if err := os.WriteFile("/etc/testkernel", nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write to the host's root: %v, want EROFS", err)
			}
		})
		t.Run("writable", testWritable)
		t.Run("exec", testExec)
		t.Run("unix socket", testUnixSocket)
		t.Run("loopback", testLoopback)
		t.Run("mmap", testMmap)
		t.Run("terminal", testTerminal)
		t.Run("cgroup", testCgroup)
		t.Run("source", func(t *testing.T) {
			if _, err := os.Stat("guest_test.go"); err != nil {
				t.Errorf("the package's directory is not the working directory: %v", err)
			}
			if _, err := os.Stat("../../go.mod"); err != nil {
				t.Error(err)
			}
		})
	})
}

func testWritable(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/tmp", "/run", "/var/tmp", "/dev/shm", os.Getenv("HOME")} {
		path := filepath.Join(dir, "testkernel-file")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile("/dev/null", []byte("x"), 0); err != nil {
		t.Error(err)
	}
}

func testExec(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo one | cat; exit 3").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "one\n" {
		t.Errorf("sh: %q, %v", out, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err = exec.CommandContext(t.Context(), self, "-test.list=^TestGuestSystem$").Output()
	if err != nil || !strings.Contains(string(out), "TestGuestSystem") {
		t.Errorf("the test binary by its own path: %q, %v", out, err)
	}
}

func testUnixSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if cred.Pid != int32(os.Getpid()) || cred.Uid != 0 {
		t.Errorf("peer %+v, want pid %d uid 0", cred, os.Getpid())
	}
}

func testLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("hello"))
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Errorf("read %q, %v", b, err)
	}
}

func testMmap(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "m"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(m[4096:], "shared")
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := f.ReadAt(b, 4096); err != nil || string(b) != "shared" {
		t.Errorf("read %q, %v", b, err)
	}
}

func testTerminal(t *testing.T) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPTN); err != nil {
		t.Error(err)
	}
}

func testCgroup(t *testing.T) {
	b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"memory", "pids"} {
		if !slices.Contains(strings.Fields(string(b)), want) {
			t.Errorf("controllers %q lack %s", b, want)
		}
	}
	dir := "/sys/fs/cgroup/testkernel"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("member of a killed cgroup: %v", err)
	}
}

func TestGuestAudit(t *testing.T) {
	Each(t, Landlock, func(t *testing.T) {
		if _, guest := insideGuest(); !guest {
			t.Skip("of guests only")
		}
		cmdline, err := os.ReadFile("/proc/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(cmdline, []byte("audit=1")) {
			t.Errorf("kernel command line %q", cmdline)
		}
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		// Joining the log's group is what a reader of denials does.
		const auditNLGrpReadlog = 1
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, auditNLGrpReadlog); err != nil {
			t.Error(err)
		}
	}, Audit(), Memory(128))
}
