package controller

import (
	"fmt"
	"slices"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// Action is what a step says to do.
type Action string

// The actions.
const (
	// Wait: the gate does not hold yet, or its soak is not over.
	Wait Action = "wait"
	// Advance: go to the next stage.
	Advance Action = "advance"
	// Halt: the gate is breached.
	Halt Action = "halt"
	// Done: all stages are behind, the gate holds.
	Done Action = "done"
	// Refresh: sign the same pointer again, since its time is running out.
	Refresh Action = "refresh"
	// Held: a person, or an earlier breach, keeps things as they are.
	Held Action = "held"
)

// View is what a step looks at.
type View struct {
	Pointer *fleet.Pointer
	// Holds of the channel and of the fleet.
	Holds []fleet.Hold
	// Nodes are those of the channel, by their Spec.
	Nodes []fleet.Node
}

// Progress is what a step must know of the steps before. The loop keeps it in
// etcd, so that another controller goes on where this one ended.
type Progress struct {
	Seq    uint64        `json:"seq"`    // of the pointer it is about
	Soaked time.Duration `json:"soaked"` // how long the gate has held
	Seen   time.Time     `json:"seen"`   // when the last step was
	Done   bool          `json:"done,omitempty"`
}

// longestStep bounds how much one step adds to the soak: a clock that jumps
// ahead, or an hour without any controller, is no hour in which somebody looked.
const longestStep = time.Minute

// Counts are the nodes of a channel as a gate sees them.
type Counts struct {
	Nodes   int `json:"nodes"`   // of the channel
	Reached int `json:"reached"` // by the rollout
	Loaded  int `json:"loaded"`  // of the reached
	Failed  int `json:"failed"`  // of the reached: Failed or Degraded with this bundle
	Waiting int `json:"waiting"` // of the reached: alive, not yet Loaded
	Lost    int `json:"lost"`    // of the reached: began with this bundle, then not heard of
	Away    int `json:"away"`    // of the reached: not heard of since before this bundle
}

// counted are the reached nodes that a share is of. Those away are left out: a
// machine that is switched off must not hold a fleet. One that began with this
// bundle and is silent since counts.
func (c Counts) counted() int { return c.Loaded + c.Failed + c.Waiting + c.Lost }

// Holding is a node that keeps a rollout from going on.
type Holding struct {
	Node  string      `json:"node"`
	State fleet.State `json:"state"`
	Why   string      `json:"why"`
}

// Decision is the outcome of a step.
type Decision struct {
	Action  Action    `json:"action"`
	Percent int       `json:"percent"` // the stage after it, basis points
	Why     string    `json:"why"`
	Counts  Counts    `json:"counts"`
	Holding []Holding `json:"holding,omitempty"` // worst first, then by name
}

// Step says what to do with a rollout now. It is pure: the same view, progress
// and time give the same answer.
func Step(now time.Time, v View, before Progress) (Decision, Progress) {
	p, r := v.Pointer, v.Pointer.Rollout
	after := Progress{Seq: p.Seq, Seen: now}
	if before.Seq == p.Seq {
		after.Soaked, after.Done = before.Soaked, before.Done
	}
	d := Look(v)
	d.Percent = r.Percent

	if len(v.Holds) > 0 {
		h := v.Holds[0]
		d.Action, d.Why = Held, fmt.Sprintf("%s by %s", words[h.Kind], h.By)
		if h.Why != "" {
			d.Why += ": " + h.Why
		}
		after.Soaked = 0
		return d, after
	}
	if node, seq := ahead(v); seq > p.Seq {
		// etcd came from a backup, or the node lies. Counting on from an old number
		// would end at one that nodes take, and lead them back by itself.
		d.Action = Wait
		d.Why = fmt.Sprintf("%s has had sequence %d, this is %d: was etcd restored? A person's rollout takes a number above both", node, seq, p.Seq)
		after.Soaked = 0
		return d, after
	}
	if after.Done {
		d.Action, d.Why = Done, "all stages are behind"
		if life := p.NotAfter.Sub(p.Issued); now.After(p.NotAfter.Add(-life / 3)) {
			d.Action, d.Why = Refresh, fmt.Sprintf("its time is up at %s", p.NotAfter.UTC().Format(time.RFC3339))
		}
		return d, after
	}
	if p.Expired(now) != nil {
		d.Action, d.Why = Wait, "the pointer has expired; nothing goes on before a person signs a new one"
		after.Soaked = 0
		return d, after
	}

	c := d.Counts
	switch {
	case over(c.Failed, r.MaxFailed, c.counted()):
		d.Action = Halt
		d.Why = fmt.Sprintf("%d of %d nodes failed, at most %s may", c.Failed, c.counted(), fleet.PercentText(r.MaxFailed))
		after.Soaked = 0
		return d, after
	case c.Reached == 0:
		// Nobody to look at, so nothing to wait for.
		d.Why = "no node in this stage"
	case c.counted() == 0:
		d.Action, d.Why = Wait, fmt.Sprintf("none of the %d nodes reached has been heard of", c.Reached)
		after.Soaked = 0
		return d, after
	case c.Loaded*fleet.Full < r.MinLoaded*c.counted():
		d.Action = Wait
		d.Why = fmt.Sprintf("%d of %d nodes are loaded, %s must be", c.Loaded, c.counted(), fleet.PercentText(r.MinLoaded))
		after.Soaked = 0
		return d, after
	default:
		if before.Seq == p.Seq && !before.Seen.IsZero() {
			after.Soaked += min(max(now.Sub(before.Seen), 0), longestStep)
		}
		if after.Soaked < r.Soak {
			d.Action = Wait
			d.Why = fmt.Sprintf("the gate holds, %s of %s are over", after.Soaked.Truncate(time.Second), r.Soak)
			return d, after
		}
		d.Why = fmt.Sprintf("%d of %d nodes are loaded", c.Loaded, c.counted())
	}
	if r.Percent == fleet.Full {
		d.Action, after.Done = Done, true
		return d, after
	}
	d.Action, d.Percent = Advance, nextStage(r)
	return d, after
}

// ahead finds the node of a channel that has accepted the highest sequence number.
func ahead(v View) (node string, seq uint64) {
	for i := range v.Nodes {
		if st := v.Nodes[i].Status; st != nil && st.Channel == v.Pointer.Channel && st.DesiredSeq > seq {
			node, seq = st.Node, st.DesiredSeq
		}
	}
	return node, seq
}

var words = map[fleet.HoldKind]string{fleet.Paused: "paused", fleet.HaltedAll: "halted"}

// over tells that part of whole is more than a share in basis points.
func over(part, share, whole int) bool { return part*fleet.Full > share*whole }

func nextStage(r fleet.Rollout) int {
	for _, s := range r.Stages {
		if s > r.Percent {
			return s
		}
	}
	return fleet.Full
}

// Look counts the nodes of a channel and finds those that hold its rollout back;
// it decides nothing.
func Look(v View) Decision {
	d := Decision{Percent: v.Pointer.Rollout.Percent}
	d.Counts.Nodes = len(v.Nodes)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if _, reached, _ := v.Pointer.Desired(n.Name, n.Spec.Labels); !reached {
			continue
		}
		d.Counts.Reached++
		if why := d.Counts.sort(v.Pointer, n); why != "" {
			d.Holding = append(d.Holding, Holding{n.Name, n.State(), why})
		}
	}
	slices.SortStableFunc(d.Holding, func(x, y Holding) int {
		switch {
		case x.State.Worse(y.State):
			return -1
		case y.State.Worse(x.State):
			return 1
		case x.Node < y.Node:
			return -1
		}
		return 1
	})
	return d
}

