package smackfs

import (
	"cmp"
	"slices"
	"strings"

	"policyd.dev/policyd/smack"
)

// comparison is the kernel's rules beside the wanted and the owned ones. Its lists are by subject and object.
type comparison struct {
	rules int // in the kernel
	kept  int // wanted pairs that the kernel has as wanted, those of no access among them

	changes Changes
	// foreign are rules in the kernel that are neither wanted nor owned.
	foreign []smack.Rule
	// conflicts are those changes that are of pairs with a rule that is not owned.
	conflicts []Change
	// same are wanted pairs that the kernel has as wanted by a rule that is not owned.
	same []smack.Rule
	// drift are owned pairs that the kernel has otherwise than they were loaded: From is as loaded, To as it is.
	drift []Change

	w, o *side // of wanted and owned rules; one where these are one set
}

// Marks beside a rule's access in the kernel.
const (
	rowSeen    = 1 << 7 // the kernel shows the pair
	rowForeign = 1 << 8 // of wanted: and it is not owned
	rowGoes    = 1 << 8 // of owned: and it is not wanted
)

// side is a set with what the kernel has for each of its rules.
type side struct {
	set    *smack.Set
	is     []uint16
	lo, hi int // the rows of the subject at hand
	next   int // the row that is looked at first
}

func newSide(s *smack.Set) *side { return &side{set: s, is: make([]uint16, s.Len())} }

func (s *side) subject(label string) {
	s.lo, s.hi = s.set.SubjectRows(label)
	s.next = s.hi - 1 // the kernel shows the newest first: what was loaded in order comes in reverse
}

// expected gives the object of the row that is looked at first.
func (s *side) expected() (object string, ok bool) {
	if s.next < s.lo || s.next >= s.hi {
		return "", false
	}
	object, _ = s.set.ObjectAt(s.next)
	return object, true
}

// find gives the row of an object, or -1.
func (s *side) find(object []byte) int {
	if o, ok := s.expected(); ok && o == string(object) {
		s.next--
		return s.next + 1
	}
	lo, hi := s.lo, s.hi
	for lo < hi {
		mid := (lo + hi) / 2
		o, _ := s.set.ObjectAt(mid)
		switch {
		case o == string(object):
			s.next = mid - 1
			return mid
		case o < string(object):
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return -1
}

// source gives the kernel's rules one by one: as it shows them now, or as they are known to be.
type source interface {
	next() (bool, error)
	// nextIs goes to the next rule if it is that of the pair and can be told without much work.
	nextIs(subject, object string) bool
	rule() *kernelRule
}

// scan goes through the kernel's rules. It calls begin for each subject, and each for every rule with its rows in wanted and owned,
// -1 for none; a pair may be shown twice.
func (c *comparison) scan(r source, begin func(subject string), each func(r *kernelRule, wi, oi int)) error {
	w, o := c.w, c.o
	at := r.rule()
	w.hi, o.hi = w.lo, o.lo // no subject yet
	subject := ""
	for {
		if object, ok := w.expected(); ok && r.nextIs(subject, object) {
			w.next--
			wi, oi := w.next+1, w.next+1
			if o != w {
				oi = o.find(at.object)
			}
			each(at, wi, oi)
			continue
		}
		ok, err := r.next()
		if !ok || err != nil {
			return err
		}
		if string(at.subject) != subject {
			subject = string(at.subject)
			begin(subject)
			w.subject(subject)
			if o != w {
				o.subject(subject)
			}
		}
		wi := w.find(at.object)
		oi := wi
		if o != w {
			oi = o.find(at.object)
		}
		each(at, wi, oi)
	}
}

// compareKernel reads the kernel's rules against what is wanted and what is owned.
func compareKernel(fs FS, want, owned *smack.Set) (*comparison, error) {
	r, err := openRules(fs)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return compare(r, want, owned)
}

// compare holds rules against what is wanted and what is owned.
func compare(kernel source, want, owned *smack.Set) (*comparison, error) {
	c := &comparison{changes: Changes{want: want, owned: owned}, w: newSide(want)}
	w := c.w
	o := w
	if owned != want {
		o = newSide(owned)
	}
	c.o = o
	var subject string
	begin := func(s string) { subject = s }
	err := c.scan(kernel, begin, func(r *kernelRule, wi, oi int) {
		if (wi >= 0 && w.is[wi]&rowSeen != 0) || (oi >= 0 && o.is[oi]&rowSeen != 0) {
			return // shown twice
		}
		c.rules++
		is := uint16(r.access) | rowSeen
		switch {
		case wi >= 0:
			w.is[wi] = is
			if oi < 0 {
				w.is[wi] |= rowForeign
			}
			if o != w && oi >= 0 {
				o.is[oi] = is
			}
		case oi >= 0:
			o.is[oi] = is
			// Where policyd said "no access" it loaded nothing that could be its own.
			if _, had := owned.ObjectAt(oi); had != 0 {
				o.is[oi] |= rowGoes
				break
			}
			fallthrough
		default:
			c.foreign = append(c.foreign, smack.Rule{Subject: subject, Object: string(r.object), Access: r.access})
		}
	})
	if err != nil {
		return nil, err
	}
	c.collectWanted(w)
	c.collectOwned(o, o != w)
	byRule := func(a, b smack.Rule) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), strings.Compare(a.Object, b.Object))
	}
	slices.SortFunc(c.foreign, byRule)
	n := len(c.foreign)
	c.foreign = slices.CompactFunc(c.foreign, func(a, b smack.Rule) bool { return byRule(a, b) == 0 })
	c.rules -= n - len(c.foreign)
	return c, nil
}

