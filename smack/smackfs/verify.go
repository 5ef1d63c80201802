package smackfs

import (
	"fmt"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// verify reads the rules again and looks at every changed pair. What others did to other pairs meanwhile is theirs.
// Afterwards w and o tell what was read.
func (c *comparison) verify(fs FS) error {
	clear(c.w.is)
	clear(c.o.is)
	err := c.scan(fs, func(string) {}, func(r *lineReader, wi, oi int) {
		if wi >= 0 {
			c.w.is[wi] = uint16(r.access)
		}
		if oi >= 0 {
			c.o.is[oi] = uint16(r.access)
		}
	})
	if err != nil {
		return err
	}
	var wrong []Change
	for i, ch := range c.changes.list {
		s := c.w
		if ch.owned {
			s = c.o
		}
		if is := smack.Access(s.is[ch.row]); is != ch.to {
			pair := c.changes.At(i)
			wrong = append(wrong, Change{pair.Subject, pair.Object, is, ch.to})
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the kernel shows other rules than were written: %s", errs.ErrSmackRefused, list(len(wrong), func(i int) string {
		return fmt.Sprintf("%q instead of %s", text(smack.Rule{Subject: wrong[i].Subject, Object: wrong[i].Object, Access: wrong[i].From}), wrong[i].To)
	}))
}
