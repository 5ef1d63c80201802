package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var (
	newBundle = fleet.Digest([]byte("new"))
	oldBundle = fleet.Digest([]byte("old"))
)

func pointer(percent int) *fleet.Pointer {
	return &fleet.Pointer{
		Fleet: "prod", Channel: "stable", Seq: 5, Digest: newBundle, Prev: oldBundle,
		Issued: start, NotAfter: start.Add(30 * 24 * time.Hour),
		Rollout: fleet.Rollout{
			ID: "r1", Percent: percent, Stages: []int{100, 5000, fleet.Full},
			Soak: 10 * time.Minute, MaxFailed: 1000, MinLoaded: 9000,
		},
	}
}

// node is one that says state of the new bundle.
func node(i int, state fleet.State) fleet.Node {
	n := fleet.Node{Name: fmt.Sprintf("n%03d", i), Alive: true, Spec: fleet.Spec{Channel: "stable"}}
	n.Status = &fleet.Status{Node: n.Name, State: state, DesiredSeq: 5, DesiredDigest: newBundle, LoadedDigest: oldBundle, Reported: start}
	if state == fleet.Loaded || state == fleet.Degraded {
		n.Status.LoadedDigest = newBundle
	}
	return n
}

func many(counts map[fleet.State]int) (nodes []fleet.Node) {
	for _, s := range fleet.States {
		for range counts[s] {
			nodes = append(nodes, node(len(nodes), s))
		}
	}
	return nodes
}

