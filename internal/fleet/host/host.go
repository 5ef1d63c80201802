package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/agent"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// Config of [New]. Store and Smack must be given.
type Config struct {
	Store   *store.Store
	Smack   *smackhost.Manager
	Support landlock.Support
	// Sandboxes gives those alive; nil: none are counted.
	Sandboxes func() ([]*apiv1.Sandbox, error)
	// Others gives what else runs under policies of this host: containers, services. nil: none are counted.
	Others func() []Running
	// Changed is called after an activation, before it is acknowledged: what was kept in memory of the store is old.
	Changed func()
}

// Running is something alive under a version of a policy.
type Running struct {
	Policy  string
	Version uint64
}

// Host is this machine as the agent sees it.
type Host struct {
	cfg Config

	mu       sync.Mutex // of an activation
	known    known      // documents of the bundle that was compiled last; by mu's holder alone
	degraded degraded
}

// degraded is what of a bundle this kernel does not enforce.
type degraded struct {
	mu     sync.Mutex
	digest string
	names  []string
}

// New makes a host. It looks at nothing.
func New(cfg Config) *Host {
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	return &Host{cfg: cfg}
}

var _ agent.Host = (*Host)(nil)

// State implements [agent.Host].
func (h *Host) State() (*apiv1.FleetState, error) { return h.cfg.Store.FleetState() }

// Keep implements [agent.Host].
func (h *Host) Keep(ctx context.Context, st *apiv1.FleetState, events ...*apiv1.Event) error {
	return h.cfg.Store.SetFleetState(ctx, st, events...)
}

// Tell implements [agent.Host].
func (h *Host) Tell(ctx context.Context, e *apiv1.Event) error { return h.cfg.Store.Append(ctx, e) }

// Blob implements [agent.Host].
func (h *Host) Blob(digest string) ([]byte, error) { return h.cfg.Store.FleetBundle(digest) }

// actor is who activates: the channel.
func actor(a agent.Activation) store.Actor {
	message := "bundle " + a.Digest
	if m := a.Manifest.Message; m != "" {
		message += ": " + m
	}
	return store.Actor{Name: "fleet:" + a.State.GetFleet() + "/" + a.State.GetChannel(), Message: message}
}

// bundleOf is the digest in the message of a version that came with a bundle, "" of others.
func bundleOf(info *apiv1.VersionInfo) string {
	rest, ok := strings.CutPrefix(info.GetMessage(), "bundle ")
	if !ok || !strings.HasPrefix(info.GetAuthor(), "fleet:") {
		return ""
	}
	digest, _, _ := strings.Cut(rest, ": ")
	if fleet.ValidDigest(digest) != nil {
		return ""
	}
	return digest
}

// Activate implements [agent.Host]: everything is compiled for this kernel, smackfs holds the bundle's SmackPolicy and was
// read again, then the store moves. An error leaves all as it was.
func (h *Host) Activate(ctx context.Context, a agent.Activation) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.prepare(a.Bundle)
	if err != nil {
		return err
	}
	act := store.Activation{
		State: a.State, Digest: a.Digest, Blob: a.Blob, Puts: p.puts,
		Overridable: func(kind, name string) bool { return kind == store.KindLandlockPolicy && p.local[name] },
	}
	who := actor(a)
	commit := func(ctx context.Context, smack *apiv1.SmackState, e *apiv1.Event) error {
		act.Smack, act.Events = smack, []*apiv1.Event{e}
		_, err := h.cfg.Store.Activate(ctx, who, act)
		return err
	}
	drop, err := h.dropsSmack(p)
	switch {
	case err != nil:
		return err
	case p.smack != nil:
		_, err = h.cfg.Smack.Load(ctx, p.smack, smackhost.LoadOptions{Actor: who, Commit: commit})
	case drop:
		_, _, err = h.cfg.Smack.UnloadWith(ctx, smackhost.LoadOptions{Actor: who, Commit: commit})
	default:
		_, err = h.cfg.Store.Activate(ctx, who, act)
	}
	if err != nil {
		return err
	}
	h.setDegraded(a.Digest, p.degraded)
	h.cfg.Changed()
	return nil
}

