package smackhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// MaxChanges bounds the changes that an answer lists.
const MaxChanges = 10_000

// DefaultBudget is the label budget of a policy that names none.
const DefaultBudget = 1000

// LoadOptions are how a policy is loaded.
type LoadOptions struct {
	Order  smackfs.Order
	Adopt  bool
	DryRun bool
	// Once leaves what is loaded at the next start as it was.
	Once  bool
	Actor store.Actor
	// Commit, when not nil, stores the record and the event, with what else goes with them, in one transaction. When it
	// fails the kernel is brought back to what it was. What it loads need not be stored before.
	Commit func(ctx context.Context, done *apiv1.SmackState, e *apiv1.Event) error
}

// target is what the kernel is to hold.
type target struct {
	info     *apiv1.VersionInfo // nil: nothing
	rules    *smack.Set
	settings smack.Settings
	budget   uint32
	relabel  bool // relabelSelf beside onlycap
}

func targetOf(v *apiv1.Version, c *policy.CompiledSmack) target {
	return target{
		info: v.GetInfo(), rules: c.Policy.Effective(), settings: settingsOf(c.Policy),
		budget: budgetOf(v), relabel: len(c.Policy.Settings.RelabelSelf) > 0 && len(c.Policy.Settings.Onlycap) > 0,
	}
}

func budgetOf(v *apiv1.Version) uint32 {
	if n := v.GetResource().GetSmackPolicy().GetSpec().GetLabelBudget(); n != 0 {
		return n
	}
	return DefaultBudget
}

// outcome is what a change found and did.
type outcome struct {
	rules    *smackfs.Report
	settings *smackfs.SettingsReport
}

// Load puts a policy into the kernel, by difference, and assigns it to the host unless told otherwise. With an error
// the kernel and the record are as before, but for errs.ErrSmackPartly, which is mended by the next change or start.
func (m *Manager) Load(ctx context.Context, v *apiv1.Version, o LoadOptions) (*apiv1.LoadResponse, error) {
	if err := m.take(ctx); err != nil {
		return nil, err
	}
	defer m.give()
	fs, err := m.cfg.Find()
	if err != nil {
		return nil, err
	}
	c, err := m.compile(v)
	if err != nil {
		return nil, err
	}
	r, err := m.whole(ctx, fs, o.DryRun)
	if err != nil {
		return nil, err
	}
	t := targetOf(v, c)
	done := r.changed()
	done.Policy, done.Version, done.Revoked = v.GetInfo().GetName(), v.GetInfo().GetNumber(), nil
	if !o.Once {
		done.Assigned, done.AssignedVersion, done.Adopt = done.Policy, done.Version, o.Adopt
	}
	got, err := m.put(ctx, fs, r, t, done, o, func(out *outcome) *apiv1.Event {
		return event(store.EventSmackLoad, o.Actor, title(done.Policy, done.Version), map[string]string{
			"digest": v.GetInfo().GetDigest(), "changes": strconv.Itoa(out.rules.Changes.Len()),
			"settings": strconv.Itoa(len(out.settings.Changes)), "once": strconv.FormatBool(o.Once), "adopt": strconv.FormatBool(o.Adopt),
		})
	})
	if err != nil {
		return nil, err
	}
	if !o.DryRun {
		m.setFailed(nil)
		m.setInterrupted("")
	}
	return response(r, t, got), nil
}