func TestStep(t *testing.T) {
	soaked := Progress{Seq: 5, Soaked: 10 * time.Minute, Seen: start}
	silent := node(50, fleet.Loaded)
	silent.Alive = false
	away := silent
	away.Status = &fleet.Status{Node: away.Name, State: fleet.Loaded, DesiredSeq: 4, DesiredDigest: oldBundle, LoadedDigest: oldBundle}
	never := fleet.Node{Name: "new", Spec: fleet.Spec{Channel: "stable"}}
	failedBefore := node(51, fleet.Failed)
	failedBefore.Status.DesiredDigest = oldBundle
	beyond := node(60, fleet.Failed)
	beyond.Status.Channel, beyond.Status.DesiredSeq, beyond.Status.DesiredDigest = "stable", 9, oldBundle
	loaded10 := many(map[fleet.State]int{fleet.Loaded: 10})
	human := fleet.Hold{Kind: fleet.HaltedAll, By: "anna", Why: "smoke"}

	for name, tc := range map[string]struct {
		view    View
		before  Progress
		now     time.Time
		want    Action
		percent int
		why     string
		counts  Counts
	}{
		"loaded and soaked":         {View{pointer(5000), nil, nil}, soaked, start, Advance, fleet.Full, "no node", Counts{}},
		"all loaded, soak begins":   {View{pointer(fleet.Full), nil, loaded10}, Progress{}, start, Wait, fleet.Full, "0s of 10m0s", Counts{Nodes: 10, Reached: 10, Loaded: 10}},
		"soak over: done":           {View{pointer(fleet.Full), nil, loaded10}, soaked, start, Done, fleet.Full, "10 of 10", Counts{Nodes: 10, Reached: 10, Loaded: 10}},
		"soak of another pointer":   {View{pointer(fleet.Full), nil, loaded10}, Progress{Seq: 4, Soaked: time.Hour, Seen: start.Add(-time.Hour), Done: true}, start, Wait, fleet.Full, "0s of", Counts{Nodes: 10, Reached: 10, Loaded: 10}},
		"one of ten failed, may":    {View{pointer(fleet.Full), nil, many(map[fleet.State]int{fleet.Loaded: 9, fleet.Failed: 1})}, soaked, start, Done, fleet.Full, "9 of 10", Counts{Nodes: 10, Reached: 10, Loaded: 9, Failed: 1}},
		"two of ten failed":         {View{pointer(fleet.Full), nil, many(map[fleet.State]int{fleet.Loaded: 8, fleet.Failed: 2})}, soaked, start, Halt, fleet.Full, "2 of 10 nodes failed", Counts{Nodes: 10, Reached: 10, Loaded: 8, Failed: 2}},
		"degraded counts as failed": {View{pointer(fleet.Full), nil, many(map[fleet.State]int{fleet.Loaded: 8, fleet.Failed: 1, fleet.Degraded: 1})}, soaked, start, Halt, fleet.Full, "2 of 10", Counts{Nodes: 10, Reached: 10, Loaded: 8, Failed: 2}},
		"too few loaded":            {View{pointer(fleet.Full), nil, many(map[fleet.State]int{fleet.Loaded: 8, fleet.Compiling: 1, fleet.Pending: 1})}, soaked, start, Wait, fleet.Full, "8 of 10", Counts{Nodes: 10, Reached: 10, Loaded: 8, Waiting: 2}},
		"silent with this bundle":   {View{pointer(fleet.Full), nil, append(many(map[fleet.State]int{fleet.Loaded: 8}), silent)}, soaked, start, Wait, fleet.Full, "8 of 9", Counts{Nodes: 9, Reached: 9, Loaded: 8, Lost: 1}},
		"away all the while":        {View{pointer(fleet.Full), nil, append(many(map[fleet.State]int{fleet.Loaded: 8}), away, never)}, soaked, start, Done, fleet.Full, "8 of 8", Counts{Nodes: 10, Reached: 10, Loaded: 8, Away: 2}},
		"all away":                  {View{pointer(fleet.Full), nil, []fleet.Node{never}}, soaked, start, Wait, fleet.Full, "none of the 1", Counts{Nodes: 1, Reached: 1, Away: 1}},
		"failed with the last one":  {View{pointer(fleet.Full), nil, []fleet.Node{failedBefore}}, soaked, start, Wait, fleet.Full, "0 of 1", Counts{Nodes: 1, Reached: 1, Waiting: 1}},
		"halted by a person":        {View{pointer(fleet.Full), []fleet.Hold{human}, loaded10}, soaked, start, Held, fleet.Full, "halted by anna: smoke", Counts{Nodes: 10, Reached: 10, Loaded: 10}},
		"halted, and failing":       {View{pointer(fleet.Full), []fleet.Hold{human}, many(map[fleet.State]int{fleet.Failed: 2})}, soaked, start, Held, fleet.Full, "anna", Counts{Nodes: 2, Reached: 2, Failed: 2}},
		"paused":                    {View{pointer(fleet.Full), []fleet.Hold{{Kind: fleet.Paused, By: "bob"}}, loaded10}, soaked, start, Held, fleet.Full, "paused by bob", Counts{Nodes: 10, Reached: 10, Loaded: 10}},
		"expired":                   {View{pointer(5000), nil, loaded10}, soaked, start.Add(31 * 24 * time.Hour), Wait, 5000, "expired", Counts{Nodes: 10, Reached: 6, Loaded: 6}},
		"a node is ahead":           {View{pointer(100), nil, []fleet.Node{beyond}}, soaked, start, Wait, 100, "n060 has had sequence 9, this is 5", Counts{Nodes: 1}},
		"a node is ahead of done":   {View{pointer(fleet.Full), nil, []fleet.Node{beyond}}, Progress{Seq: 5, Done: true}, start.Add(21 * 24 * time.Hour), Wait, fleet.Full, "has had sequence 9", Counts{Nodes: 1, Reached: 1, Waiting: 1}},
		"done stays done":           {View{pointer(fleet.Full), nil, many(map[fleet.State]int{fleet.Failed: 5})}, Progress{Seq: 5, Done: true}, start, Done, fleet.Full, "behind", Counts{Nodes: 5, Reached: 5, Failed: 5}},
		"done, time runs out":       {View{pointer(fleet.Full), nil, loaded10}, Progress{Seq: 5, Done: true}, start.Add(21 * 24 * time.Hour), Refresh, fleet.Full, "time is up", Counts{Nodes: 10, Reached: 10, Loaded: 10}},
		"done, expired":             {View{pointer(fleet.Full), nil, loaded10}, Progress{Seq: 5, Done: true}, start.Add(31 * 24 * time.Hour), Refresh, fleet.Full, "time is up", Counts{Nodes: 10, Reached: 10, Loaded: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			d, after := Step(tc.now, tc.view, tc.before)
			if d.Action != tc.want || d.Percent != tc.percent || !strings.Contains(d.Why, tc.why) {
				t.Errorf("%s to %d: %s; want %s to %d: %s", d.Action, d.Percent, d.Why, tc.want, tc.percent, tc.why)
			}
			if d.Counts != tc.counts {
				t.Errorf("have %+v, want %+v", d.Counts, tc.counts)
			}
			if after.Seq != tc.view.Pointer.Seq || !after.Seen.Equal(tc.now) {
				t.Errorf("progress %+v", after)
			}
		})
	}
}

