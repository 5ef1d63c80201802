package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
)

// Member is whoever moves rollouts: what it reads, what it believes, what it
// signs with and how it is called.
type Member struct {
	Store *kv.Store
	Trust fleet.Trust
	// Signers are asked for each time, so that keys can be replaced meanwhile.
	Signers func() ([]note.Signer, error)
	Name    string
	Now     func() time.Time
}

// channel is one look at a channel.
type channel struct {
	state   *kv.Channel
	pointer *fleet.Pointer
	record  Record
}

// read reads a channel and verifies its pointer; errs.ErrNotFound before its
// first rollout.
func (m *Member) read(ctx context.Context, name string) (*channel, error) {
	state, err := m.Store.Channel(ctx, name)
	if err != nil {
		return nil, err
	}
	if state.Signed == nil {
		return nil, fmt.Errorf("channel %s: %w: nothing was rolled out yet", name, errs.ErrNotFound)
	}
	p, err := fleet.OpenPointer(state.Signed, m.Trust, m.Store.Layout.Fleet, name)
	if err != nil {
		return nil, fmt.Errorf("channel %s: %w", name, err)
	}
	c := &channel{state: state, pointer: p}
	c.record, _ = ParseRecord(state.Event) // unsigned, and worth one soak: what cannot be read begins anew
	return c, nil
}

// step decides on a channel. Nodes are read only where they matter: not while
// nothing is to be done.
func (m *Member) step(ctx context.Context, c *channel) (Decision, Progress, error) {
	v := View{Pointer: c.pointer, Holds: c.state.Holds()}
	if done := c.record.Progress; done.Seq == c.pointer.Seq && done.Done {
		if d, progress := Step(m.Now(), v, done); d.Action != Refresh {
			return d, progress, nil
		}
	}
	nodes, err := m.Store.Nodes(ctx, c.state.Name)
	if err != nil {
		return Decision{}, Progress{}, err
	}
	v.Nodes = nodes
	d, progress := Step(m.Now(), v, c.record.Progress)
	return d, progress, nil
}

// move writes the pointer that a decision asks for.
func (m *Member) move(ctx context.Context, c *channel, d Decision, progress Progress, conditions ...clientv3.Cmp) (*fleet.Pointer, error) {
	next := Next(c.pointer, d, m.Now(), m.Name)
	signers, err := m.Signers()
	if err != nil {
		return nil, err
	}
	signed, err := fleet.SignPointer(next, signers...)
	if err != nil {
		return nil, err
	}
	// What nodes would refuse is not written: too few keys in these hands.
	if _, err := fleet.OpenPointer(signed, m.Trust, next.Fleet, next.Channel); err != nil {
		return nil, err
	}
	after := Progress{Seq: next.Seq, Seen: m.Now(), Done: d.Action == Refresh && progress.Done}
	raw, err := Record{By: m.Name, At: m.Now(), Progress: after, Decision: d}.marshal()
	if err != nil {
		return nil, err
	}
	return next, m.Store.PutPointer(ctx, kv.Move{Channel: next.Channel, Signed: signed, After: c.state.ModRev, Event: raw, If: conditions})
}

// Advance is a person's step to the next stage. The gate and the soak, counted
// from when the stage began, must allow it unless force is given; a hold is never
// passed (errs.ErrHalted). The decision says what was looked at, the pointer is
// nil when nothing was written.
func (m *Member) Advance(ctx context.Context, name string, force bool) (Decision, *fleet.Pointer, error) {
	c, err := m.read(ctx, name)
	if err != nil {
		return Decision{}, nil, err
	}
	if waited := m.Now().Sub(c.pointer.Issued); c.record.Progress.Seq != c.pointer.Seq || c.record.Progress.Soaked < waited {
		c.record.Progress.Seq, c.record.Progress.Soaked = c.pointer.Seq, max(waited, 0)
	}
	d, progress, err := m.step(ctx, c)
	if err != nil {
		return d, nil, err
	}
	switch {
	case d.Action == Held:
		return d, nil, fmt.Errorf("%w: %s", errs.ErrHalted, d.Why)
	case d.Action == Done:
		return d, nil, m.note(ctx, c, d, progress)
	case c.pointer.Rollout.Percent == fleet.Full && d.Action != Refresh:
		return d, nil, fmt.Errorf("no stage is left: %s", d.Why)
	case d.Action != Advance && d.Action != Refresh:
		if !force {
			return d, nil, fmt.Errorf("the gate does not allow it: %s; --force goes on all the same", d.Why)
		}
		d.Action, d.Percent = Advance, nextStage(c.pointer.Rollout)
	}
	p, err := m.move(ctx, c, d, progress)
	if err != nil {
		return d, nil, err
	}
	return d, p, nil
}

// note leaves a decision in etcd that moves nothing.
func (m *Member) note(ctx context.Context, c *channel, d Decision, progress Progress, conditions ...clientv3.Cmp) error {
	raw, err := Record{By: m.Name, At: m.Now(), Progress: progress, Decision: d}.marshal()
	if err != nil {
		return err
	}
	l := m.Store.Layout
	conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(l.Channel(c.state.Name)), "=", c.state.ModRev))
	_, err = m.Store.Client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(l.Event(c.state.Name), string(raw))).Commit()
	return kv.Error(err)
}

// halt holds a channel for a breached gate.
func (m *Member) halt(ctx context.Context, c *channel, d Decision, progress Progress, conditions ...clientv3.Cmp) error {
	h := &fleet.Hold{Kind: fleet.HaltedAll, By: m.Name, Why: d.Why, At: m.Now().UTC(), Gate: true}
	conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(m.Store.Layout.Channel(c.state.Name)), "=", c.state.ModRev))
	err := m.Store.PutHold(ctx, c.state.Name, h, conditions...)
	if errors.Is(err, errs.ErrVersionMismatch) {
		return nil // somebody moved or held it meanwhile; the next step sees
	}
	if err != nil {
		return err
	}
	return m.note(ctx, c, d, progress)
}
