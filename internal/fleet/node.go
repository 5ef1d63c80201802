package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"policyd.dev/policyd/internal/errs"
)

// Spec is what admins say of a node. The node reads it and cannot write it.
type Spec struct {
	// Channel is the one whose pointer the node follows.
	Channel string `json:"channel"`
	// Labels choose nodes in rollouts.
	Labels map[string]string `json:"labels,omitempty"`
	// By and Enrolled say who wrote it and when the node was enrolled.
	By       string    `json:"by,omitempty"`
	Enrolled time.Time `json:"enrolled,omitzero"`
}

// Check holds what is true of every Spec.
func (s *Spec) Check() error {
	if err := ValidName(s.Channel); err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	if len(s.Labels) > maxLabels {
		return fmt.Errorf("%w: %d labels, at most %d", errs.ErrTooLarge, len(s.Labels), maxLabels)
	}
	return checkLabels(s.Labels)
}

// HoldKind says what a Hold keeps from happening.
type HoldKind string

const (
	// Paused keeps the controller from the next stage; nodes reached go on.
	Paused HoldKind = "pause"
	// HaltedAll keeps nodes from activating anything new, too: they keep what they have.
	HaltedAll HoldKind = "halt"
)

// Hold stops a rollout, by a person or by a breached gate. It is not signed: who
// can write it can only keep things as they are. Only a person takes it away.
type Hold struct {
	Kind HoldKind  `json:"kind"`
	By   string    `json:"by"`
	Why  string    `json:"why,omitempty"`
	At   time.Time `json:"at"`
	// Gate is true when the controller halted, false for a person.
	Gate bool `json:"gate,omitempty"`
}

// Check holds what is true of every Hold.
func (h *Hold) Check() error {
	if h.Kind != Paused && h.Kind != HaltedAll {
		return fmt.Errorf("%w: hold: kind %q, want %s or %s", errs.ErrInvalid, clip(string(h.Kind)), Paused, HaltedAll)
	}
	return nil
}

// MaxRecordBytes is the most that a Spec, a Hold or a Status takes.
const MaxRecordBytes = 4 << 10

// Marshal gives the JSON of a Spec, a Hold or a Status.
func Marshal(v interface{ Check() error }) ([]byte, error) {
	if err := v.Check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxRecordBytes {
		return nil, fmt.Errorf("%w: a record of %d bytes, at most %d", errs.ErrTooLarge, len(b), MaxRecordBytes)
	}
	return b, nil
}

// Unmarshal reads what Marshal wrote. Fields it does not know are left out: a
// newer member of the fleet may have written them.
func Unmarshal(b []byte, v interface{ Check() error }) error {
	if len(b) > MaxRecordBytes {
		return fmt.Errorf("%w: a record of %d bytes, at most %d", errs.ErrTooLarge, len(b), MaxRecordBytes)
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: record: %v", errs.ErrInvalid, err) //nolint:errorlint // the sentinel is the one callers test
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: record: more than one value", errs.ErrInvalid)
	}
	return v.Check()
}
