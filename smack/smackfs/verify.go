package smackfs

import (
	"bytes"
	"fmt"
	"hash/maphash"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// lineSum is a sum of hashes of lines, each with its newline: equal for the same lines in any order.
type lineSum struct {
	seed maphash.Seed
	sum  uint64
}

func (s *lineSum) addText(text []byte) {
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line = text[:i+1]
		}
		text = text[len(line):]
		s.sum += maphash.Bytes(s.seed, line)
	}
}

// verify reads the rules again and compares them with those before, changed. The hashes make that cheap when all is
// well; else every changed pair is looked at. What others did to other pairs meanwhile is theirs.
func verify(fs FS, before []byte, changes []Change) error {
	now, err := readFile(fs, fileLoad2)
	if err != nil {
		return explain(fs, err)
	}
	seed := maphash.MakeSeed()
	want, got := lineSum{seed: seed}, lineSum{seed: seed}
	want.addText(before)
	got.addText(now)
	var line []byte
	for _, c := range changes {
		if c.From != 0 {
			line = smack.Rule{Subject: c.Subject, Object: c.Object, Access: c.From}.Append(line[:0])
			want.sum -= maphash.Bytes(seed, line)
		}
		if c.To != 0 {
			line = smack.Rule{Subject: c.Subject, Object: c.Object, Access: c.To}.Append(line[:0])
			want.sum += maphash.Bytes(seed, line)
		}
	}
	if want.sum == got.sum {
		return nil
	}
	rules, err := parseRules(now)
	if err != nil {
		return err
	}
	var wrong []Change
	for _, c := range changes {
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
