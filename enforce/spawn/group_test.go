package spawn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// eachContainment runs a test with cgroups, where they can be written, and with
// the supervisor.
func eachContainment(t *testing.T, f func(t *testing.T, c Containment)) {
	t.Run("supervisor", func(t *testing.T) { f(t, supervisorContainment(t)) })
	t.Run("cgroup", func(t *testing.T) {
		c, err := DetectContainment(Options{Launcher: buildLauncher(t)})
		if err != nil {
			t.Fatal(err)
		}
		if c.Name() != "cgroup" {
			testkernel.Skip(t, "a writable cgroup v2", "run as root or in a delegated cgroup")
		}
		f(t, c)
	})
}

func newGroup(t *testing.T, c Containment) Group {
	t.Helper()
	g, err := c.NewGroup(fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.KillAll(), g.Remove()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// tagged counts the processes on the host that have this in their environment
// or command line, whoever their parent is.
func tagged(tag string) int {
	n := 0
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if b, err := os.ReadFile(line); err == nil && strings.Contains(string(b), tag) {
			n++
		}
	}
	return n
}

// TestKillAll: whatever way a program's descendants went, none is left.
func TestKillAll(t *testing.T) {
	scripts := map[string]string{
		"child":       "sleep 1000 TAG & wait",
		"double fork": "(sh -c 'exec sleep 1000 TAG' &) & sleep 1000",
		"setsid":      "setsid sh -c 'trap \"\" TERM HUP INT; setsid sleep 1000 TAG; :' & sleep 1000",
		"deaf":        "trap '' TERM HUP INT; (trap '' TERM; while :; do sleep 1000 TAG; done) & wait",
		"stopped":     "sleep 1000 TAG & kill -STOP $!; sleep 1000",
		"fork bomb":   "f() { sleep 0.05 TAG; [ $1 = xxxxxxxx ] || { f x$1 & f x$1 & }; wait; sleep 1000 TAG; }; f x", // bounded: root has no RLIMIT_NPROC
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			eachContainment(t, func(t *testing.T, c Containment) {
				s := newTestSpawner(t, 1)
				rs := openPolicy(t, support(t))
				g := newGroup(t, c)
				tag := fmt.Sprintf("%d", 100000+time.Now().UnixNano()%1e9)
				// sleep adds its arguments up, so a tag may be one of them
				cmd := sh(strings.ReplaceAll(script, "TAG", "0."+tag))
				cmd.Group = g
				child, err := s.Start(cmd, rs)
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "descendants run", func() bool { return tagged("0."+tag) > 1 })
				if pids, err := g.Processes(); err != nil || len(pids) < 2 {
					t.Errorf("processes %v %v", pids, err)
				}
				if u, err := g.Usage(); err != nil || u.Processes < 2 || u.MemoryBytes == 0 {
					t.Errorf("usage %+v %v", u, err)
				}
				if err := g.KillAll(); err != nil {
					t.Fatal(err)
				}
				if st := wait(t, child); st.Signal != int(unix.SIGKILL) {
					t.Errorf("status %+v", st)
				}
				if n := tagged("0." + tag); n != 0 {
					t.Errorf("%d processes are left", n)
				}
				if pids, err := g.Processes(); err != nil || len(pids) != 0 {
					t.Errorf("processes %v %v", pids, err)
				}
			})
		})
	}
}

// TestSignalGroup reaches every process of a group.
func TestSignalGroup(t *testing.T) {
	eachContainment(t, func(t *testing.T, c Containment) {
		s := newTestSpawner(t, 1)
		g := newGroup(t, c)
		cmd := sh("(trap 'exit 3' TERM; setsid sleep 1000) & sleep 1000 & wait")
		cmd.Group = g
		child, err := s.Start(cmd, openPolicy(t, support(t)))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all run", func() bool { pids, _ := g.Processes(); return len(pids) >= 4 })
		if err := g.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if st := wait(t, child); st.Signal != int(unix.SIGTERM) {
			t.Errorf("%+v", st)
		}
		eventually(t, "all end", func() bool { pids, _ := g.Processes(); return len(pids) == 0 })
	})
}

