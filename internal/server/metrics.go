package server

import (
	"context"
	"sync"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/metrics"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/store"
)

// usage remembers what the store holds: counting looks at every key, and between two scrapes there is mostly no change.
type usage struct {
	mu   sync.Mutex
	last *store.Usage
}

func (u *usage) of(st *store.Store) (*store.Usage, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	commits, err := st.Commits()
	if err != nil {
		return nil, err
	}
	if u.last == nil || u.last.Commits != commits {
		if u.last, err = st.Usage(); err != nil {
			return nil, err
		}
	}
	return u.last, nil
}

// state is what a scrape looks up. What cannot be read is left out, and told in the log.
func (s *Server) state(ctx context.Context) metrics.State {
	st := metrics.State{Ready: s.Ready()}
	if s.support.State == landlock.Available {
		st.LandlockABI = s.support.ABI
	}
	if u, err := s.usage.of(s.store); err != nil {
		s.log.Warn("metrics: the store cannot be read", "error", err)
	} else {
		st.Store = &metrics.StoreState{
			Documents: u.Documents, Versions: u.Status.GetVersions(), LogEntries: u.Status.GetLogEntries(),
			SizeBytes: u.Status.GetSizeBytes(), FreeBytes: u.Status.GetFreeBytes(), CommittedWrites: u.Commits,
		}
	}
	if alive, _, err := s.sandboxes.List(sandbox.Filter{}); err != nil {
		s.log.Warn("metrics: sandboxes cannot be listed", "error", err)
	} else {
		st.Sandboxes = &metrics.SandboxState{Alive: len(alive)}
		for _, sb := range alive {
			if len(sb.GetMissing()) > 0 {
				st.Sandboxes.Degraded++
			}
			if sb.GetOutdated() {
				st.Sandboxes.Outdated++
			}
		}
	}
	if h, err := s.host.State(ctx, nil, false); err != nil {
		s.log.Warn("metrics: smackfs cannot be read", "error", err)
	} else {
		st.Smack = &metrics.SmackState{
			Available: h.GetState() == apiv1.GetSmackResponse_STATE_AVAILABLE, Loaded: h.GetPolicy() != "", Failed: h.GetFailed() != "",
			Drift: uint64(h.GetDriftTotal()), Own: uint64(h.GetOwn()), Rules: uint64(h.GetRules()),
			Labels: uint64(h.GetLabels()), Budget: uint64(h.GetLabelBudget()),
		}
	}
	if f := s.fleetStatus(); f != nil {
		st.Fleet = &metrics.FleetState{
			State: f.GetState(), Connected: f.GetConnected(), Desired: f.GetDesiredSeq(), Loaded: f.GetLoadedSeq(),
		}
		if t := f.GetNotAfter(); t != nil {
			st.Fleet.Expiry = t.AsTime()
		}
	}
	return st
}