// collectWanted makes the changes of wanted rules.
func (c *comparison) collectWanted(w *side) {
	n := 0
	for i, is := range w.is {
		if _, to := w.set.ObjectAt(i); smack.Access(is&0x7f) != to {
			n++
		}
	}
	c.kept = len(w.is) - n // also those of no access: the kernel hides them, or never had them
	if n > 0 {
		c.changes.list = make([]change, 0, n)
	}
	if n == 0 && c.rules == 0 {
		return
	}
	i := -1
	for rule := range w.set.All() {
		i++
		is := w.is[i]
		if smack.Access(is&0x7f) == rule.Access && is&rowForeign == 0 {
			continue
		}
		ch := Change{rule.Subject, rule.Object, smack.Access(is & 0x7f), rule.Access}
		foreign := is&rowForeign != 0
		switch {
		case ch.From == ch.To && foreign:
			c.same = append(c.same, rule)
		case ch.To == 0 && ch.From != 0 && c.harmless(ch):
			// It gives nothing that the kernel does not grant of itself, so there is nothing in the way.
			rule.Access = ch.From
			c.foreign = append(c.foreign, rule)
			if foreign {
				c.same = append(c.same, rule)
			}
			c.kept++
		case ch.From == ch.To:
		default:
			c.changes.list = append(c.changes.list, change{row: uint32(i), from: ch.From, to: ch.To})
			if foreign {
				c.conflicts = append(c.conflicts, ch)
			}
		}
	}
}

// harmless reports whether a rule that the kernel has is without effect, and not policyd's.
func (c *comparison) harmless(ch Change) bool {
	if is := (smack.Rule{Subject: ch.Subject, Object: ch.Object, Access: ch.From}); !is.Dead() {
		return false
	}
	loaded, _ := c.changes.owned.Lookup(ch.Subject, ch.Object)
	return loaded == 0
}

// collectOwned makes the changes of owned rules that are not wanted, and the drift.
func (c *comparison) collectOwned(o *side, apart bool) {
	before := len(c.changes.list)
	i := -1
	for rule := range o.set.All() {
		i++
		is := o.is[i]
		found := smack.Access(is & 0x7f)
		if found == rule.Access && is&rowGoes == 0 {
			continue
		}
		if found != rule.Access && (rule.Access != 0 || !c.harmless(Change{rule.Subject, rule.Object, found, 0})) {
			c.drift = append(c.drift, Change{rule.Subject, rule.Object, rule.Access, smack.Access(is & 0x7f)})
		}
		if apart && is&rowGoes != 0 {
			if c.changes.list == nil {
				c.changes.list = make([]change, 0, o.set.Len()-i)
			}
			c.changes.list = append(c.changes.list, change{row: uint32(i), from: smack.Access(is & 0x7f), owned: true})
		}
	}
	if before > 0 && len(c.changes.list) > before {
		c.changes.sort()
	}
}
