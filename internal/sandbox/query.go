package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/store"
)

// find looks in memory and then in the store. The box is nil when only the store, or
// nobody any more, has the sandbox.
func (m *Manager) find(ref string) (*apiv1.Sandbox, *box, error) {
	if !validRef(ref) {
		return nil, nil, fmt.Errorf("%w: %.20q is no sandbox id", errs.ErrInvalid, ref)
	}
	b, several := m.inMemory(ref)
	if b != nil && b.id == ref {
		return b.rec.Load(), b, nil
	}
	rec, err := m.cfg.Store.Sandbox(ref)
	switch {
	case several:
		return nil, nil, fmt.Errorf("%w: several sandboxes begin with %s", errs.ErrInvalid, ref)
	case errors.Is(err, errs.ErrNotFound) && b != nil:
		return b.rec.Load(), b, nil
	case err != nil:
		return nil, nil, fmt.Errorf("sandbox %s: %w", ref, err)
	case b == nil:
		// It may have been found in the store while the box was just leaving.
		return rec, nil, nil
	case b.id != rec.GetId():
		return nil, nil, fmt.Errorf("%w: several sandboxes begin with %s", errs.ErrInvalid, ref)
	}
	return b.rec.Load(), b, nil
}

func (m *Manager) inMemory(ref string) (found *box, several bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if b := m.boxes[ref]; b != nil && b.rec.Load() != nil {
		return b, false
	}
	for id, b := range m.boxes {
		if strings.HasPrefix(id, ref) && b.rec.Load() != nil {
			if found != nil {
				return nil, true
			}
			found = b
		}
	}
	return found, false
}

// shown is a copy of a record for callers, with what only the moment knows.
func (m *Manager) shown(rec *apiv1.Sandbox) *apiv1.Sandbox {
	rec = proto.CloneOf(rec)
	rec.Outdated = m.cfg.Outdated(rec.GetPolicy(), rec.GetVersion())
	return rec
}

// Get returns the record of a sandbox; errs.ErrNotFound, errs.ErrInvalid for an
// ambiguous beginning of ids.
func (m *Manager) Get(id string) (*apiv1.Sandbox, error) {
	rec, _, err := m.find(id)
	if err != nil {
		return nil, err
	}
	return m.shown(rec), nil
}

// Filter of [Manager.List].
type Filter struct {
	Ended  bool   // ended ones too
	Policy string // of this policy only
	After  string // the token of the page before
	Limit  int    // size of a page; 0: everything
}

// List returns records ordered by id and the token of the next page, "" at the last.
func (m *Manager) List(f Filter) ([]*apiv1.Sandbox, string, error) {
	byID := map[string]*apiv1.Sandbox{}
	horizon := "" // with a limit the store's page ends here
	if f.Ended {
		recs, next, err := m.cfg.Store.Sandboxes(store.SandboxFilter{
			Ended: true, Policy: f.Policy, After: f.After, Limit: f.Limit,
		})
		if err != nil {
			return nil, "", fmt.Errorf("list of sandboxes: %w", err)
		}
		horizon = next
		for _, r := range recs {
			byID[r.GetId()] = r
		}
	}
	for _, b := range m.all() {
		rec := b.rec.Load()
		switch {
		case rec == nil || f.Policy != "" && rec.GetPolicy() != f.Policy:
		case rec.GetId() <= f.After || horizon != "" && rec.GetId() > horizon:
		case !f.Ended && ended(rec):
		default:
			byID[rec.GetId()] = rec
		}
	}
	out := make([]*apiv1.Sandbox, 0, len(byID))
	for _, rec := range byID {
		out = append(out, m.shown(rec))
	}
	slices.SortFunc(out, func(a, b *apiv1.Sandbox) int { return strings.Compare(a.GetId(), b.GetId()) })
	next := horizon
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
		next = out[f.Limit-1].GetId()
	}
	return out, next, nil
}

func ended(rec *apiv1.Sandbox) bool {
	switch rec.GetState() {
	case apiv1.SandboxState_SANDBOX_STATE_EXITED, apiv1.SandboxState_SANDBOX_STATE_UNKNOWN:
		return true
	}
	return false
}

// Wait returns when the sandbox has ended: its first process and all descendants.
func (m *Manager) Wait(ctx context.Context, id string) (*apiv1.ExitStatus, error) {
	rec, b, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if b != nil {
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.life.Done():
			return nil, errs.ErrShutdown
		}
		if b.startErr != nil {
			return nil, fmt.Errorf("sandbox %s: %w", id, errs.ErrNotFound)
		}
		rec = b.rec.Load()
	}
	if !ended(rec) {
		return nil, fmt.Errorf("sandbox %s: record says it runs, and it is not watched: %w", id, errs.ErrStoreCorrupt)
	}
	return proto.CloneOf(rec.GetExit()), nil
}

// Remove forgets an ended sandbox and removes its logs; errs.ErrStillRunning.
func (m *Manager) Remove(ctx context.Context, id string) error {
	rec, b, err := m.find(id)
	if err != nil {
		return err
	}
	if !ended(rec) {
		return fmt.Errorf("sandbox %s: %w", rec.GetId(), errs.ErrStillRunning)
	}
	if err := m.remove(ctx, rec); err != nil {
		return fmt.Errorf("sandbox %s: %w", rec.GetId(), err)
	}
	if b != nil {
		m.mu.Lock()
		delete(m.boxes, b.id)
		m.mu.Unlock()
	}
	return nil
}

func (m *Manager) remove(ctx context.Context, rec *apiv1.Sandbox) error {
	if err := m.ledger.remove(ctx, rec); err != nil {
		return err
	}
	m.logs.removeFolder(rec.GetId())
	return nil
}

// Usage tells what the sandboxes alive use now, ordered by id.
func (m *Manager) Usage() []*apiv1.UsageResponse_Usage {
	var out []*apiv1.UsageResponse_Usage
	for _, b := range m.all() {
		rec := b.rec.Load()
		if rec == nil || rec.GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING || !closed(b.decided) {
			continue
		}
		u, err := b.group.Usage()
		if err != nil {
			continue // it ended meanwhile
		}
		out = append(out, &apiv1.UsageResponse_Usage{
			Sandbox: m.shown(rec), Processes: uint32(u.Processes), Memory: u.MemoryBytes,
			CpuUsec: u.CPUUsec, LogBytes: uint64(m.logs.use(b.id)),
		})
	}
	slices.SortFunc(out, func(a, b *apiv1.UsageResponse_Usage) int {
		return strings.Compare(a.GetSandbox().GetId(), b.GetSandbox().GetId())
	})
	return out
}

// AliveBy is how many sandboxes of an owner are starting or running. Constant time.
func (m *Manager) AliveBy(owner uint32) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.alive[owner]
}

// LogBytesBy is how much output of an owner's sandboxes is kept, bytes, ended ones
// too; at most a second old. Constant time.
func (m *Manager) LogBytesBy(owner uint32) uint64 { return uint64(m.logs.useBy(owner)) }

// missingRight is what a kernel lacks, for the API.
func missingRight(n profile.Need) *apiv1.MissingRight {
	kind := n.Kind.String()
	if !n.Confines() {
		if kind = "log"; n.Name == "quiet" {
			kind = n.Name
		}
	}
	return &apiv1.MissingRight{Layer: n.LayerName, Kind: kind, Right: n.Name, NeedsAbi: uint32(n.ABI)}
}

// Flush waits until all that has happened to sandboxes so far is in the store, where
// its log is read. The error is the store's, or the context's.
func (m *Manager) Flush(ctx context.Context) error { return m.ledger.flush(ctx) }
