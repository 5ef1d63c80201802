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
	switch os.Getenv("DIFFERENTIAL") {
	case "long":
		os.Exit(long())
	case "share":
		os.Exit(shareOf())
	}
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
		sum, err := share{seed: seed, total: total, of: 1}.run(h, func(*totals) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		// What other programs mount meanwhile keeps some policies from being flattened: then rarer cases come later.
		for again := uint64(1); again <= rounds && total >= usual && len(sum.Failures) == 0 && len(sum.unseen(h)) > 0; again++ {
			more, err := share{seed: seed + again<<32, total: total, of: 1}.run(h, func(*totals) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			sum.merge(&more)
		}
		t.Logf("seed %d: %s", seed, sum.String())
		for _, f := range sum.Failures {
			t.Error(f)
		}
		if len(sum.Failures) == 0 && total >= usual {
			for _, what := range sum.unseen(h) {
				t.Error(what)
			}
		}
	}, patience)
}

// rounds is how often a run goes on that was not in every situation.
const rounds = 4

// unseen is what a run is about and did not reach: every operation must have
// been both refused and let through.
func (s *totals) unseen(h *host) (list []string) {
	for _, name := range situations(h) {
		for _, v := range []profile.Verdict{profile.Deny, profile.Allow} {
			if s.Reached[name+", "+v.String()] == 0 {
				list = append(list, fmt.Sprintf("%s: never seen, %v", name, v))
			}
		}
	}
	for _, w := range weights {
		c := s.Counts[w.kind]
		switch {
		case w.kind == profile.OpStat || w.kind == profile.OpSetAttributes:
			if c[profile.NotMediated] == 0 {
				list = append(list, fmt.Sprintf("%v was never tried", w.kind))
			}
		case w.kind == profile.OpExec && !execable, w.kind == profile.OpMount && !h.mayMount:
		case c[profile.Deny] == 0 && handled(w.kind, h.sup.ABI), c[profile.Allow] == 0:
			list = append(list, fmt.Sprintf("%v: %d times denied, %d times allowed", w.kind, c[profile.Deny], c[profile.Allow]))
		}
	}
	return list
}

// situations are those of report.reached that a run must have been in.
func situations(h *host) []string {
	list := []string{"branch of the layers", "16 layers", "more than 16 layers", "file with a rule", "file with a rule and several names"}
	if h.mayMount {
		list = append(list, "beneath a bind mount")
	}
	if h.mayMount && h.erratum3 {
		list = append(list, "disconnected directory")
	}
	return list
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
		t.Run("shrink", func(t *testing.T) { shrinks(t, h) })
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
