package sandbox

import (
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
)

// statusValue is a number of /proc/self/status, as proc_pid_status(5) names it.
func statusValue(t testing.TB, name string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("/proc/self/status has no %s", name)
	return 0
}

func startMany(t testing.TB, m *Manager, n int) {
	t.Helper()
	dir := t.TempDir()
	var wg sync.WaitGroup
	requests := make(chan *Request)
	for range 4 {
		wg.Go(func() {
			for r := range requests {
				if _, err := m.Start(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range n {
		requests <- testRequest(t, dir, "sleep", "1000")
	}
	close(requests)
	wg.Wait()
}

// An idle sandbox keeps no thread and at most two goroutines.
func TestIdleSandboxes(t *testing.T) {
	m := newTestManager(t, testConfig(t, "cgroup"))
	startMany(t, m, 4) // threads of the runtime that come once
	threads, routines := statusValue(t, "Threads"), runtime.NumGoroutine()
	const n = 200
	startMany(t, m, n)
	eventually(t, "threads that started programs are gone", func() bool {
		return statusValue(t, "Threads") <= threads+20
	})
	if got := runtime.NumGoroutine() - routines; got > 2*n {
		t.Errorf("%d sandboxes have %d goroutines", n, got)
	}
	if got := m.AliveBy(uint32(os.Geteuid())); got != n+4 {
		t.Errorf("%d alive", got)
	}
}

// Memory of policyd for each of 1,000 sandboxes alive; the bound is 64 KiB.
func BenchmarkIdleSandboxes(b *testing.B) {
	const n = 1000
	b.Run("detached", func(b *testing.B) {
		m := newTestManager(b, testConfig(b, "cgroup"))
		for b.Loop() {
			measureIdle(b, m, n, func() { startMany(b, m, n) })
		}
	})
	b.Run("attached", func(b *testing.B) {
		m := newTestManager(b, testConfig(b, "cgroup"))
		r := testRequest(b, b.TempDir(), "sleep", "1000")
		for b.Loop() {
			measureIdle(b, m, n, func() {
				for range n {
					a, err := m.Run(b.Context(), r)
					if err != nil {
						b.Fatal(err)
					}
					go func() {
						defer a.Close()
						if err := a.Stream(b.Context(), newOutput().send); err != nil {
							b.Error(err)
						}
					}()
				}
			})
		}
	})
}

func measureIdle(b *testing.B, m *Manager, n int, start func()) {
	b.Helper()
	startMany(b, m, 10) // what comes once
	runtime.GC()
	before := statusValue(b, "VmRSS")
	start()
	if err := m.ledger.flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	b.ReportMetric(float64(statusValue(b, "VmRSS")-before)/float64(n), "KiB/sandbox")
	b.ReportMetric(float64(statusValue(b, "Threads")), "threads")
	for _, box := range m.all() {
		if err := m.Signal(box.id, 0, true); err != nil && !errors.Is(err, errs.ErrNotRunning) {
			b.Error(err)
		}
		<-box.done
	}
}

// What it costs a second to look after the logs of 1,000 idle sandboxes.
func BenchmarkSweepIdleLogs(b *testing.B) {
	k, err := newLogKeeper(b.TempDir(), Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	for range 1000 {
		id := newID()
		if err := k.makeFolder(id); err != nil {
			b.Fatal(err)
		}
		k.add(id, 1, minLogLimit)
	}
	now := time.Now()
	for b.Loop() {
		now = now.Add(2 * sweepIdle)
		k.sweep(now)
	}
}

// A start without gRPC over the spawner alone.
func BenchmarkStart(b *testing.B) {
	b.Run("manager", func(b *testing.B) {
		m := newTestManager(b, testConfig(b, "cgroup"))
		r := testRequest(b, b.TempDir(), "/bin/true")
		r.Spec.Remove = true
		for b.Loop() {
			sb, err := m.Start(b.Context(), r)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := m.Wait(b.Context(), sb.GetId()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("spawn", func(b *testing.B) {
		p, _ := testProfile(b, b.TempDir())
		rs, err := landlock.Build(p, landlock.Probe())
		if err != nil {
			b.Fatal(err)
		}
		defer rs.Release()
		s := spawn.NewSpawner(defaultThreads)
		defer s.Close()
		for b.Loop() {
			c, err := s.Start(&spawn.Command{Path: "/bin/true", Argv: []string{"true"}}, rs)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
