package smackhost

import (
	"context"
	"slices"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
)

// State tells what the kernel holds beside what it should: the version v, or, when that is nil, what is in force.
// Nothing is written. foreign asks for the rules that are not policyd's, at most [MaxChanges].
func (m *Manager) State(ctx context.Context, v *apiv1.Version, foreign bool) (*apiv1.GetSmackResponse, error) {
	if err := m.take(ctx); err != nil {
		return nil, err
	}
	defer m.give()
	r, err := m.read()
	if err != nil {
		return nil, err
	}
	res := &apiv1.GetSmackResponse{
		AssignedPolicy: r.GetAssigned(), AssignedVersion: r.GetAssignedVersion(), Revoked: r.GetRevoked(), LabelBudget: DefaultBudget,
	}
	if r.inForce() {
		res.Policy, res.Version = r.GetPolicy(), r.GetVersion()
		res.Assigned = r.GetAssigned() == res.GetPolicy() && r.GetAssignedVersion() == res.GetVersion()
	}
	interrupted, failed := m.told()
	if failed != nil {
		res.Failed = failed.Error()
	}
	if res.Interrupted = interrupted; len(r.GetIntent()) > 0 {
		res.Interrupted = "a change was cut off and is not undone yet: the next load, or the next start of policyd, undoes it"
	}
	fs, state, err := m.available()
	res.State = state
	if err != nil {
		res.Detail = err.Error()
	}
	if fs == nil {
		return res, nil
	}
	t, err := m.wanted(r, v)
	if err != nil {
		return nil, err
	}
	if t.budget != 0 {
		res.LabelBudget = t.budget
	}
	return res, compareInto(ctx, res, fs, r, t, foreign)
}

// wanted is what the kernel is compared with.
func (m *Manager) wanted(r *record, v *apiv1.Version) (target, error) {
	var err error
	if v == nil {
		if !r.inForce() {
			return target{rules: &smack.Set{}}, nil
		}
		if v, err = m.version(r.GetPolicy(), r.GetVersion()); err != nil {
			return target{}, err
		}
		c, err := m.compile(v)
		if err != nil {
			return target{}, err
		}
		t := targetOf(v, c)
		t.rules, err = without(t.rules, r.GetRevoked())
		return t, err
	}
	c, err := m.compile(v)
	if err != nil {
		return target{}, err
	}
	return targetOf(v, c), nil
}

func compareInto(ctx context.Context, res *apiv1.GetSmackResponse, fs smackfs.FS, r *record, t target, foreign bool) error {
	rules, err := smackfs.Load(ctx, fs, t.rules, r.rules, smackfs.Options{Adopt: true, DryRun: true, Labels: true})
	if err != nil {
		return err
	}
	res.Rules, res.Labels, res.DriftTotal = uint32(rules.Rules), uint32(rules.Labels), uint32(rules.Changes.Len())
	var now *smack.Set
	if now, err = smackfs.ReadRules(fs); err != nil {
		return err
	}
	for rule := range now.All() {
		if loaded, _ := r.rules.Lookup(rule.Subject, rule.Object); loaded != 0 { // where it was to have none, it is another's
			res.Own++
			continue
		}
		res.Foreign++
		if foreign && len(res.ForeignRules) < MaxChanges {
			res.ForeignRules = append(res.ForeignRules, &apiv1.SmackRuleState{
				Subject: rule.Subject, Object: rule.Object, Kernel: rule.Access.String(), Policy: stated(t.rules, rule),
			})
		}
	}
	for c := range rules.Changes.All() {
		if len(res.Drift) == MaxChanges {
			break
		}
		row := &apiv1.SmackRuleState{Subject: c.Subject, Object: c.Object, Kernel: c.From.String()}
		row.Policy = stated(t.rules, smack.Rule{Subject: c.Subject, Object: c.Object})
		res.Drift = append(res.Drift, row)
	}
	settings, err := smackfs.ApplySettings(ctx, fs, &t.settings, &r.settings, smackfs.SettingsOptions{Adopt: true, DryRun: true, LockOut: true})
	if err != nil {
		return err
	}
	for _, c := range settings.Changes {
		res.SettingsDrift = append(res.SettingsDrift, settingText(c))
	}
	slices.Sort(res.SettingsDrift)
	return nil
}

// stated is what a policy has for a rule's pair, "" for nothing.
func stated(rules *smack.Set, r smack.Rule) string {
	a, ok := rules.Lookup(r.Subject, r.Object)
	if !ok {
		return ""
	}
	return a.String()
}