// TestOpenGroup finds a group again by its path, as after a restart.
func TestOpenGroup(t *testing.T) {
	eachContainment(t, func(t *testing.T, c Containment) {
		s := newTestSpawner(t, 1)
		g := newGroup(t, c)
		cmd := sh("sleep 1000 & wait")
		cmd.Group = g
		cmd.StatusFile = filepath.Join(t.TempDir(), "status")
		child, err := s.Start(cmd, openPolicy(t, support(t)))
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.OpenGroup(g.Path())
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := Adopt(child.PID, child.StartTicks())
		if err != nil {
			t.Fatal(err)
		}
		if err := again.KillAll(); err != nil {
			t.Fatal(err)
		}
		if st := wait(t, child); st.Signal != int(unix.SIGKILL) {
			t.Errorf("%+v", st)
		}
		if st := wait(t, adopted); st.Signal != int(unix.SIGKILL) && !st.Unknown {
			t.Errorf("adopted: %+v", st)
		}
		if err := again.Remove(); err != nil {
			t.Error(err)
		}
		if c.Name() == "supervisor" {
			if st, err := ReadStatusFile(cmd.StatusFile); err != nil || st.Signal != int(unix.SIGKILL) {
				t.Errorf("status file: %+v %v", st, err)
			}
		} else if _, err := ReadStatusFile(cmd.StatusFile); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("status file of a cgroup: %v", err)
		}
		eventually(t, "the ended group cannot be opened", func() bool { // its supervisor is waited for in its own time
			_, err := c.OpenGroup(g.Path())
			return errors.Is(err, errs.ErrContainment)
		})
		for _, bad := range []string{"supervisor:", "supervisor:1:1", "supervisor:x:y", "/tmp", "/nonexistent", ""} {
			if _, err := c.OpenGroup(bad); !errors.Is(err, errs.ErrContainment) {
				t.Errorf("OpenGroup(%q): %v", bad, err)
			}
		}
	})
}

func TestGroupID(t *testing.T) {
	eachContainment(t, func(t *testing.T, c Containment) {
		for _, bad := range []string{"", ".", "..", "a/b", "a\x00", strings.Repeat("x", 300)} {
			if _, err := c.NewGroup(bad); !errors.Is(err, errs.ErrContainment) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}

// TestSupervised: what a command says goes the long way unchanged, errors keep their class.
func TestSupervised(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		c := supervisorContainment(t)
		s := newTestSpawner(t, 1)
		rs := openPolicy(t, support(t))
		status := filepath.Join(t.TempDir(), "status")
		cmd := sh("umask; ulimit -n; ls /proc/self/fd | wc -l; grep -E 'NoNewPrivs|SigIgn' /proc/self/status; mkdir " + filepath.Join(t.TempDir(), "new") + " 2>/dev/null || echo denied; exit 5")
		cmd.Umask, cmd.Limits, cmd.StatusFile = ptr(0o027), []Limit{{unix.RLIMIT_NOFILE, "nofile", 77, 77}}, status
		cmd.Group = newGroup(t, c)
		out, st := output(t, s, cmd, rs)
		ignored, _, _ := strings.Cut(out[strings.Index(out, "SigIgn"):], "\n")
		if want := "0027\n77\n4\n" + ignored + "\nNoNewPrivs:\t1\ndenied\n"; st.Code != 5 || out != want {
			t.Errorf("%+v %q", st, out)
		}
		// A signal that was ignored when this process began may stay so (nohup(1)); none comes on the way.
		if more := ignoredSignals(t, ignored) &^ ownIgnored(t); more != 0 {
			t.Errorf("signals ignored in the program: %s", ignored)
		}
		if st, err := ReadStatusFile(status); err != nil || st.Code != 5 {
			t.Errorf("status file: %+v %v", st, err)
		}
		for path, class := range map[string]error{"/nonexistent": errs.ErrProgramNotFound, "/etc/passwd": errs.ErrProgramRefused} {
			_, err := s.Start(&Command{Path: path, Group: newGroup(t, c)}, rs)
			if !errors.Is(err, class) {
				t.Errorf("%s: %v", path, err)
			}
		}
		large := sh("exit $(( ${#BIG} / 100000 ))")
		large.Env = append(large.Env, "BIG="+strings.Repeat("x", 120000), "MORE="+strings.Repeat("y", 120000))
		large.Group = newGroup(t, c)
		if _, st := output(t, s, large, rs); st.Code != 1 {
			t.Errorf("large environment: %+v", st)
		}
	})
}

// TestSupervisorDies: the program does not outlive its supervisor.
func TestSupervisorDies(t *testing.T) {
	c := supervisorContainment(t)
	s := newTestSpawner(t, 1)
	g := newGroup(t, c).(*supervisedGroup)
	cmd := sh("exec sleep 1000")
	cmd.Group = g
	child, err := s.Start(cmd, openPolicy(t, support(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.supervisor.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if st := wait(t, child); !st.Unknown {
		t.Errorf("%+v", st)
	}
	eventually(t, "the program ends", func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d", child.PID)); return err != nil })
}

// TestNoContainment says why neither way works.
func TestNoContainment(t *testing.T) {
	_, err := DetectContainment(Options{CgroupRoot: "/proc/no", Launcher: "/nonexistent/policyd-launch"})
	if !errors.Is(err, errs.ErrContainment) || !strings.Contains(err.Error(), "cgroups: ") || !strings.Contains(err.Error(), "policyd-launch") {
		t.Errorf("error %v", err)
	}
}

// ignoredSignals reads the SigIgn line of /proc/PID/status.
func ignoredSignals(t *testing.T, line string) uint64 {
	t.Helper()
	mask, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(line, "SigIgn:")), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask
}

func ownIgnored(t *testing.T) uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "SigIgn:") {
			return ignoredSignals(t, line)
		}
	}
	t.Fatal("no SigIgn in /proc/self/status")
	return 0
}
