package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// The environment of a test binary that plays a policyd which is going to be killed.
const (
	crashEnv       = "POLICYD_TEST_CRASH_DIR"
	crashContain   = "POLICYD_TEST_CRASH_CONTAINMENT"
	crashRoot      = "POLICYD_TEST_CRASH_CGROUP"
	crashWhat      = "POLICYD_TEST_CRASH_WHAT"
	crashStarters  = 3
	crashSleepArgs = `echo x >> "$1"; exec sleep 1000`
)

// crashMain starts sandboxes until it is killed. It prints a line for each start that
// was acknowledged: request id and sandbox id.
func crashMain(dir string) int {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c, err := spawn.DetectContainment(spawn.Options{
		CgroupRoot: os.Getenv(crashRoot), Launcher: exe, Supervisor: os.Getenv(crashContain) == "supervisor",
	})
	if err != nil {
		panic(err)
	}
	st, err := store.Open(filepath.Join(dir, "policyd.db"), store.Options{Timeout: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	m, err := New(context.Background(), crashConfig(dir, st, c))
	if err != nil {
		panic(err)
	}
	p, digest := crashProfile(dir)
	start := func(name, script string, attached bool) {
		r := crashRequest(p, digest, dir, name, script)
		var sb *apiv1.Sandbox
		if attached {
			a, err := m.Run(context.Background(), r)
			if err != nil {
				panic(err)
			}
			sb = a.Sandbox()
		} else if sb, err = m.Start(context.Background(), r); err != nil {
			panic(err)
		}
		fmt.Printf("%s %s\n", name, sb.GetId())
	}
	switch script := os.Getenv(crashWhat); script {
	case "":
		var wg sync.WaitGroup
		for s := range crashStarters {
			wg.Go(func() {
				for i := 0; ; i++ {
					start(fmt.Sprintf("r%d-%d-%d", os.Getpid(), s, i), crashSleepArgs, false)
				}
			})
		}
		wg.Wait()
	default:
		script, attached := strings.CutPrefix(script, "attached:")
		start("one", script, attached)
	}
	select {}
}

func crashConfig(dir string, st *store.Store, c spawn.Containment) Config {
	return Config{
		StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"), Store: st,
		Support: landlock.Probe(), Containment: c, CgroupRoot: os.Getenv(crashRoot),
		Log: slog.New(slog.DiscardHandler), HangupGrace: 200 * time.Millisecond,
	}
}

func crashProfile(dir string) (*profile.Profile, string) {
	b := profile.NewBuilder([]profile.Layer{{Name: "test", FS: profile.Handled(profile.FS, 1)}})
	b.AddPath(0, "/", profile.FSExecute|profile.FSReadFile|profile.FSReadDir, false, profile.Fail)
	b.AddPath(0, "/dev/null", profile.FSReadFile|profile.FSWriteFile, false, profile.Fail)
	b.AddPath(0, dir, profile.Handled(profile.FS, 1), false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	p.Name, p.ABI = "web", 1
	return p, profile.Digest(p.Encode())
}

func crashRequest(p *profile.Profile, digest, dir, name, script string) *Request {
	return &Request{
		Spec:    &apiv1.SandboxSpec{Argv: []string{"/bin/sh", "-c", script, "sh", filepath.Join(dir, "marks", name)}},
		Version: &apiv1.VersionInfo{Name: "web", Number: 1}, Profile: p, ProfileDigest: digest,
		Owner: "uid:1", OwnerUID: 1, RequestID: name,
	}
}

// crashed is a folder whose policyd was killed.
type crashed struct {
	dir, root string
	cont      spawn.Containment
	acked     map[string]string // request: sandbox
	left      bool              // sandboxes of a killed policyd are still to be ended
}

// crash runs a policyd in dir and kills it when until returns.
func (c *crashed) crash(t *testing.T, what string, until func(acks <-chan string)) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(c.dir, "marks"), 0o755); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), crashEnv+"="+c.dir, crashContain+"="+c.cont.Name(), crashRoot+"="+c.root, crashWhat+"="+what)
	cmd.Stderr = t.Output()
	// The stream of acknowledgements ends with the process, not with its sandboxes.
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.left = true
	defer cmd.Process.Kill() // also when the test gives up
	acks := make(chan string, 1<<16)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(acks)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				if line != "" && !errors.Is(err, io.EOF) {
					t.Errorf("acknowledgements: %v", err)
				}
				return
			}
			name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
			c.acked[name] = id
			acks <- name
		}
	})
	until(acks)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := cmd.Wait(); err == nil {
		t.Error("policyd ended by itself")
	}
}

