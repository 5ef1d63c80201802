package smackfs

import (
	"slices"

	"policyd.dev/policyd/smack"
)

// Memory is what is known of the kernel's rules from the last load, so that the next need not read them: they are what
// that load left for as long as no other process has written the files by which they change. The kernel itself makes
// and changes no rules. Writes are seen as they are made; the first rules of a write that then fails are seen once its
// writer closes the file.
//
// It serves one loader, as [Load] does, and is not safe for concurrent use. A nil memory knows nothing.
type Memory struct {
	watch   watch
	known   bool
	wanted  *smack.Set // of the last load; what has no access is not in the kernel
	foreign []smack.Rule
}

// NewMemory begins to watch a smackfs. One that cannot be watched (fanotify_init(2) wants CAP_SYS_ADMIN) gives an error,
// and a nil memory, which is one that never knows anything.
func NewMemory(fs FS) (*Memory, error) {
	w, err := watchOf(fs)
	if err != nil {
		return nil, err
	}
	return &Memory{watch: w}, nil
}

// Close ends the watch. The memory knows nothing from then on.
func (m *Memory) Close() {
	if m == nil {
		return
	}
	m.Forget()
	m.watch.close()
}

// Forget makes the next load read the kernel's rules: this process changed some otherwise than by a load, or may have.
func (m *Memory) Forget() {
	if m != nil {
		m.known, m.wanted, m.foreign = false, nil, nil
	}
}

// holds reports whether the rules are known. In any case what others do is looked for from here on.
func (m *Memory) holds() bool {
	if !m.watch.quiet() {
		m.Forget()
	}
	return m.known
}

// learn takes what a load has left, unless others were at work since holds was asked.
func (m *Memory) learn(c *comparison) {
	if m == nil {
		return
	}
	if !m.watch.quiet() {
		m.Forget()
		return
	}
	m.known, m.wanted, m.foreign = true, c.w.set, c.foreign
}

// rules gives the kernel's rules.
func (m *Memory) rules() source { return &memoryReader{m: m, label: -1} }

// compare is compare of the memory's rules where only what pairs allow has changed, and no pair of somebody else's is wanted or owned: the
// usual change, told without a look at labels. nil where that is not so.
func (m *Memory) compare(want, owned *smack.Set) *comparison {
	if !want.SamePairs(m.wanted) || !owned.SamePairs(m.wanted) {
		return nil
	}
	for _, f := range m.foreign {
		if _, ok := want.Lookup(f.Subject, f.Object); ok {
			return nil
		}
	}
	c := &comparison{changes: Changes{want: want, owned: owned}, w: newSide(want), foreign: slices.Clip(m.foreign), rules: len(m.foreign)}
	c.o = c.w
	if owned != want {
		c.o = newSide(owned)
	}
	for i := range c.w.is {
		_, access := m.wanted.ObjectAt(i)
		if access == 0 {
			continue
		}
		c.rules++
		c.w.is[i] = uint16(access) | rowSeen
		if _, loaded := owned.ObjectAt(i); loaded == 0 {
			return nil // a rule of somebody else that is as wanted
		}
		c.o.is[i] = c.w.is[i]
	}
	c.collectWanted(c.w)
	c.collectOwned(c.o, false)
	return c
}

// memoryReader goes through a memory as the kernel shows rules: by subject, the last one first.
type memoryReader struct {
	kernelRule

	m       *Memory
	label   int // of the subject at hand, a label of wanted
	name    string
	lo, at  int // its rows that are left: lo to at-1
	foreign int // how many of these were given
}

func (r *memoryReader) rule() *kernelRule { return &r.kernelRule }

// nextIs reports false also before the first rule of a subject.
func (r *memoryReader) nextIs(subject, object string) bool {
	if r.at <= r.lo {
		return false
	}
	o, access := r.m.wanted.ObjectAt(r.at - 1)
	if access == 0 || o != object || r.name != subject {
		return false
	}
	r.at--
	r.give(o, access)
	return true
}

func (r *memoryReader) next() (bool, error) {
	for {
		for r.at > r.lo {
			r.at--
			if o, access := r.m.wanted.ObjectAt(r.at); access != 0 {
				r.give(o, access)
				return true, nil
			}
		}
		if r.label+1 == r.m.wanted.Labels() {
			break
		}
		r.label++
		r.name = r.m.wanted.Label(r.label)
		r.subject = append(r.subject[:0], r.name...)
		r.lo, r.at = r.m.wanted.SubjectRows(r.name)
	}
	if r.foreign == len(r.m.foreign) {
		return false, nil
	}
	f := r.m.foreign[r.foreign]
	r.foreign++
	r.subject = append(r.subject[:0], f.Subject...)
	r.give(f.Object, f.Access)
	return true, nil
}

func (r *memoryReader) give(object string, access smack.Access) {
	r.object, r.access = append(r.object[:0], object...), access
}
