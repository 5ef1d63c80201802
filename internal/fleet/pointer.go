package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/errs"
)

// TypePointer is the first line of a channel's pointer.
const TypePointer = "policyd.dev/fleet/pointer/v1"

// Full is all nodes, in basis points (hundredths of a percent).
const Full = 10000

// Pointer says which bundle the nodes of a channel run. The rollout keys sign
// it. Every step of a rollout is a pointer of its own with a higher Seq.
type Pointer struct {
	Fleet   string
	Channel string
	// Seq rises strictly within a channel, for good: a node never takes a lower one.
	Seq uint64
	// Digest is the bundle of the nodes that the rollout has reached.
	Digest string
	// Prev is the bundle of all others; "" in a channel's first rollout, whose
	// other nodes have none yet.
	Prev     string
	Issued   time.Time // whole seconds, UTC
	NotAfter time.Time // after it nodes call themselves Stale and go on
	Rollout  Rollout
	// By and Message say who made the pointer and why.
	By, Message string
}

// Rollout is how far a bundle has come, and the rules of going on.
type Rollout struct {
	// ID salts the choice of nodes; all pointers of one rollout have the same.
	ID string
	// Percent is the share of nodes reached, in basis points: 1 % is 100.
	Percent int
	// Stages are the shares it goes through, rising, the last is Full. Percent is
	// one of them.
	Stages []int
	// Labels must all be a node's, with these values; none: every node.
	Labels map[string]string
	// Sticky salts by channel instead of ID: the first nodes are always the same.
	Sticky bool
	// Soak is how long the gate must hold before the next stage.
	Soak time.Duration
	// MaxFailed is the share of reached nodes that may be Failed or Degraded.
	MaxFailed int
	// MinLoaded is the share of reached nodes that must be Loaded.
	MinLoaded int
}

// Salt is what the choice of nodes is salted with.
func (p *Pointer) Salt() string {
	if p.Rollout.Sticky {
		return "channel " + p.Channel
	}
	return "rollout " + p.Rollout.ID
}

const (
	maxStages      = 100
	maxRolloutSoak = 90 * 24 * time.Hour
	maxLabels      = 64
)

// Check holds what is true of every pointer.
func (p *Pointer) Check() error {
	r := p.Rollout
	for what, name := range map[string]string{"fleet": p.Fleet, "channel": p.Channel, "rollout": r.ID} {
		if err := ValidName(name); err != nil {
			return fmt.Errorf("pointer: %s: %w", what, err)
		}
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: pointer: %s", errs.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := ValidDigest(p.Digest); err != nil {
		return fmt.Errorf("pointer: %w", err)
	}
	if p.Prev != "" {
		if err := ValidDigest(p.Prev); err != nil {
			return fmt.Errorf("pointer: prev: %w", err)
		}
	}
	switch {
	case p.Seq == 0:
		return bad("seq begins at 1")
	case p.Issued.Year() < 1970 || p.NotAfter.Year() > 9999: // what no record and no JSON can hold
		return bad("issued %s, not_after %s: want years from 1970 to 9999", timeText(p.Issued), timeText(p.NotAfter))
	case !p.NotAfter.After(p.Issued):
		return bad("not_after %s is not after issued %s", timeText(p.NotAfter), timeText(p.Issued))
	case len(r.Stages) == 0 || len(r.Stages) > maxStages:
		return bad("%d stages, want 1 to %d", len(r.Stages), maxStages)
	case r.Stages[len(r.Stages)-1] != Full:
		return bad("the last stage is %s, want 100%%", PercentText(r.Stages[len(r.Stages)-1]))
	case !slices.Contains(r.Stages, r.Percent):
		return bad("%s is none of its stages", PercentText(r.Percent))
	case r.Soak < 0 || r.Soak > maxRolloutSoak:
		return bad("soak %v, want 0 to %v", r.Soak, maxRolloutSoak)
	case r.MaxFailed < 0 || r.MaxFailed > Full || r.MinLoaded < 0 || r.MinLoaded > Full:
		return bad("max_failed and min_loaded are 0 to 100%%")
	case len(r.Labels) > maxLabels:
		return bad("%d labels, at most %d", len(r.Labels), maxLabels)
	case len(p.By) > maxMessage || len(p.Message) > maxMessage:
		return bad("by and message have at most %d bytes", maxMessage)
	}
	for i, s := range r.Stages {
		if s < 1 || i > 0 && s <= r.Stages[i-1] {
			return bad("stages must rise from above 0 to 100%%")
		}
	}
	return checkLabels(r.Labels)
}

// checkLabels checks names and values of labels; a value may be empty.
func checkLabels(labels map[string]string) error {
	for k, v := range labels {
		if err := ValidName(k); err != nil {
			return fmt.Errorf("label: %w", err)
		}
		if v == "" {
			continue
		}
		if err := ValidName(v); err != nil {
			return fmt.Errorf("label %s: %w", k, err)
		}
	}
	return nil
}

