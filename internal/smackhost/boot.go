package smackhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// self is who makes the changes that no peer asked for.
var self = store.Actor{Name: "policyd"}

// Boot brings the kernel to what the store says when policyd starts: a change that was cut off is undone, subjects
// that were revoked are revoked, and the assigned policy is loaded. An error is also what [Manager.Failed] tells until
// a later Boot or Load succeeds. Without an assigned policy it needs no Smack.
func (m *Manager) Boot(ctx context.Context) error {
	if err := m.take(ctx); err != nil {
		return err
	}
	defer m.give()
	err := m.boot(ctx)
	m.setFailed(err)
	return err
}

func (m *Manager) boot(ctx context.Context) error {
	r, err := m.read()
	if err != nil {
		return err
	}
	if len(r.GetIntent()) == 0 && r.GetAssigned() == "" && len(r.GetRevoked()) == 0 {
		return nil
	}
	fs, missing := m.cfg.Find()
	if missing != nil {
		fs = nil
	}
	if len(r.GetIntent()) > 0 {
		if r, err = m.mend(ctx, fs, true); err != nil {
			return err
		}
	}
	switch {
	case missing == nil:
	case r.GetAssigned() == "":
		return nil // there is nothing that could be revoked
	default:
		return fmt.Errorf("policy %s is assigned to this host: %w", title(r.GetAssigned(), r.GetAssignedVersion()), missing)
	}
	m.memory.Forget()
	for _, subject := range r.GetRevoked() {
		if err := smackfs.Revoke(fs, subject); err != nil {
			return fmt.Errorf("revoke %s again: %w", subject, err)
		}
	}
	if r.GetAssigned() == "" {
		return nil
	}
	if err := m.loadAssigned(ctx, fs, r); err != nil {
		return fmt.Errorf("policy %s is assigned to this host and cannot be loaded: %w", title(r.GetAssigned(), r.GetAssignedVersion()), err)
	}
	return nil
}

func (m *Manager) loadAssigned(ctx context.Context, fs smackfs.FS, r *record) error {
	v, err := m.version(r.GetAssigned(), r.GetAssignedVersion())
	if err != nil {
		return err
	}
	c, err := m.compile(v)
	if err != nil {
		return err
	}
	t := targetOf(v, c)
	if t.rules, err = without(t.rules, r.GetRevoked()); err != nil {
		return err
	}
	done := r.changed()
	done.Policy, done.Version = r.GetAssigned(), r.GetAssignedVersion()
	out, err := m.put(ctx, fs, r, t, done, LoadOptions{Adopt: r.GetAdopt()}, func(out *outcome) *apiv1.Event {
		return event(store.EventSmackLoad, self, title(done.Policy, done.Version), map[string]string{
			"digest": v.GetInfo().GetDigest(), "changes": strconv.Itoa(out.rules.Changes.Len()),
			"settings": strconv.Itoa(len(out.settings.Changes)), "once": "false", "adopt": strconv.FormatBool(r.GetAdopt()),
		})
	})
	if err != nil {
		return err
	}
	m.cfg.Log.Info("smack policy is in force", "policy", title(done.Policy, done.Version), "rules", t.rules.Len(),
		"changed", out.rules.Changes.Len(), "foreign", len(out.rules.Foreign), "labels", out.rules.Labels+len(out.rules.NewLabels))
	if n := drifted(r, out.rules.Drift); n > 0 {
		m.cfg.Log.Warn("rules that policyd had loaded were changed by somebody else and are put back", "rules", n)
	}
	return nil
}

// Unload takes back what policyd loaded, and ends the assignment and that subjects stay revoked. Settings that have no value to go back to stay.
// It gives how many rules went, and what stays.
func (m *Manager) Unload(ctx context.Context, a store.Actor) (revoked int, warnings []string, err error) {
	return m.UnloadWith(ctx, LoadOptions{Actor: a})
}

