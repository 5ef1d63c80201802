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
	kernel, err := openRules(fs)
	if err != nil {
		return err
	}
	defer kernel.close()
	err = c.scan(kernel, func(string) {}, func(r *kernelRule, wi, oi int) {
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

// mostAsked is for how many changes asking the kernel one by one is quicker than reading all its rules.
const mostAsked = 16

// confirmed reports whether access2 answers for every changed pair as the rule written does. It says no also where that
// cannot tell: the rules themselves are read then.
func (c *comparison) confirmed(fs FS) bool {
	if c.changes.Len() > mostAsked {
		return false
	}
	for ch := range c.changes.All() {
		if !ch.answers(fs) {
			return false
		}
	}
	return true
}

// answers asks for the letters of the pair's rule together and for each other one by itself. Pairs of which the kernel
// decides something before it looks at rules tell nothing, and b cannot be asked for.
func (c Change) answers(fs FS) bool {
	if smack.BuiltIn(c.Subject) || smack.BuiltIn(c.Object) || c.Subject == c.Object || (c.From|c.To)&smack.Bringup != 0 {
		return false
	}
	if c.To != 0 {
		if yes, err := ask(fs, smack.Query{Subject: c.Subject, Object: c.Object, Access: c.To}); err != nil || !yes {
			return false
		}
	}
	grants := c.To
	if grants&smack.Write != 0 {
		grants |= smack.Lock // smk_access: who may write may lock
	}
	for rest := smack.AllAccess &^ smack.Bringup &^ grants; rest != 0; rest &= rest - 1 {
		if yes, err := ask(fs, smack.Query{Subject: c.Subject, Object: c.Object, Access: rest & -rest}); err != nil || yes {
			return false
		}
	}
	return true
}
