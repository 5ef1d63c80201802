package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// withFault sets the hook for one test.
func withFault(t *testing.T, hook func(step string) error) {
	t.Helper()
	fault = hook
	t.Cleanup(func() { fault = nil })
}

// restricted are the threads that were restricted for a start.
type restricted struct{ tids sync.Map }

// noting is a hook that notes the thread of every start before it calls another.
func (r *restricted) noting(hook func(step string) error) func(step string) error {
	return func(step string) error {
		if step == stepUnshareFS || step == stepNoNewPrivs {
			r.tids.Store(unix.Gettid(), true)
		}
		return hook(step)
	}
}

// none tells whether all of them have ended.
func (r *restricted) none() bool {
	none := true
	r.tids.Range(func(tid, _ any) bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
		none = err != nil
		return none
	})
	return none
}

var errInjected = errors.New("injected")

// faultCommand goes through every step. It leaves a file when its program runs.
func faultCommand(t *testing.T) (cmd *Command, ran func() bool) {
	t.Helper()
	mark := filepath.Join(t.TempDir(), "ran")
	cmd = sh("echo x > " + mark)
	cmd.Umask, cmd.Dir = ptr(0o022), filepath.Dir(mark)
	cmd.Limits = []Limit{{unix.RLIMIT_CORE, "core", 0, 0}}
	return cmd, func() bool { _, err := os.Stat(mark); return err == nil }
}

func faultPolicy(t *testing.T) *landlock.Rulesets {
	sup := support(t)
	return openPolicy(t, sup, rule{os.TempDir(), layerFor("", sup.ABI).FS})
}