// put makes the kernel hold a target and then stores the record done, with what is owned and the event. The kernel is
// written only after the intent is stored.
func (m *Manager) put(ctx context.Context, fs smackfs.FS, r *record, t target, done *apiv1.SmackState, o LoadOptions, told func(*outcome) *apiv1.Event) (*outcome, error) {
	plan, err := smackfs.ApplySettings(ctx, fs, &t.settings, &r.settings, smackfs.SettingsOptions{Adopt: o.Adopt, DryRun: true})
	if err != nil {
		return nil, err
	}
	kept := false
	intent := func(b []byte) error {
		st := r.changed()
		if st.GetBootId() != smackfs.BootID() { // what it says was owned is not
			st.Policy, st.Version, st.Owned = "", 0, nil
		}
		st.BootId, st.Intent, st.IntentSettings = smackfs.BootID(), b, settingChanges(plan.Changes)
		st.IntentPolicy, st.IntentVersion = t.info.GetName(), t.info.GetNumber()
		if err := m.store(ctx, st); err != nil {
			return err
		}
		kept = true
		return nil
	}
	out := &outcome{settings: plan}
	out.rules, err = smackfs.Load(ctx, fs, t.rules, r.rules, smackfs.Options{
		Order: o.Order, Adopt: o.Adopt, DryRun: o.DryRun, Labels: true, Intent: intent, Memory: m.remembered(fs),
	})
	if o.DryRun || err != nil && !kept {
		return out, err
	}
	if err == nil && !kept && len(plan.Changes) > 0 {
		if err := intent((&smackfs.Intent{Boot: smackfs.BootID(), Order: o.Order}).Encode()); err != nil {
			return nil, err // nothing was written
		}
	}
	if err == nil {
		out.settings, err = smackfs.ApplySettings(ctx, fs, &t.settings, &r.settings, smackfs.SettingsOptions{Adopt: o.Adopt})
	}
	if err == nil {
		if done.Owned, err = encodeOwned(out.rules.Owned, out.settings.Owned); err == nil {
			done.BootId = smackfs.BootID()
			forgetIntent(done)
			if o.Commit != nil {
				err = o.Commit(context.WithoutCancel(ctx), done, told(out))
			} else {
				err = m.store(ctx, done, told(out))
			}
		}
	}
	if err != nil && kept {
		// What smackfs could put back itself is found put back.
		if _, undoErr := m.mend(ctx, fs, false); undoErr != nil {
			return nil, errors.Join(err, fmt.Errorf("undo: %w", undoErr))
		}
	}
	return out, err
}

// drifted counts the owned rules that somebody else has changed: those of revoked subjects are gone on purpose.
func drifted(r *record, drift []smackfs.Change) int {
	n := 0
	for _, c := range drift {
		if c.To != 0 || !slices.Contains(r.GetRevoked(), c.Subject) {
			n++
		}
	}
	return n
}

func forgetIntent(st *apiv1.SmackState) {
	st.Intent, st.IntentPolicy, st.IntentVersion, st.IntentSettings = nil, "", 0, nil
}

// response tells what a load did, or would do.
func response(rec *record, t target, out *outcome) *apiv1.LoadResponse {
	r := out.rules
	res := &apiv1.LoadResponse{
		Policy: t.info.GetName(), Version: t.info.GetNumber(), Digest: t.info.GetDigest(),
		Unchanged: uint32(r.Kept), Foreign: uint32(len(r.Foreign)), NewLabels: uint32(len(r.NewLabels)),
		Labels: uint32(r.Labels + len(r.NewLabels)), Writes: uint32(r.Writes), Bytes: uint64(r.Bytes),
	}
	for c := range r.Changes.All() {
		if c.To&^c.From != 0 {
			res.Granted++
		}
		if c.From&^c.To != 0 {
			res.Revoked++
		}
		if len(res.Changes) < MaxChanges {
			res.Changes = append(res.Changes, &apiv1.SmackRuleState{
				Subject: c.Subject, Object: c.Object, Kernel: c.From.String(), Policy: c.To.String(),
			})
		}
	}
	for _, c := range out.settings.Changes {
		res.Settings = append(res.Settings, settingText(c))
	}
	warn := func(format string, args ...any) { res.Warnings = append(res.Warnings, fmt.Sprintf(format, args...)) }
	if n := res.GetLabels(); n > t.budget {
		warn("the kernel has %d labels, the budget is %d: none is ever freed before a reboot, and each makes loading slower", n, t.budget)
	}
	if n := drifted(rec, r.Drift); n > 0 {
		warn("rules that policyd had loaded were changed by somebody else: %s", count(n, "rule"))
	}
	if n := t.rules.Dead(); n > 0 {
		warn("%s without any effect left out", count(n, "rule"))
	}
	for _, e := range out.settings.Stays {
		warn("%s stays: the kernel has nothing to go back to", e)
	}
	if t.relabel {
		warn("relabelSelf beside onlycap: the kernel takes the list from labels alone that onlycap names, and programs with other labels do not start")
	}
	return res
}

func settingText(c smackfs.SettingChange) string {
	name := c.File
	if c.Key != "" {
		name += " " + c.Key
	}
	old := c.Old
	if old == "" {
		old = "none"
	}
	value := c.Value
	if value == "" {
		value = "none"
	}
	return fmt.Sprintf("%s: kernel %s, policy %s", name, old, value)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
