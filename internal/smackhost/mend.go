package smackhost

import (
	"context"
	"fmt"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
)

// whole reads the record, after a change that was cut off has been undone. Looking only, it is told instead.
func (m *Manager) whole(ctx context.Context, fs smackfs.FS, look bool) (*record, error) {
	r, err := m.read()
	if err != nil || len(r.GetIntent()) == 0 {
		return r, err
	}
	if look {
		return nil, fmt.Errorf("%w: a change was cut off and is not undone yet; load without a dry run undoes it", errs.ErrSmackPartly)
	}
	return m.mend(ctx, fs, true)
}

// mend undoes the change whose intent is in the record: nobody was told that it has succeeded. It gives the record as
// it is then. fs may be nil when the kernel was booted since. cutOff: whoever asked for the change was told nothing.
func (m *Manager) mend(ctx context.Context, fs smackfs.FS, cutOff bool) (*record, error) {
	r, err := m.read()
	if err != nil {
		return nil, err
	}
	what := "an unload"
	if p := r.GetIntentPolicy(); p != "" {
		what = "a load of " + title(p, r.GetIntentVersion())
	}
	intent, err := smackfs.ParseIntent(r.GetIntent())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errs.ErrStoreCorrupt, err)
	}
	text := what + " was cut off, and the machine was started anew since: nothing of it is left"
	st := r.changed()
	if intent.Boot == smackfs.BootID() {
		var stays []smackfs.Entry
		if text, stays, err = m.goBack(ctx, fs, r, intent, what); err != nil {
			return nil, fmt.Errorf("%s was cut off and cannot be undone: %w", what, err)
		}
		if len(stays) > 0 { // still policyd's, for a later policy that wants them otherwise
			if st.Owned, err = encodeOwned(r.rules, smackfs.WithEntries(r.settings, stays)); err != nil {
				return nil, err
			}
		}
	}
	forgetIntent(st)
	if err := m.store(ctx, st); err != nil {
		return nil, err
	}
	if cutOff {
		m.setInterrupted(text)
		m.cfg.Log.Warn("a change of smackfs did not end", "outcome", text)
	}
	return m.read()
}

// goBack brings rules and settings back to what they were before a change, and tells in words what it met, and which
// settings the kernel cannot take back.
func (m *Manager) goBack(ctx context.Context, fs smackfs.FS, r *record, intent *smackfs.Intent, what string) (string, []smackfs.Entry, error) {
	if fs == nil {
		return "", nil, errs.ErrSmackNotMounted
	}
	ctx = context.WithoutCancel(ctx)
	m.memory.Forget()
	// Settings first: the change may have put an onlycap last that is in the way of everything.
	stays, err := smackfs.UndoSettings(fs, settingChangesOf(r.GetIntentSettings()))
	if err != nil {
		return "", nil, err
	}
	rec, err := smackfs.Recover(fs, r.rules, intent)
	if err != nil {
		return "", nil, err
	}
	others := make(map[[2]string]bool, len(rec.Other))
	for _, c := range rec.Other {
		others[[2]string{c.Subject, c.Object}] = true
	}
	b := smack.NewSetBuilder()
	for rule := range r.rules.All() {
		b.Set(rule.Subject, rule.Object, rule.Access)
	}
	for _, c := range intent.Changes {
		if !others[[2]string{c.Subject, c.Object}] {
			b.Set(c.Subject, c.Object, c.From)
		}
	}
	was, err := b.Build()
	if err != nil {
		return "", nil, err
	}
	if _, err := smackfs.Load(ctx, fs, was, rec.Owned, smackfs.Options{Order: intent.Order}); err != nil {
		return "", nil, fmt.Errorf("%w: %w", errs.ErrSmackPartly, err)
	}
	return fmt.Sprintf("%s was cut off and is undone: of %s it had made %d, %d half, %d were changed by others since",
		what, count(len(intent.Changes), "change"), rec.After, rec.Between, len(rec.Other)), stays, nil
}
