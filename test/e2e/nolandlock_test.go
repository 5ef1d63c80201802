package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseEnv makes the test binary a program that executes another one for which
// landlock_create_ruleset fails with this error number.
const refuseEnv = "POLICYD_TEST_REFUSE_LANDLOCK"

func refuseLandlock(errno string, args []string) {
	n, err := strconv.ParseUint(errno, 10, 12)
	if err != nil {
		panic(err)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_LANDLOCK_CREATE_RULESET},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(n)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		panic(errno)
	}
	os.Unsetenv(refuseEnv)
	panic(syscall.Exec(args[0], args, os.Environ()))
}

// Where the kernel enforces nothing policyd still runs: it says why, in words and by the exit status of status,
// refuses what must be enforced, and says of the rest that nothing of it is.
func TestWithoutLandlock(t *testing.T) {
	for _, c := range []struct {
		errno      syscall.Errno
		state, way string
	}{
		{unix.ENOSYS, "not built into this kernel", "CONFIG_SECURITY_LANDLOCK=y"},
		{unix.EOPNOTSUPP, "disabled (not in the lsm= list)", "add landlock to the list of lsm="},
		{unix.EPERM, "blocked by a seccomp filter", "allow landlock_create_ruleset"},
	} {
		t.Run(c.errno.Error(), func(t *testing.T) {
			d := startWithoutLandlock(t, c.errno)
			r := d.ctl("status")
			if r.code != 1 || !strings.Contains(r.stdout, c.state) || !strings.Contains(r.stdout, c.way) || !strings.Contains(r.stdout, "no policy can be enforced here") {
				t.Errorf("%s", r)
			}
			if r := d.ctl("status", "-q"); r.code != 1 || r.stdout != "" {
				t.Errorf("%s", r)
			}
			for _, enforcement := range []string{"required", "degrade"} {
				text := fmt.Sprintf("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: %s}\nspec: {abi: 1, enforcement: %s, layers: [{name: host, include: [std/shell]}]}\n", enforcement, enforcement)
				if r := d.ctlIn(text, "apply", "-f", "-"); r.code != 0 {
					t.Fatalf("%s", r)
				}
			}
			if r := d.ctl("run", "required", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, c.way) {
				t.Errorf("%s", r)
			}
			r = d.ctl("run", "degrade", "--", "cat", "/proc/self/status")
			if r.code != 0 || !strings.Contains(r.stdout, "NoNewPrivs:\t1") {
				t.Errorf("%s", r)
			}
			for _, right := range []string{"execute", "read_file", "write_file", "make_reg"} {
				if !strings.Contains(r.stderr, "not enforced on this kernel: layer host: fs "+right) {
					t.Errorf("nothing says that %s is not enforced: %s", right, r)
				}
			}
			if r := d.ctl("ps", "-a"); !strings.Contains(r.stdout, "not enforced") {
				t.Errorf("%s", r)
			}
		})
	}
}

func startWithoutLandlock(t *testing.T, errno syscall.Errno) *daemon {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, state: filepath.Join(t.TempDir(), "state")}
	d.cmd = exec.Command(exe, filepath.Join(binDir, "policyd"), "--state-dir", d.state)
	d.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", refuseEnv, int(errno)))
	d.cmd.Stdout, d.cmd.Stderr = t.Output(), t.Output()
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stop(syscall.SIGTERM) })
	if r := d.ctl("status", "--wait=30"); r.code != 1 {
		t.Fatalf("status of a policyd that can enforce nothing: %s", r)
	}
	return d
}