func TestHoldingIsNamed(t *testing.T) {
	nodes := many(map[fleet.State]int{fleet.Loaded: 1, fleet.Failed: 1, fleet.Compiling: 2})
	nodes[0].Status.Code, nodes[0].Status.Message = "UNSUPPORTED_BY_KERNEL", "no abi 7"
	d := Look(View{Pointer: pointer(fleet.Full), Nodes: nodes})
	if len(d.Holding) != 3 || d.Holding[0].State != fleet.Failed || d.Holding[0].Why != "UNSUPPORTED_BY_KERNEL: no abi 7" || d.Holding[1].Node >= d.Holding[2].Node {
		t.Errorf("%+v", d.Holding)
	}
}

// A whole rollout under a simulated clock: 200 nodes that load when they are
// reached, one step every ten seconds.
func TestWholeRolloutUnderASimulatedClock(t *testing.T) {
	for name, tc := range map[string]struct {
		badFrom int // nodes from this one on fail
		want    Action
		stage   int
	}{
		"all well":             {1000, Done, fleet.Full},
		"bad nodes halt early": {0, Halt, 100},
		"half is bad":          {100, Halt, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			p := pointer(100)
			var nodes []fleet.Node
			for i := range 200 {
				nodes = append(nodes, fleet.Node{Name: fmt.Sprintf("n%03d", i), Alive: true, Status: &fleet.Status{State: fleet.Loaded, LoadedDigest: oldBundle, DesiredDigest: oldBundle, DesiredSeq: 4}})
			}
			if name == "half is bad" { // but none of those of the first stage
				for i := range nodes {
					if _, reached, _ := p.Desired(nodes[i].Name, nil); reached && i >= tc.badFrom {
						tc.badFrom = i + 1
					}
				}
			}
			now, progress, stageBegan := start, Progress{}, start
			for range 10000 {
				var d Decision
				d, progress = Step(now, View{Pointer: p, Nodes: nodes}, progress)
				switch d.Action {
				case Advance:
					if now.Sub(stageBegan) < p.Rollout.Soak && d.Counts.Reached > 0 {
						t.Fatalf("stage %d was left after %v", p.Rollout.Percent, now.Sub(stageBegan))
					}
					p, stageBegan = Next(p, d, now, "test"), now
					if err := p.Check(); err != nil {
						t.Fatal(err)
					}
				case Halt, Done:
					if d.Action != tc.want || p.Rollout.Percent != tc.stage {
						t.Fatalf("%s at %d: %s", d.Action, p.Rollout.Percent, d.Why)
					}
					return
				}
				now = now.Add(10 * time.Second)
				for i := range nodes {
					s := nodes[i].Status
					if _, reached, _ := p.Desired(nodes[i].Name, nil); reached {
						s.DesiredSeq, s.DesiredDigest = p.Seq, p.Digest
						if i >= tc.badFrom {
							s.State = fleet.Failed
						} else {
							s.State, s.LoadedDigest = fleet.Loaded, p.Digest
						}
					}
				}
			}
			t.Fatal("it never ended")
		})
	}
}

// The soak is time that somebody looked: it begins again when the gate did not
// hold, and a clock that jumps is worth a step at most.
func TestSoak(t *testing.T) {
	p := pointer(fleet.Full)
	good := View{Pointer: p, Nodes: many(map[fleet.State]int{fleet.Loaded: 10})}
	bad := View{Pointer: p, Nodes: many(map[fleet.State]int{fleet.Loaded: 5, fleet.Compiling: 5})}
	_, progress := Step(start, good, Progress{})
	_, progress = Step(start.Add(30*time.Second), good, progress)
	if progress.Soaked != 30*time.Second {
		t.Errorf("soaked %v", progress.Soaked)
	}
	_, ahead := Step(start.Add(48*time.Hour), good, progress)
	if ahead.Soaked != 30*time.Second+longestStep {
		t.Errorf("after a jump ahead: soaked %v", ahead.Soaked)
	}
	_, back := Step(start.Add(-48*time.Hour), good, progress)
	if back.Soaked != 30*time.Second {
		t.Errorf("after a jump back: soaked %v", back.Soaked)
	}
	if _, again := Step(start.Add(time.Minute), bad, progress); again.Soaked != 0 {
		t.Errorf("after a gate that did not hold: soaked %v", again.Soaked)
	}
	held := good
	held.Holds = []fleet.Hold{{Kind: fleet.Paused, By: "anna"}}
	if _, again := Step(start.Add(time.Minute), held, progress); again.Soaked != 0 {
		t.Errorf("after a pause: soaked %v", again.Soaked)
	}
}
