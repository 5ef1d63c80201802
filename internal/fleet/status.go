package fleet

import (
	"fmt"
	"time"

	"policyd.dev/policyd/internal/errs"
)

// State is where a node stands.
type State string

// The states, from the worst to the best: the state of a fleet is that of its worst node.
const (
	// Failed: a bundle was refused or did not become active; the node runs what it had before.
	Failed State = "Failed"
	// Degraded: the bundle is active, and something of it is not enforced or was overridden on the node.
	Degraded State = "Degraded"
	// Stale: the pointer has expired or the node has not been heard of; what it had stays in force.
	Stale State = "Stale"
	// Halted: a Hold keeps the node from the bundle it should have.
	Halted State = "Halted"
	// Pending: the node has not begun, or was never heard of.
	Pending State = "Pending"
	// Compiling: the node fetches, verifies and compiles.
	Compiling State = "Compiling"
	// Loaded: the bundle it should have is active.
	Loaded State = "Loaded"
	// Skipped: the rollout has not reached the node, or is not for it; it runs the one before.
	Skipped State = "Skipped"
)

// States in their order, the worst first.
var States = []State{Failed, Degraded, Stale, Halted, Pending, Compiling, Loaded, Skipped}

// rank is the place in States, len(States) for none of them.
func (s State) rank() int {
	for i, other := range States {
		if s == other {
			return i
		}
	}
	return len(States)
}

// Worse tells that s is worse than other.
func (s State) Worse(other State) bool { return s.rank() < other.rank() }

// Status is what a node tells of itself, at most MaxRecordBytes as JSON.
type Status struct {
	Node     string `json:"node"`
	BootID   string `json:"boot_id,omitempty"`
	Version  string `json:"version,omitempty"` // of policyd
	Kernel   string `json:"kernel,omitempty"`
	Landlock int    `json:"landlock_abi"` // 0: none
	Smack    bool   `json:"smack"`
	Channel  string `json:"channel"`

	// Desired is what the newest accepted pointer wants of this node.
	DesiredSeq    uint64 `json:"desired_seq"`
	DesiredDigest string `json:"desired_digest,omitempty"`
	// Loaded is what is in force.
	LoadedSeq    uint64 `json:"loaded_seq"`
	LoadedDigest string `json:"loaded_digest,omitempty"`

	State State     `json:"state"`
	Since time.Time `json:"since"` // of the state
	// Code is the stable reason of an error (OLDER_SEQUENCE, UNSUPPORTED_BY_KERNEL ...), Message its text.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`

	Policies   int `json:"policies"`    // LandlockPolicies in force
	SmackRules int `json:"smack_rules"` // loaded by policyd
	// Running counts sandboxes, containers and services by bundle digest; "" are those of policies that came from none.
	Running map[string]int `json:"running,omitempty"`
	// Overrides are the policies that the node's admin has overridden.
	Overrides []string `json:"overrides,omitempty"`
	// Reported is when the node wrote this.
	Reported time.Time `json:"reported"`
}

// Check holds what is true of every Status.
func (s *Status) Check() error {
	if err := ValidName(s.Node); err != nil {
		return fmt.Errorf("status: node: %w", err)
	}
	if s.State.rank() == len(States) {
		return fmt.Errorf("%w: status: state %q is not known", errs.ErrInvalid, clip(string(s.State)))
	}
	return nil
}

// Node is all that is known of one node.
type Node struct {
	Name string
	Spec Spec
	// Status is its newest one, nil when it was never heard of.
	Status *Status
	// Alive: the status's lease still holds.
	Alive bool
}

// State is the node's state as others see it: one whose lease is gone is Stale,
// whatever it said last.
func (n *Node) State() State {
	switch {
	case n.Status == nil:
		return Pending
	case !n.Alive && n.Status.State.rank() > Stale.rank():
		return Stale
	}
	return n.Status.State
}

// Summary is the worst state of all nodes, Pending for none.
func Summary(nodes []Node) State {
	worst := Pending
	for i := range nodes {
		if s := nodes[i].State(); i == 0 || s.Worse(worst) {
			worst = s
		}
	}
	return worst
}
