package differential_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"policyd.dev/policyd/enforce/profile"
)

// totals is what a run came to.
type totals struct {
	Scenarios, Void, Flat int
	Steps, Live           uint64
	Counts                [40][3]uint64 // by operation and verdict
	Reached               map[string]uint64
	Failures              []string // each whole, with the smallest case of its kind
}

func (s *totals) add(r *report) {
	s.Scenarios++
	s.Steps += uint64(r.steps)
	s.Live += uint64(r.live)
	if r.void {
		s.Void++
	}
	if r.flat {
		s.Flat++
	}
	for k := range s.Counts {
		for v := range s.Counts[k] {
			s.Counts[k][v] += uint64(r.counts[k][v])
		}
	}
	for name, n := range r.reached {
		s.reach(name, uint64(n))
	}
}

func (s *totals) reach(name string, n uint64) {
	if s.Reached == nil {
		s.Reached = map[string]uint64{}
	}
	s.Reached[name] += n
}

// merge adds the totals of another share.
func (s *totals) merge(o *totals) {
	s.Scenarios, s.Void, s.Flat, s.Steps = s.Scenarios+o.Scenarios, s.Void+o.Void, s.Flat+o.Flat, s.Steps+o.Steps
	s.Live += o.Live
	s.Failures = append(s.Failures, o.Failures...)
	for k := range s.Counts {
		for v := range s.Counts[k] {
			s.Counts[k][v] += o.Counts[k][v]
		}
	}
	for name, n := range o.Reached {
		s.reach(name, n)
	}
}

func (s *totals) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations, %d of them also by the live decider, in %d scenarios (%d flattened, %d policies not to be built), %d mismatches\n",
		s.Steps, s.Live, s.Scenarios, s.Flat, s.Void, len(s.Failures))
	for _, w := range weights {
		c := s.Counts[w.kind]
		fmt.Fprintf(&b, "  %-14v deny %-8d allow %-8d not mediated %d\n", w.kind, c[profile.Deny], c[profile.Allow], c[profile.NotMediated])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Reached)) {
		fmt.Fprintf(&b, "  %-50s %d\n", name, s.Reached[name])
	}
	return b.String()
}

// share is a part of a run: every scenario whose number is nth modulo of,
// until it has its part of the operations.
type share struct {
	seed, total uint64
	nth, of     uint64
}

// run goes on until the end, the third mismatch, or a false of goOn, which is
// asked between two scenarios.
func (s share) run(h *host, goOn func(*totals) bool) (sum totals, err error) {
	enough := (s.total + s.of - 1) / s.of
	for n := s.nth; sum.Steps < enough && len(sum.Failures) < 3 && goOn(&sum); n += s.of {
		sc := newScenario(h, s.seed, n)
		r := run(h, sc)
		sum.add(&r)
		switch {
		case r.broken != nil:
			return sum, fmt.Errorf("seed %d, scenario %d: %w\n%s", s.seed, n, r.broken, sc)
		case r.failure != "":
			first := r.failure
			small, r := shrink(h, sc)
			sum.Failures = append(sum.Failures, fmt.Sprintf("seed %d, scenario %d: %s\nthe smallest of its kind, to be kept in testdata: %s\n%s\nits last step as a test for policyctl test --enforce:\n%s",
				s.seed, n, first, r.failure, small, r.text))
		}
	}
	return sum, nil
}

// progressMark begins a line that holds a share's totals as JSON.
const progressMark = "differential-totals "

// kernelMark begins a line that names the kernel.
const kernelMark = "differential-kernel "

// shareOf is the process of one share: it tells its totals twice a second and
// at the end, and stops at a mismatch or an interrupt.
func shareOf() int {
	var s share
	if _, err := fmt.Sscanf(os.Getenv("DIFFERENTIAL_SHARE"), "%d/%d", &s.nth, &s.of); err != nil || s.of == 0 {
		return complain("DIFFERENTIAL_SHARE: want NTH/OF")
	}
	var err error
	if s.seed, s.total, err = seedAndTotal(); err != nil {
		return complain(err.Error())
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	dir := memoryDir()
	if dir == "" {
		if dir, err = os.MkdirTemp("", "policyd-differential-"); err != nil {
			return complain(err.Error())
		}
	}
	defer os.RemoveAll(dir)
	h, err := hostIn(dir)
	if err != nil {
		return complain(err.Error())
	}
	h.liveEvery = liveEveryLong
	fmt.Printf("%s%s, Landlock ABI %d, errata mended %v\n", kernelMark, h.release(), h.sup.ABI, h.sup.Errata)
	last := time.Now()
	sum, err := s.run(h, func(sum *totals) bool {
		if time.Since(last) >= time.Second/2 {
			last = time.Now()
			tell(sum)
		}
		return len(stop) == 0 && len(sum.Failures) == 0
	})
	tell(&sum)
	switch {
	case err != nil:
		return complain(err.Error())
	case len(sum.Failures) > 0:
		return 1
	}
	return 0
}

func tell(sum *totals) {
	text, err := json.Marshal(sum)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s%s\n", progressMark, text)
}

func complain(text string) int {
	fmt.Fprintln(os.Stderr, "differential:", text)
	return 2
}

// seedAndTotal reads how long a run is, and from where.
func seedAndTotal() (seed, total uint64, err error) {
	for _, v := range []struct {
		name string
		to   *uint64
	}{{"DIFFERENTIAL_SEED", &seed}, {"DIFFERENTIAL_N", &total}} {
		if *v.to, err = strconv.ParseUint(os.Getenv(v.name), 10, 64); err != nil || v.to == &total && total == 0 {
			return 0, 0, fmt.Errorf("%s: %q is no number from 1 on", v.name, os.Getenv(v.name))
		}
	}
	return seed, total, nil
}
