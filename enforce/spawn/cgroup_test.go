package spawn

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

const nobody = 65534

// plainUser has a test's own process be a plain user's in the given cgroup.
func plainUser(cgroup string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if dir, err := os.Open(cgroup); err == nil { // stays open until the program is started
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
			cmd.ExtraFiles = append(cmd.ExtraFiles, dir)
		}
		// The test binary itself may lie where that user cannot look.
		cmd.Dir = "/"
		cmd.Env = append(cmd.Env, "TMPDIR=/tmp")
	}
}

// newCgroup makes a cgroup below this process's own, the user's when uid is not 0.
func newCgroup(t *testing.T, uid int) string {
	t.Helper()
	testkernel.RequireRoot(t)
	own, err := ownCgroup()
	if err != nil {
		testkernel.Skip(t, "cgroup v2", err.Error())
	}
	path := filepath.Join(own, "spawn-test-"+strconv.Itoa(os.Getpid())+"-"+newTag())
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
	// As cgroups(7) says of delegation: the folder and these files.
	for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		if err := os.Chown(filepath.Join(path, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// readableCopy gives the test binary where every user can execute it.
func readableCopy(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "spawn-test") //nolint:usetesting // its parents must be open to all
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "spawn.test"), b, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(cmd *exec.Cmd) { cmd.Path = filepath.Join(dir, "spawn.test") }
}

// endsAll starts programs that do what they can to get away, and ends them.
func endsAll(t *testing.T, c Containment) {
	t.Helper()
	s := newTestSpawner(t, 1)
	rs := openPolicy(t, support(t))
	for name, script := range map[string]string{
		"double fork": "(setsid sh -c 'sleep 1000 TAG & exec sleep 1000 TAG' &); sleep 1000 TAG",
		"fork bomb":   "f() { sleep 0.02 TAG; [ $1 = xxxxxx ] || { f x$1 & f x$1 & }; wait; sleep 1000 TAG; }; f x",
	} {
		tag := newTag()
		g, err := c.NewGroup(tag)
		if err != nil {
			t.Fatal(err)
		}
		cmd := sh(strings.ReplaceAll(script, "TAG", tag))
		cmd.Group = g
		child, err := s.Start(cmd, rs)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "descendants run", func() bool { return tagged(tag) > 3 })
		if err := g.KillAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if st := wait(t, child); st.Signal != int(syscall.SIGKILL) {
			t.Errorf("%s: %+v", name, st)
		}
		if n := tagged(tag); n != 0 {
			t.Errorf("%s: %d processes are left", name, n)
		}
		if err := g.Remove(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// detect gives the containment of that name for a state folder of the test's own,
// and sees that finding it out left nothing.
func detect(t *testing.T, name string) Containment {
	t.Helper()
	c, err := DetectContainment(Options{Launcher: buildLauncher(t), StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != name {
		t.Fatalf("containment %s, want %s", c.Name(), name)
	}
	if c.Root() != "" {
		if _, err := os.Stat(c.Root()); !os.IsNotExist(err) {
			t.Errorf("%s was left: %v", c.Root(), err)
		}
	}
	return c
}

// TestSweepRoots: what killed policyds leave is removed by the next one, but for
// what is in use.
func TestSweepRoots(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		testkernel.RequireRoot(t)
		other := detect(t, "cgroup")
		held, err := other.NewGroup("held")
		if err != nil {
			t.Fatal(err)
		}
		empty, foreign := filepath.Join(filepath.Dir(other.Root()), "policyd-000000000000"), filepath.Join(filepath.Dir(other.Root()), "policyd-not-of-ours")
		for _, dir := range []string{empty, foreign} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(dir)
		}
		detect(t, "cgroup")
		if _, err := os.Stat(empty); !os.IsNotExist(err) {
			t.Errorf("an empty root is left: %v", err)
		}
		for _, path := range []string{foreign, held.Path()} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s was removed: %v", path, err)
			}
		}
		if err := held.Remove(); err != nil {
			t.Error(err)
		}
		detect(t, "cgroup") // removes the other's root, which is empty now
		again, err := other.NewGroup("again")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(again.Remove(), other.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestCgroupRoot: as root, with cgroup v2 alone (the guest) or beside v1.
func TestCgroupRoot(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		testkernel.RequireRoot(t)
		c := detect(t, "cgroup")
		endsAll(t, c)
		held, err := c.NewGroup("held")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(held.Path()); err != nil {
			t.Errorf("a group went with Close: %v", err)
		}
		if err := errors.Join(held.Remove(), c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.Root()); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", c.Root(), err)
		}
	})
}

// TestCgroupDelegated: a plain user in a cgroup that is his.
func TestCgroupDelegated(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		if os.Getenv(ownEnv) == "" {
			inOwnProcess(t, readableCopy(t), plainUser(newCgroup(t, nobody)))
			return
		}
		c := detect(t, "cgroup")
		endsAll(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCgroupNotWritable: a plain user in a cgroup that is not his gets the supervisor.
func TestCgroupNotWritable(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		if os.Getenv(ownEnv) == "" {
			inOwnProcess(t, readableCopy(t), plainUser(newCgroup(t, 0)))
			return
		}
		endsAll(t, detect(t, "supervisor"))
		_, err := DetectContainment(Options{Launcher: "/nonexistent/policyd-launch", StateDir: t.TempDir()})
		if !errors.Is(err, errs.ErrContainment) || !strings.Contains(err.Error(), "cgroups: mkdir") || !strings.Contains(err.Error(), "/nonexistent/policyd-launch") {
			t.Errorf("without either: %v", err)
		}
	})
}
