package sandbox

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
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
	cfg := testConfig(b, "cgroup")
	m := newTestManager(b, cfg)
	for b.Loop() {
		startMany(b, m, 10) // what comes once
		runtime.GC()
		before := statusValue(b, "VmRSS")
		startMany(b, m, n)
		if err := m.ledger.flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		b.ReportMetric(float64(statusValue(b, "VmRSS")-before)/n, "KiB/sandbox")
		b.ReportMetric(float64(statusValue(b, "Threads")), "threads")
		for _, box := range m.all() {
			if err := m.Signal(box.id, 0, true); err != nil {
				b.Error(err)
			}
			<-box.done
		}
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