// dropsSmack tells whether smackfs holds the policy of the bundle in force, and the next has none.
func (h *Host) dropsSmack(p *prepared) (bool, error) {
	if p.smack != nil {
		return false, nil
	}
	st, err := h.cfg.Store.SmackState()
	if err != nil || st.GetAssigned() == "" && st.GetPolicy() == "" {
		return false, err
	}
	_, documents, _, err := h.cfg.Store.Fleet()
	for _, d := range documents {
		if d.GetKind() == store.KindSmackPolicy && (d.GetName() == st.GetAssigned() || d.GetName() == st.GetPolicy()) {
			return true, err
		}
	}
	return false, err
}

func (h *Host) setDegraded(digest string, names []string) {
	h.degraded.mu.Lock()
	defer h.degraded.mu.Unlock()
	h.degraded.digest, h.degraded.names = digest, names
}

// degradedOf compiles the bundle in force again when this process has not yet.
func (h *Host) degradedOf(digest string) ([]string, error) {
	h.degraded.mu.Lock()
	known, names := h.degraded.digest == digest, h.degraded.names
	h.degraded.mu.Unlock()
	if known || digest == "" {
		return names, nil
	}
	_, documents, _, err := h.cfg.Store.Fleet()
	if err != nil {
		return nil, err
	}
	names = nil
	for _, d := range documents {
		if d.GetKind() != store.KindLandlockPolicy {
			continue
		}
		v, err := h.cfg.Store.Get(d.GetKind(), store.Ref{Name: d.GetName(), Number: d.GetNumber()}.String())
		if err != nil {
			return nil, err
		}
		lost, err := h.lost(v)
		if err != nil {
			return nil, fmt.Errorf("%s@%d: %w", d.GetName(), d.GetNumber(), err)
		}
		if lost {
			names = append(names, d.GetName())
		}
	}
	h.setDegraded(digest, names)
	return names, nil
}

// Report implements [agent.Host].
func (h *Host) Report() (agent.Report, error) {
	st, documents, overridden, err := h.cfg.Store.Fleet()
	if err != nil {
		return agent.Report{}, err
	}
	r := agent.Report{Documents: len(documents), Running: map[string]int{}}
	inForce := map[string]uint64{}
	for _, d := range documents {
		if d.GetKind() == store.KindLandlockPolicy {
			inForce[d.GetName()] = d.GetNumber()
		}
	}
	r.Policies = len(inForce)
	for _, d := range overridden {
		r.Overrides = append(r.Overrides, d.GetName())
	}
	if r.Degraded, err = h.degradedOf(st.GetDigest()); err != nil {
		return agent.Report{}, err
	}
	if smack, err := h.cfg.Smack.State(context.Background(), nil, false); err == nil {
		r.Smack, r.SmackRules = smack.GetState() == apiv1.GetSmackResponse_STATE_AVAILABLE, int(smack.GetOwn())
	}
	alive, err := h.running()
	if err != nil {
		return agent.Report{}, err
	}
	for _, p := range alive {
		digest, err := h.runs(p, st.GetDigest(), inForce)
		if err != nil {
			return agent.Report{}, err
		}
		r.Running[digest]++
		if _, ofFleet := inForce[p.Policy]; (ofFleet || digest != "") && digest != st.GetDigest() {
			r.RunningOlder++
		}
	}
	return r, nil
}

// running is all that is alive under a policy.
func (h *Host) running() (list []Running, err error) {
	if h.cfg.Others != nil {
		list = h.cfg.Others()
	}
	if h.cfg.Sandboxes == nil {
		return list, nil
	}
	alive, err := h.cfg.Sandboxes()
	for _, sb := range alive {
		list = append(list, Running{sb.GetPolicy(), sb.GetVersion()})
	}
	return list, err
}

// runs is the bundle that the version of what runs is of: the one in force when that holds the version, else the one that
// brought it; "" for a version of this host's own.
func (h *Host) runs(p Running, active string, inForce map[string]uint64) (string, error) {
	if n, ok := inForce[p.Policy]; ok && n == p.Version {
		return active, nil
	}
	info, err := h.cfg.Store.Info(store.KindLandlockPolicy, store.Ref{Name: p.Policy, Number: p.Version}.String())
	if errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrDeleted) || errors.Is(err, errs.ErrInvalid) {
		return "", nil
	}
	return bundleOf(info), err
}
