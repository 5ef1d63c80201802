package spawn

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
)

// TestNoThreadPerChild: 200 programs alive and waited for take no thread each.
func TestNoThreadPerChild(t *testing.T) {
	const n = 200
	s := newTestSpawner(t, 2)
	rs := openPolicy(t, support(t))
	wait(t, mustStart(t, s, sh("true"), rs))
	before := threads(t)
	var wg sync.WaitGroup
	children := make([]*Child, n)
	for i := range children {
		c, err := s.Start(&Command{Path: "/bin/sleep", Argv: []string{"sleep", "1000"}}, rs)
		if err != nil {
			t.Fatal(err)
		}
		children[i] = c
		wg.Go(func() {
			if st := wait(t, c); st.Signal != int(unix.SIGKILL) {
				t.Errorf("%+v", st)
			}
		})
	}
	eventually(t, "few threads", func() bool { return threads(t) <= before+10 })
	for _, c := range children {
		if err := c.Signal(unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if n := ownChildren(t); n != 0 {
		t.Errorf("%d were not waited for", n)
	}
}

// TestWaitCancelled: a Wait given up leaves the child as it is, for others.
func TestWaitCancelled(t *testing.T) {
	s := newTestSpawner(t, 1)
	c := mustStart(t, s, sh("exec sleep 1000"), openPolicy(t, support(t)))
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		cancel()
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if st := wait(t, c); st.Signal != int(unix.SIGTERM) {
				t.Errorf("%+v", st)
			}
		})
	}
	if err := c.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := c.Signal(unix.SIGTERM); !errors.Is(err, errs.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

// TestAdopt: a process that another waits for, as init does for the programs of
// a policyd that was killed. Its status is the kernel's to tell, or unknown.
func TestAdopt(t *testing.T) {
	parent := exec.Command("/bin/sh", "-c", "(sleep 0.2; exit 9) >&2 & echo $!; wait")
	stdout, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	ticks, err := startTicks(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Adopt(pid, ticks+1); !errors.Is(err, errs.ErrNotRunning) {
		t.Errorf("another process of that number: %v", err)
	}
	c, err := Adopt(pid, ticks)
	if err != nil {
		t.Fatal(err)
	}
	if c.StartTicks() != ticks {
		t.Errorf("start ticks %d, want %d", c.StartTicks(), ticks)
	}
	if st := wait(t, c); st.Code != 9 && (kernelTells(t) || !st.Unknown) {
		t.Errorf("%+v", st)
	}
	// Its status is known before its parent has waited for it; then it is gone.
	eventually(t, "an ended process cannot be adopted", func() bool {
		_, err := Adopt(pid, ticks)
		return errors.Is(err, errs.ErrNotRunning)
	})
}

func TestStartTicks(t *testing.T) {
	s := newTestSpawner(t, 1)
	rs := openPolicy(t, support(t))
	c := mustStart(t, s, sh("exec sleep 1000"), rs)
	want, err := startTicks(c.PID)
	if err != nil || c.StartTicks() != want || want == 0 {
		t.Errorf("%d, want %d (%v)", c.StartTicks(), want, err)
	}
	c.Signal(unix.SIGKILL)
	wait(t, c)
	if c.StartTicks() != want {
		t.Error("forgotten after the end")
	}
	// What the clock told at the start is what the kernel says.
	told := 0
	for range 30 {
		c := mustStart(t, s, sh("exec sleep 1000"), rs)
		if c.ticks != 0 {
			told++
		}
		if want, err := startTicks(c.PID); err != nil || c.StartTicks() != want {
			t.Errorf("%d, want %d (%v)", c.StartTicks(), want, err)
		}
		c.Signal(unix.SIGKILL)
		wait(t, c)
	}
	if told == 0 {
		t.Error("the clock never told")
	}
	late := mustStart(t, s, sh("true"), rs)
	wait(t, late)
	late.ticks = 0 // as if a tick had passed during its start
	if got := late.StartTicks(); got != 0 {
		t.Errorf("read after the end: %d", got)
	}
}

// TestTerminal: the program has the terminal as its controlling one.
func TestTerminal(t *testing.T) {
	slave := terminal(t)
	cmd := sh("tty <&0; ps -o tty= -p $$; test -t 0")
	cmd.Stdin, cmd.TTY = slave, true
	out, st := output(t, newTestSpawner(t, 1), cmd, openPolicy(t, support(t)))
	if st.Code != 0 || !strings.HasPrefix(out, slave.Name()) || !strings.Contains(out, strings.TrimPrefix(slave.Name(), "/dev/")+"\n") {
		t.Errorf("%+v %q", st, out)
	}
}

func mustStart(t *testing.T, s *Spawner, cmd *Command, rs *landlock.Rulesets) *Child {
	t.Helper()
	c, err := s.Start(cmd, rs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