// TestFaultTable makes every step fail in turn: nothing is started, and neither
// a thread nor a descriptor is left.
func TestFaultTable(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		rs := faultPolicy(t)
		s := newTestSpawner(t, 0)
		seen := make(map[string]bool)
		var threads restricted
		withFault(t, threads.noting(func(step string) error { seen[step] = true; return nil }))
		cmd, ran := faultCommand(t)
		c, err := s.Start(cmd, rs)
		if err != nil {
			t.Fatal(err)
		}
		if st := wait(t, c); st.Code != 0 || !ran() {
			t.Fatalf("%+v: without a fault the command does not run", st)
		}
		smack := func(step string) bool { return strings.HasPrefix(step, "smack") }
		for _, name := range steps {
			if !seen[name] && !smack(name) {
				t.Errorf("step %s is not on the way", name)
			}
		}
		for name := range seen {
			if !contains(steps, name) {
				t.Errorf("step %s is not in the table", name)
			}
		}
		eventually(t, "threads end", func() bool { return ownChildren(t) == 0 })
		before := fds(t)
		for _, name := range steps {
			t.Run(name, func(t *testing.T) {
				cmd, ran := faultCommand(t)
				if smack(name) {
					cmd.SmackLabel, cmd.SmackRelabel = "_", []string{"_"}
					if _, err := os.Stat(smackCurrent); err != nil && name != stepSmackOpen {
						t.Skip("the kernel has no Smack: the step before fails by itself, see TestNoSmack")
					}
				}
				withFault(t, threads.noting(func(step string) error {
					if step == name {
						return fmt.Errorf("%s: %w", step, errInjected)
					}
					return nil
				}))
				c, err := s.Start(cmd, rs)
				if err == nil {
					c.Signal(unix.SIGKILL)
					t.Fatal("it started")
				}
				if !errors.Is(err, errInjected) || !errors.Is(err, errs.ErrStart) {
					t.Errorf("error %v", err)
				}
				// poll comes after exec: there the program is ended instead.
				if name != stepPoll && ran() {
					t.Error("the program ran")
				}
				eventually(t, "no child is left", func() bool { return ownChildren(t) == 0 })
			})
		}
		eventually(t, "no descriptor is left", func() bool { return len(fds(t)) <= len(before) })
		eventually(t, "no restricted thread is left", threads.none)
	})
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// ownChildren counts the children of this process that were not waited for.
func ownChildren(t *testing.T) int {
	t.Helper()
	procs, err := descendants(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return len(procs)
}

// childCalls are the system calls between fork and exec, and those around them,
// with what makes the way come by them.
var childCalls = []struct {
	name string
	nr   uint32
	root bool // only with credentials
	tty  bool // only with a terminal
}{
	{"pipe2", unix.SYS_PIPE2, false, false},
	{"clone", unix.SYS_CLONE, false, false},
	{"clone3", unix.SYS_CLONE3, false, false},
	{"setsid", unix.SYS_SETSID, false, true},
	{"setpgid", unix.SYS_SETPGID, false, false},
	{"ioctl(TIOCSCTTY)", unix.SYS_IOCTL, false, true},
	{"setgroups", unix.SYS_SETGROUPS, true, false},
	{"setgid", unix.SYS_SETGID, true, false},
	{"setuid", unix.SYS_SETUID, true, false},
	{"chdir", unix.SYS_CHDIR, false, false},
	{"dup3", unix.SYS_DUP3, false, false},
	{"ptrace", unix.SYS_PTRACE, false, false},
	{"execve", unix.SYS_EXECVE, false, false},
	{"prlimit64", unix.SYS_PRLIMIT64, false, false},
	{"unshare", unix.SYS_UNSHARE, false, false},
	{"prctl", unix.SYS_PRCTL, false, false},
	{"landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, false, false},
}

// TestBrokenSystemCalls has the kernel itself refuse each system call on the
// way to exec, by a seccomp filter on the thread of that one start.
func TestBrokenSystemCalls(t *testing.T) {
	rs := faultPolicy(t)
	s := newTestSpawner(t, 0)
	for _, call := range childCalls {
		t.Run(call.name, func(t *testing.T) {
			cmd, ran := faultCommand(t)
			if call.name == "setpgid" && hasTerminal() {
				t.Skip("setsid is called instead: the test has a terminal")
			}
			if call.root {
				testkernel.RequireRoot(t)
				cmd.Credential, cmd.Dir = &Credential{UID: 65534, GID: 65534, Groups: []uint32{65534}}, "/"
			}
			if call.tty {
				cmd.Stdin, cmd.TTY = terminal(t), true
			}
			if call.name == "clone3" {
				c, err := DetectContainment(Options{})
				if err != nil || c.Name() != "cgroup" {
					testkernel.Skip(t, "a writable cgroup v2", "run as root or in a delegated cgroup")
				}
				g, err := c.NewGroup("test-" + fmt.Sprint(os.Getpid()))
				if err != nil {
					t.Fatal(err)
				}
				defer g.Remove()
				cmd.Group = g
			}
			withFault(t, faultOf(fmt.Sprintf("call:%d", call.nr)))
			c, err := s.Start(cmd, rs)
			if err == nil {
				c.Signal(unix.SIGKILL)
				t.Fatal("it started")
			}
			if !errors.Is(err, errs.ErrStart) && !errors.Is(err, errs.ErrProgramRefused) {
				t.Errorf("error %v", err)
			}
			if ran() {
				t.Error("the program ran")
			}
			eventually(t, "no child is left", func() bool { return ownChildren(t) == 0 })
		})
	}
}

// refuseCall makes a system call fail with EIO on this thread from now on.
func refuseCall(nr uint32) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: nr},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	return nil
}

// TestRanInVain: what a program has started before its start failed for good ends
// with it, in whatever group.
func TestRanInVain(t *testing.T) {
	rs := faultPolicy(t)
	s := newTestSpawner(t, 0)
	eachContainment(t, func(t *testing.T, c Containment) {
		for range 5 {
			cmd, ran, tag := supervisedFaultCommand(t, newGroup(t, c))
			pollings := 0
			withFault(t, func(step string) error {
				if step != stepPoll {
					return nil
				}
				if pollings++; c.Name() == "supervisor" && pollings == 1 {
					return nil // of the supervisor itself
				}
				for deadline := time.Now().Add(5 * time.Second); (!ran() || tagged("sleep\x001000\x00"+tag) < 1) && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				return errInjected
			})
			child, err := s.Start(cmd, rs)
			if err == nil {
				_ = cmd.Group.KillAll()
				wait(t, child)
			}
			if !errors.Is(err, errInjected) || !ran() {
				t.Fatalf("error %v, ran %v", err, ran())
			}
			if n := tagged(tag); n != 0 {
				t.Errorf("%d processes are left", n)
			}
		}
	})
}
