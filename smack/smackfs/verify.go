package smackfs

import (
	"fmt"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// verify reads the rules again and compares them with those before, changed. The hashes make that cheap when all is
// well; else every changed pair is looked at. What others did to other pairs meanwhile is theirs.
func verify(fs FS, before lineSum, changes Changes) error {
	want, got := before, lineSum{seed: before.seed}
	var line []byte
	for c := range changes.All() {
		if c.From != 0 {
			line = smack.Rule{Subject: c.Subject, Object: c.Object, Access: c.From}.Append(line[:0])
			want.take(line)
		}
		if c.To != 0 {
			line = smack.Rule{Subject: c.Subject, Object: c.Object, Access: c.To}.Append(line[:0])
			want.add(line)
		}
	}
	r, err := openRules(fs)
	if err != nil {
		return err
	}
	defer r.close()
	for {
		ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		got.add(r.text)
	}
	if want.sum == got.sum {
		return nil
	}
	rules, err := ReadRules(fs)
	if err != nil {
		return err
	}
	var wrong []Change
	for c := range changes.All() {
		if a, _ := rules.Lookup(c.Subject, c.Object); a != c.To {
			wrong = append(wrong, Change{c.Subject, c.Object, a, c.To})
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the kernel shows other rules than were written: %s", errs.ErrSmackRefused, list(len(wrong), func(i int) string {
		return fmt.Sprintf("%q instead of %s", text(smack.Rule{Subject: wrong[i].Subject, Object: wrong[i].Object, Access: wrong[i].From}), wrong[i].To)
	}))
}
