package differential_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// Programs of scenarios are for amd64 (exitZero).
const execable = runtime.GOARCH == "amd64"

func TestMain(m *testing.M) {
	syscall.Umask(0)
	os.Exit(m.Run())
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestRandom runs DIFFERENTIAL_N random operations (20,000) on each kernel,
// from the seed DIFFERENTIAL_SEED (1).
func TestRandom(t *testing.T) {
	const usual = 20000
	total, seed := number(t, "DIFFERENTIAL_N", usual), number(t, "DIFFERENTIAL_SEED", 1)
	if testing.Short() && os.Getenv("DIFFERENTIAL_N") == "" {
		total = usual / 10
	}
	patience := testkernel.Timeout(5*time.Minute + time.Duration(total)*5*time.Millisecond)
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		h := newHost(t)
		var sum totals
		var n uint64
		for ; sum.steps < total && sum.failures < 3; n++ {
			sc := newScenario(h, seed, n)
			r := run(h, sc)
			sum.add(&r)
			switch {
			case r.broken != nil:
				t.Fatalf("seed %d, scenario %d: %v\n%s", seed, n, r.broken, sc)
			case r.failure != "":
				sum.failures++
				first := r.failure
				small, r := shrink(h, sc)
				t.Errorf("seed %d, scenario %d: %s\nthe smallest of its kind, to be kept in testdata: %s\n%s", seed, n, first, r.failure, small)
			}
		}
		t.Logf("seed %d: %s", seed, sum.String())
		if sum.failures == 0 && total >= usual {
			sum.check(t, h)
		}
	}, patience)
}

// totals is what a run came to.
type totals struct {
	scenarios, void, flat, failures int
	steps                           uint64
	counts                          [40][3]int
}

func (s *totals) add(r *report) {
	s.scenarios++
	s.steps += uint64(r.steps)
	if r.void {
		s.void++
	}
	if r.flat {
		s.flat++
	}
	for k := range s.counts {
		for v := range s.counts[k] {
			s.counts[k][v] += r.counts[k][v]
		}
	}
}

func (s *totals) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations in %d scenarios (%d flattened, %d policies not to be built), %d mismatches\n", s.steps, s.scenarios, s.flat, s.void, s.failures)
	for _, w := range weights {
		c := s.counts[w.kind]
		fmt.Fprintf(&b, "  %-14v deny %-6d allow %-6d not mediated %d\n", w.kind, c[profile.Deny], c[profile.Allow], c[profile.NotMediated])
	}
	return b.String()
}

// check refuses a run that did not reach what it is about: every operation
// must have been both refused and let through.
func (s *totals) check(t *testing.T, h *host) {
	for _, w := range weights {
		c := s.counts[w.kind]
		switch {
		case w.kind == profile.OpStat || w.kind == profile.OpSetAttributes:
			if c[profile.NotMediated] == 0 {
				t.Errorf("%v was never tried", w.kind)
			}
		case w.kind == profile.OpExec && !execable, w.kind == profile.OpMount && !h.mayMount:
		case c[profile.Deny] == 0 && handled(w.kind, h.sup.ABI), c[profile.Allow] == 0:
			t.Errorf("%v: %d times denied, %d times allowed", w.kind, c[profile.Deny], c[profile.Allow])
		}
	}
}

// handled tells whether a kernel of that ABI ever refuses such an operation.
func handled(k profile.OpKind, abi int) bool {
	need := 1
	switch k {
	case profile.OpTruncate:
		need = 3
	case profile.OpBindTCP, profile.OpConnectTCP:
		need = 4
	case profile.OpIoctlDev:
		need = 5
	case profile.OpSignal, profile.OpAbstractUnix:
		need = 6
	case profile.OpConnectUnix:
		need = 9
	case profile.OpBindUDP, profile.OpConnectUDP, profile.OpSendUDP:
		need = 10
	}
	return abi >= need
}

// TestScenarios runs the scenarios of testdata: the cases of the kernel's own
// tests, and what random runs have found.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		h := newHost(t)
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			// A file holds several, each below a line "== NAME".
			for i, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
				title, body, _ := strings.Cut(part, "\n")
				sc, err := parse(body)
				if err != nil {
					t.Fatalf("%s, scenario %d, %s: %v", name, i+1, title, err)
				}
				t.Run(title, func(t *testing.T) { play(t, h, sc) })
			}
		}
	})
}

func play(t *testing.T, h *host, sc *scenario) {
	for i := range sc.layers {
		l := &sc.layers[i]
		if (l.FS&^profile.Handled(profile.FS, h.sup.ABI))|(l.Net&^profile.Handled(profile.Net, h.sup.ABI))|(l.Scope&^profile.Handled(profile.Scope, h.sup.ABI)) != 0 {
			t.Logf("not run here: the kernel has ABI %d; the guest runs it", h.sup.ABI)
			return
		}
	}
	for i := range sc.tree {
		if sc.tree[i].mount && !h.mayMount {
			t.Log("not run here: it mounts, which needs root; the guest runs it")
			return
		}
	}
	r := run(h, sc)
	switch {
	case r.broken != nil:
		t.Fatal(r.broken)
	case r.void:
		t.Fatal("the policy cannot be built")
	case r.failure != "":
		last := &sc.steps[len(sc.steps)-1]
		t.Errorf("%s # %s: %s", last.String(), last.reason, r.failure)
	}
}
