package smackfs

import (
	"cmp"
	"slices"

	"policyd.dev/policyd/smack"
)

// Change is what becomes of the rule of one pair. Access 0 is no rule.
type Change struct {
	Subject, Object string
	From, To        smack.Access
}

func (c Change) grants() bool  { return c.To&^c.From != 0 }
func (c Change) revokes() bool { return c.From&^c.To != 0 }

// comparison is the kernel's rules beside the wanted and the owned ones.
type comparison struct {
	rules    int // in the kernel
	repeated int // lines that showed a pair again
	kept     int // wanted pairs that the kernel has as wanted, those of no access among them

	changes []Change // by subject and object
	// foreign are rules in the kernel that are not owned, but for those a change of conflicts is about.
	foreign []smack.Rule
	// conflicts are changes to pairs with a rule that is not owned.
	conflicts []Change
	// same are wanted pairs that the kernel has as wanted by a rule that is not owned.
	same []smack.Rule
	// drift are owned pairs that the kernel has otherwise than they were loaded: From is as loaded, To as it is.
	drift []Change
	// whole are subjects of which every rule in the kernel goes, with how many.
	whole map[string]int
}

// compare reads the text of load2 against what is wanted and what is owned.
func compare(text []byte, want, owned *smack.Set) (*comparison, error) {
	w := newRows(want)
	o := w
	if owned != want {
		o = newRows(owned)
	}
	c := &comparison{whole: map[string]int{}}
	wantSeen, ownedSeen := make([]bool, len(w.object)), make([]bool, len(o.object))

	p := lineParser{text: text}
	var subject []byte
	var wr, or run
	going, staying := 0, 0 // rules of the subject
	endSubject := func() {
		if going > 0 && staying == 0 {
			c.whole[string(subject)] += going
		} else if staying > 0 {
			c.whole[string(subject)] = -1 << 30
		}
		going, staying = 0, 0
	}
	for {
		ok, err := p.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if string(p.subject) != string(subject) {
			endSubject()
			subject = p.subject
			wr, or = w.run(subject), o.run(subject)
		}
		wi := wr.find(p.object)
		oi := wi
		if o != w {
			oi = or.find(p.object)
		}
		if (wi >= 0 && wantSeen[wi]) || (oi >= 0 && ownedSeen[oi]) {
			c.repeated++
			continue
		}
		c.rules++
		if oi >= 0 {
			ownedSeen[oi] = true
			if o.access[oi] != p.access {
				c.drift = append(c.drift, Change{o.subject[oi], o.object[oi], o.access[oi], p.access})
			}
		}
		switch {
		case wi >= 0:
			wantSeen[wi] = true
			rule := smack.Rule{Subject: w.subject[wi], Object: w.object[wi], Access: p.access}
			ch := Change{rule.Subject, rule.Object, p.access, w.access[wi]}
			switch {
			case ch.From == ch.To && oi < 0:
				c.same = append(c.same, rule)
				fallthrough
			case ch.From == ch.To:
				c.kept++
			case oi < 0:
				c.conflicts = append(c.conflicts, ch)
				fallthrough
			default:
				c.changes = append(c.changes, ch)
			}
			if ch.To == 0 {
				going++
			} else {
				staying++
			}
		case oi >= 0 && o.access[oi] != 0: // where policyd said "no access" it loaded nothing that could be its own
			c.changes = append(c.changes, Change{o.subject[oi], o.object[oi], p.access, 0})
			going++
		default:
			c.foreign = append(c.foreign, smack.Rule{Subject: string(p.subject), Object: string(p.object), Access: p.access})
			staying++
		}
	}
	endSubject()
	for i, seen := range wantSeen {
		switch {
		case seen:
		case w.access[i] == 0:
			c.kept++ // the kernel hides it, or never had it: both deny
		default:
			c.changes = append(c.changes, Change{w.subject[i], w.object[i], 0, w.access[i]})
			c.whole[w.subject[i]] = -1 << 30
		}
	}
	for i, seen := range ownedSeen {
		if !seen && o.access[i] != 0 {
			c.drift = append(c.drift, Change{o.subject[i], o.object[i], o.access[i], 0})
		}
	}
	slices.SortFunc(c.changes, byPair)
	slices.SortFunc(c.conflicts, byPair)
	slices.SortFunc(c.drift, byPair)
	foreign := len(c.foreign)
	slices.SortFunc(c.foreign, func(a, b smack.Rule) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Object, b.Object))
	})
	c.foreign = slices.CompactFunc(c.foreign, func(a, b smack.Rule) bool { return a.Subject == b.Subject && a.Object == b.Object })
	c.repeated += foreign - len(c.foreign)
	c.rules -= foreign - len(c.foreign)
	return c, nil
}

func byPair(a, b Change) int {
	return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Object, b.Object))
}