// sort counts one reached node, and says why it holds the rollout back; "" when
// it does not.
func (c *Counts) sort(p *fleet.Pointer, n *fleet.Node) string {
	s := n.Status
	if s == nil {
		c.Away++
		return "was never heard of"
	}
	// Only what a node says of this bundle counts: it may have failed with the one
	// before and not have looked since.
	about := s.DesiredDigest == p.Digest && s.DesiredSeq > 0 || s.LoadedDigest == p.Digest
	switch {
	case !n.Alive && about:
		c.Lost++
		return fmt.Sprintf("was last heard of at %s, with this bundle", s.Reported.UTC().Format(time.RFC3339))
	case !n.Alive:
		c.Away++
		return fmt.Sprintf("was last heard of at %s", s.Reported.UTC().Format(time.RFC3339))
	case about && (s.State == fleet.Failed || s.State == fleet.Degraded):
		c.Failed++
		return reason(s)
	case s.State == fleet.Loaded && s.LoadedDigest == p.Digest:
		c.Loaded++
		return ""
	}
	c.Waiting++
	if why := reason(s); why != "" {
		return why
	}
	return fmt.Sprintf("has not loaded it yet, sequence %d of %d", s.DesiredSeq, p.Seq)
}

func reason(s *fleet.Status) string {
	switch {
	case s.Code != "" && s.Message != "":
		return s.Code + ": " + s.Message
	case s.Message != "":
		return s.Message
	}
	return s.Code
}

// Next is the pointer after a decision to advance or refresh: the next sequence
// number, the stage of the decision, and as much time as the one before had.
func Next(p *fleet.Pointer, d Decision, now time.Time, by string) *fleet.Pointer {
	next := *p
	next.Seq++
	next.Issued = now.UTC().Truncate(time.Second)
	next.NotAfter = next.Issued.Add(p.NotAfter.Sub(p.Issued))
	next.Rollout.Percent = d.Percent
	next.By = by
	return &next
}