// UnloadWith is Unload with o's Actor and Commit.
func (m *Manager) UnloadWith(ctx context.Context, o LoadOptions) (revoked int, warnings []string, err error) {
	a := o.Actor
	if err := m.take(ctx); err != nil {
		return 0, nil, err
	}
	defer m.give()
	fs, err := m.cfg.Find()
	if errors.Is(err, errs.ErrSmackNotBuilt) || errors.Is(err, errs.ErrSmackDisabled) {
		// Such a kernel holds nothing; the assignment can go all the same.
		return 0, nil, m.unassign(ctx, o)
	}
	if err != nil {
		return 0, nil, err
	}
	r, err := m.whole(ctx, fs, false)
	if err != nil {
		return 0, nil, err
	}
	if r.GetPolicy() == "" && r.GetAssigned() == "" && len(r.GetRevoked()) == 0 {
		return 0, nil, fmt.Errorf("%w: no policy is loaded or assigned", errs.ErrNotFound)
	}
	done := r.changed()
	done.Assigned, done.AssignedVersion, done.Adopt = "", 0, false
	done.Policy, done.Version, done.Revoked = "", 0, nil
	out, err := m.put(ctx, fs, r, target{rules: &smack.Set{}}, done, LoadOptions{Commit: o.Commit}, func(out *outcome) *apiv1.Event {
		return event(store.EventSmackUnload, a, unloaded(r), map[string]string{"changes": strconv.Itoa(out.rules.Changes.Len())})
	})
	if err != nil {
		return 0, nil, err
	}
	for _, e := range out.settings.Stays {
		warnings = append(warnings, fmt.Sprintf("%s stays: the kernel has nothing to go back to", e))
	}
	if n := drifted(r, out.rules.Drift); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%s that policyd had loaded had been changed by somebody else", count(n, "rule")))
	}
	m.setFailed(nil)
	m.setInterrupted("")
	return out.rules.Changes.Len(), warnings, nil
}

// unloaded names what an unload ends; "" when that is only that subjects stay revoked.
func unloaded(r *record) string {
	switch {
	case r.GetPolicy() != "":
		return title(r.GetPolicy(), r.GetVersion())
	case r.GetAssigned() != "":
		return title(r.GetAssigned(), r.GetAssignedVersion())
	}
	return ""
}

// unassign ends the assignment where there is no kernel to change.
func (m *Manager) unassign(ctx context.Context, o LoadOptions) error {
	r, err := m.read()
	if err != nil {
		return err
	}
	if r.GetAssigned() == "" && r.GetPolicy() == "" {
		return fmt.Errorf("%w: no policy is loaded or assigned", errs.ErrNotFound)
	}
	commit := o.Commit
	if commit == nil {
		commit = func(ctx context.Context, st *apiv1.SmackState, e *apiv1.Event) error { return m.store(ctx, st, e) }
	}
	if err := commit(ctx, &apiv1.SmackState{}, event(store.EventSmackUnload, o.Actor, unloaded(r), nil)); err != nil {
		return err
	}
	m.setFailed(nil)
	m.setInterrupted("")
	return nil
}

// Revoke takes every rule of a subject out of the kernel, whoever loaded it, and keeps it out until the next load,
// also over starts of policyd. It gives how many rules went.
func (m *Manager) Revoke(ctx context.Context, subject string, a store.Actor) (int, error) {
	if err := smack.CheckLabel(subject); err != nil {
		return 0, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if err := m.take(ctx); err != nil {
		return 0, err
	}
	defer m.give()
	fs, err := m.cfg.Find()
	if err != nil {
		return 0, err
	}
	if err := smackfs.CanWrite(fs); err != nil {
		return 0, err
	}
	r, err := m.whole(ctx, fs, false)
	if err != nil {
		return 0, err
	}
	had, err := smackfs.ReadRules(fs)
	if err != nil {
		return 0, err
	}
	n := 0
	for range had.Objects(subject) {
		n++
	}
	// The record first: if policyd is killed between the two, the next start revokes it.
	st := r.changed()
	if !slices.Contains(st.GetRevoked(), subject) {
		st.Revoked = append(st.Revoked, subject)
	}
	if err := m.store(ctx, st, event(store.EventSmackRevoke, a, subject, map[string]string{"rules": strconv.Itoa(n)})); err != nil {
		return 0, err
	}
	m.memory.Forget()
	if err := smackfs.Revoke(fs, subject); err != nil {
		return 0, fmt.Errorf("the subject %s is noted as revoked, and the next start of policyd revokes it: %w", subject, err)
	}
	return n, nil
}
