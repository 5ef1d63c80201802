package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// ownEnv has a test run in a process of its own: its children are nobody else's.
const ownEnv = "POLICYD_SPAWN_TEST_OWN"

// inOwnProcess tells whether this is that process; where it is not, it runs the
// test there, as prepared.
func inOwnProcess(t *testing.T, prepare ...func(*exec.Cmd)) bool {
	t.Helper()
	if os.Getenv(ownEnv) != "" {
		return true
	}
	name := strings.Split(t.Name(), "/")
	for i := range name {
		name[i] = "^" + name[i] + "$"
	}
	cmd := exec.Command(os.Args[0], "-test.run="+strings.Join(name, "/"), "-test.v")
	cmd.Env = append(os.Environ(), ownEnv+"=1")
	for _, p := range prepare {
		p(cmd)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: ") {
		t.Errorf("in its own process: %v\n%s", err, out)
	}
	return false
}

func orphanContainment(t *testing.T) Containment {
	t.Helper()
	c, err := DetectContainment(Options{Launcher: buildLauncher(t), Supervisor: true, OwnChildren: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newTag() string { return fmt.Sprintf("0.%d", 100000+time.Now().UnixNano()%1e9) }

// childless fails when this process has children, ended ones too.
func childless(t *testing.T) {
	t.Helper()
	eventually(t, "no child is left", func() bool {
		tree, err := processTree()
		return err == nil && len(tree[os.Getpid()]) == 0
	})
}

// TestKilledSupervisor: a program that gets rid of its supervisor gains nothing,
// and others lose nothing.
func TestKilledSupervisor(t *testing.T) {
	// Every script ends by itself some day: root has no RLIMIT_NPROC, and a bomb
	// without bounds that got away would take the machine along.
	scripts := map[string]string{
		"alone":       "sleep 0.1; kill -9 $PPID; exec sleep 1000 TAG",
		"child":       "sleep 1000 TAG & sleep 0.1; kill -9 $PPID; wait",
		"double fork": "(setsid sh -c 'sleep 1000 TAG & exec sleep 1000 TAG' &); sleep 0.1; kill -9 $PPID; sleep 1000 TAG",
		"later":       "(setsid sh -c 'sleep 0.1; kill -9 '$PPID'; setsid sleep 1000 TAG & sleep 1000 TAG' &); sleep 1000 TAG",
		"at the end":  "(setsid sh -c 'trap \"\" TERM; sleep 1000 TAG & for i in $(seq 500); do kill -9 '$PPID'; done; sleep 1000 TAG' &); sleep 0.05",
		"chain":       "f() { (sleep 0.01 TAG; [ ${#1} -gt 200 ] || f x$1) & }; f x; sleep 0.1; kill -9 $PPID; f x; f x; wait",
		"fork bomb":   "f() { sleep 0.05 TAG; [ $1 = xxxxxx ] || { f x$1 & f x$1 & }; wait; sleep 1000 TAG; }; f x & sleep 0.2; kill -9 $PPID; f x",
		"stop":        "(setsid sleep 1000 TAG &); sleep 0.1; kill -STOP $PPID; sleep 1000 TAG",
		"stop always": "(setsid sleep 1000 TAG &); sleep 0.1; for i in $(seq 20000); do kill -STOP $PPID; done",
	}
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				if !inOwnProcess(t) {
					return
				}
				c := orphanContainment(t)
				s := newTestSpawner(t, 1)
				rs := openPolicy(t, support(t))
				start := func(script string) (Group, *Child) {
					g := newGroup(t, c)
					cmd := sh(script)
					cmd.Group = g
					child, err := s.Start(cmd, rs)
					if err != nil {
						t.Fatal(err)
					}
					return g, child
				}
				bystander, other := start("sleep 1000 & wait")
				tag := newTag()
				g, child := start(strings.ReplaceAll(script, "TAG", tag))
				if strings.HasPrefix(name, "stop") {
					time.Sleep(300 * time.Millisecond)
				} else if st := wait(t, child); !st.Unknown && name != "at the end" {
					t.Errorf("status %+v", st)
				}
				if err := g.KillAll(); err != nil {
					t.Error(err)
				}
				if n := tagged(tag); n != 0 {
					t.Errorf("%d processes are left", n)
				}
				if err := other.Signal(0); err != nil {
					t.Errorf("another group's program: %v", err)
				}
				if err := bystander.KillAll(); err != nil {
					t.Error(err)
				}
				if st := wait(t, other); st.Signal != int(syscall.SIGKILL) {
					t.Errorf("another group's program: %+v", st)
				}
				childless(t)
			})
		}
	})
}

// TestStartWhileBurying: a supervisor that is just being started is no orphan.
func TestStartWhileBurying(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		if !inOwnProcess(t) {
			return
		}
		c := orphanContainment(t)
		s := newTestSpawner(t, 1)
		rs := openPolicy(t, support(t))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := range 8 {
					g, err := c.NewGroup(fmt.Sprintf("%d-%d", i, j))
					if err != nil {
						t.Error(err)
						return
					}
					cmd := sh("exit 3")
					if i%2 == 0 {
						cmd = sh("(setsid sleep 1000 &); sleep 0.1; kill -9 $PPID; sleep 1000")
					}
					cmd.Group = g
					child, err := s.Start(cmd, rs)
					if err != nil {
						t.Error(err)
						return
					}
					if st := wait(t, child); i%2 == 1 && st != (Status{Code: 3}) || i%2 == 0 && !st.Unknown {
						t.Errorf("%d: %+v", i, st)
					}
					if err := g.KillAll(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		childless(t)
	})
}

// TestKilledAtOnce: a start that fails because the program killed the supervisor
// before that could answer leaves nothing.
func TestKilledAtOnce(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	c := orphanContainment(t)
	s := newTestSpawner(t, 1)
	rs := openPolicy(t, support(t))
	for range 10 {
		tag := newTag()
		cmd := sh("kill -9 $PPID; (setsid sleep 1000 " + tag + " &); setsid sleep 1000 " + tag)
		cmd.Group = newGroup(t, c)
		if child, err := s.Start(cmd, rs); err == nil {
			if st := wait(t, child); !st.Unknown {
				t.Errorf("status %+v", st)
			}
			if err := cmd.Group.KillAll(); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, errs.ErrStart) {
			t.Error(err)
		}
		if n := tagged(tag); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	}
	childless(t)
}