// restart is the next policyd, in this process.
func (c *crashed) restart(t *testing.T) (*Manager, *store.Store) {
	t.Helper()
	st, err := store.Open(filepath.Join(c.dir, "policyd.db"), store.Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	cfg := crashConfig(c.dir, st, c.cont)
	cfg.CgroupRoot = c.root
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	m, err := New(context.Background(), cfg) // also in a cleanup
	if err != nil {
		st.Close()
		t.Fatal(err)
	}
	return m, st
}

func newCrashed(t *testing.T, containment string) *crashed {
	t.Helper()
	c := &crashed{dir: t.TempDir(), acked: map[string]string{}}
	if containment == "cgroup" {
		c.root = testCgroupRoot(t)
	}
	c.cont = testContainment(t, containment, c.root)
	if landlock.Probe().State != landlock.Available {
		testkernel.Skip(t, "Landlock", "use a kernel with CONFIG_SECURITY_LANDLOCK and landlock in lsm=")
	}
	t.Cleanup(func() {
		if c.left {
			m, st := c.restart(t)
			c.finish(t, m, st)
		}
	})
	return c
}

func (c *crashed) finish(t *testing.T, m *Manager, st *store.Store) {
	t.Helper()
	c.left = false
	stopAll(t, m)
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	storetest.CheckFile(t, filepath.Join(c.dir, "policyd.db"))
}

// policyd is killed at random moments while it starts sandboxes: no acknowledged one is
// forgotten, none is started twice, what runs is known, and the log stays whole.
func TestKilledAtAnyMoment(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		c := newCrashed(t, containment)
		rounds := 8
		if testing.Short() {
			rounds = 2
		}
		for round := range rounds {
			clear(c.acked)
			if err := os.RemoveAll(filepath.Join(c.dir, "marks")); err != nil {
				t.Fatal(err)
			}
			c.crash(t, "", func(acks <-chan string) {
				<-acks
				time.Sleep(time.Duration(rand.Int64N(int64(120 * time.Millisecond))))
			})
			c.check(t, round)
			if t.Failed() {
				return
			}
		}
	})
}

func (c *crashed) check(t *testing.T, round int) {
	t.Helper()
	m, st := c.restart(t)
	defer c.finish(t, m, st)
	for name, id := range c.acked {
		sb, err := m.Get(id)
		if err != nil || sb.GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING || sb.GetRequestId() != name {
			t.Errorf("round %d: acknowledged sandbox %s (%s) is now %v, %v", round, id, name, sb, err)
		}
	}
	// What left a mark was started, and once.
	marks, err := os.ReadDir(filepath.Join(c.dir, "marks"))
	if err != nil {
		t.Fatal(err)
	}
	p, digest := crashProfile(c.dir)
	for _, mark := range marks {
		data, err := os.ReadFile(filepath.Join(c.dir, "marks", mark.Name()))
		// One that was ended since nobody could be told of it may not have come to write.
		if err != nil || len(data) > len("x\n") {
			t.Errorf("round %d: %s was started %d times, %v", round, mark.Name(), len(data)/2, err)
		}
		// Somebody who did not hear the answer asks again.
		sb, err := m.Start(t.Context(), crashRequest(p, digest, c.dir, mark.Name(), crashSleepArgs))
		if err != nil {
			t.Errorf("round %d: %s again: %v", round, mark.Name(), err)
			continue
		}
		if id, ok := c.acked[mark.Name()]; ok && sb.GetId() != id {
			t.Errorf("round %d: %s was started again as %s, first %s", round, mark.Name(), sb.GetId(), id)
		}
		if data, err := os.ReadFile(filepath.Join(c.dir, "marks", mark.Name())); err != nil || len(data) > len("x\n") {
			t.Errorf("round %d: asked again, %s runs %d times, %v", round, mark.Name(), len(data)/2, err)
		}
	}
	t.Logf("round %d: %d acknowledged, %d started, %d known", round, len(c.acked), len(marks), len(m.all()))
	if c.root != "" {
		groups, err := os.ReadDir(c.root)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			if g.IsDir() && validID(g.Name()) {
				if _, err := m.Get(g.Name()); err != nil {
					// One that was made in advance has no process.
					procs, err := os.ReadFile(filepath.Join(c.root, g.Name(), "cgroup.procs"))
					if err == nil && len(procs) > 0 {
						t.Errorf("round %d: group of no known sandbox: %s with %q", round, g.Name(), procs)
					}
				}
			}
		}
	}
	c.checkEvents(t, m, st, round)
}

// checkEvents wants one start a sandbox in the log, and no exit of a live one.
func (c *crashed) checkEvents(t *testing.T, m *Manager, st *store.Store, round int) {
	t.Helper()
	if err := m.ledger.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	starts, exits := map[string]int{}, map[string]int{}
	for from := uint64(0); ; {
		events, err := st.Events(from, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			switch e.GetType() {
			case eventStart:
				starts[e.GetSubject()]++
			case eventExit:
				exits[e.GetSubject()]++
			}
			from = e.GetSeq() + 1
		}
		if len(events) == 0 {
			break
		}
	}
	recs, _, err := m.List(Filter{Ended: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range recs {
		subject := "sandbox/" + sb.GetId()
		want := 0
		if ended(sb) {
			want = 1
		}
		if starts[subject] != 1 || exits[subject] != want {
			t.Errorf("round %d: log has %d starts and %d exits of %v", round, starts[subject], exits[subject], sb)
		}
	}
}