// Text is the text that is signed.
func (p *Pointer) Text() string {
	r := p.Rollout
	var stages, labels []string
	for _, s := range r.Stages {
		stages = append(stages, strconv.Itoa(s))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
		labels = append(labels, k+"="+r.Labels[k])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nfleet %s\nchannel %s\nseq %d\ndigest %s\nprev %s\nissued %s\nnot_after %s\n",
		TypePointer, p.Fleet, p.Channel, p.Seq, p.Digest, orNone(p.Prev), timeText(p.Issued), timeText(p.NotAfter))
	fmt.Fprintf(&b, "rollout %s\npercent %d\nstages %s\nlabels %s\nsticky %t\nsoak %s\nmax_failed %d\nmin_loaded %d\n",
		r.ID, r.Percent, strings.Join(stages, ","), orNone(strings.Join(labels, ",")), r.Sticky, r.Soak, r.MaxFailed, r.MinLoaded)
	fmt.Fprintf(&b, "by %s\nmessage %s\n", strconv.QuoteToASCII(p.By), strconv.QuoteToASCII(p.Message))
	return b.String()
}

// ID is the digest of the pointer's text: two pointers of one sequence number
// with different IDs are a sign of a stolen key.
func (p *Pointer) ID() string { return Digest([]byte(p.Text())) }

// SignPointer signs a pointer with rollout keys.
func SignPointer(p *Pointer, signers ...note.Signer) ([]byte, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	return sign(p.Text(), signers)
}

// OpenPointer checks a signed pointer of a channel: errs.ErrTampered,
// errs.ErrWrongType, errs.ErrTooFewSignatures, errs.ErrWrongFleet,
// errs.ErrWrongChannel, errs.ErrInvalid. It knows neither the time (Expired) nor
// what came before (Follows).
func OpenPointer(signed []byte, trust Trust, fleet, channel string) (*Pointer, error) {
	if len(signed) > maxPointerBytes {
		return nil, fmt.Errorf("%w: a pointer of %d bytes, at most %d", errs.ErrTooLarge, len(signed), maxPointerBytes)
	}
	text, err := trust.Rollout.open(signed, TypePointer)
	if err != nil {
		return nil, fmt.Errorf("pointer: %w", err)
	}
	p, err := parsePointer(text)
	if err != nil {
		return nil, err
	}
	if p.Fleet != fleet {
		return nil, fmt.Errorf("pointer: %w: it is of %s, this is %s", errs.ErrWrongFleet, p.Fleet, fleet)
	}
	if p.Channel != channel {
		return nil, fmt.Errorf("pointer: %w: it is of %s, this is %s", errs.ErrWrongChannel, p.Channel, channel)
	}
	return p, nil
}

const maxPointerBytes = 64 << 10

func parsePointer(text string) (*Pointer, error) {
	f := &fields{rest: strings.TrimPrefix(text, TypePointer+"\n"), what: "pointer"}
	p := &Pointer{
		Fleet: f.value("fleet"), Channel: f.value("channel"), Seq: f.number("seq"),
		Digest: f.value("digest"), Prev: f.optional("prev"), Issued: f.time("issued"), NotAfter: f.time("not_after"),
	}
	r := &p.Rollout
	r.ID = f.value("rollout")
	r.Percent = int(f.number("percent"))
	for s := range strings.SplitSeq(f.value("stages"), ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			f.fail("stages: want numbers")
		}
		r.Stages = append(r.Stages, n)
	}
	if text := f.optional("labels"); text != "" {
		r.Labels = map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			k, v, _ := strings.Cut(pair, "=")
			r.Labels[k] = v
		}
	}
	r.Sticky = f.value("sticky") == "true"
	r.Soak = f.duration("soak")
	r.MaxFailed = int(f.number("max_failed"))
	r.MinLoaded = int(f.number("min_loaded"))
	p.By, p.Message = f.quoted("by"), f.quoted("message")
	if f.err != nil {
		return nil, f.err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Text() != text {
		return nil, fmt.Errorf("%w: pointer: not in its one form", errs.ErrInvalid)
	}
	return p, nil
}

// Follows checks a pointer against the newest one a node has accepted, by its
// Seq and ID (0 and "" for none). The very same pointer is no error; a lower
// sequence, and the same one with another text, are errs.ErrOlderSequence.
func (p *Pointer) Follows(seq uint64, id string) error {
	if p.Seq < seq {
		return fmt.Errorf("%w: sequence %d, this node has had %d", errs.ErrOlderSequence, p.Seq, seq)
	}
	if p.Seq == seq && p.ID() != id {
		return fmt.Errorf("%w: sequence %d was used for another pointer before; somebody else has a rollout key", errs.ErrOlderSequence, p.Seq)
	}
	return nil
}

// Expired tells that a pointer is past its time. What is loaded stays loaded.
func (p *Pointer) Expired(now time.Time) error {
	if now.After(p.NotAfter) {
		return fmt.Errorf("%w: at %s", errs.ErrExpired, timeText(p.NotAfter))
	}
	return nil
}

// Desired is the bundle that a node with these labels shall run by a pointer,
// "" for none, whether the rollout has reached it, and why in a few words. labels
// are those of its Spec.
func (p *Pointer) Desired(node string, labels map[string]string) (digest string, reached bool, why string) {
	for _, k := range slices.Sorted(maps.Keys(p.Rollout.Labels)) {
		if labels[k] != p.Rollout.Labels[k] {
			return p.Prev, false, fmt.Sprintf("the rollout is for nodes with %s=%s", k, p.Rollout.Labels[k])
		}
	}
	if !Selected(p.Salt(), node, p.Rollout.Percent) {
		return p.Prev, false, fmt.Sprintf("not among the first %s", PercentText(p.Rollout.Percent))
	}
	return p.Digest, true, fmt.Sprintf("among the first %s", PercentText(p.Rollout.Percent))
}
