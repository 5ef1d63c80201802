package smack

import "iter"

// Layer is one layer of a policy.
type Layer struct {
	Name string
	// Handled is the letters that the layer decides on. All others it leaves
	// alone. Lock comes only with Write, which implies it in the kernel.
	Handled Access
}

// Policy is the compiled form: layers, and rows (subject, object) with one mask
// of letters per layer. It is made by [Builder.Build] or [Decode], never changed
// afterwards but for Name and Settings, and safe for use by many goroutines.
type Policy struct {
	Name     string
	Layers   []Layer
	Settings Settings

	t    table
	mask []Access // for each row, one for each layer; bit stated when the layer has a rule
}

// stated marks, in Policy.mask, that the layer has a rule for the pair. Without
// it the mask is 0.
const stated Access = 1 << 7

// Row is one row of a policy.
type Row struct {
	Subject, Object string
	masks           []Access
}

// In gives what the rules of a layer say of the pair, and whether there are any.
func (r Row) In(layer int) (Access, bool) {
	return r.masks[layer] &^ stated, r.masks[layer]&stated != 0
}

// Len gives the number of rows.
func (p *Policy) Len() int { return len(p.t.object) }

// Labels gives the number of labels the rules name.
func (p *Policy) Labels() int { return p.t.labels() }

// Label gives label number i of [Policy.Labels], in rising order of bytes.
func (p *Policy) Label(i int) string { return p.t.label(i) }

// HasLabel reports whether any rule names the label.
func (p *Policy) HasLabel(label string) bool { _, ok := p.t.find(label); return ok }

// Rows gives the rows by subject and then object, in rising order of bytes.
func (p *Policy) Rows() iter.Seq[Row] {
	n := len(p.Layers)
	return func(yield func(Row) bool) {
		for sub := range p.t.labels() {
			subject := p.t.label(sub)
			for i := int(p.t.first[sub]); i < int(p.t.first[sub+1]); i++ {
				if !yield(Row{subject, p.t.label(int(p.t.object[i])), p.mask[i*n : i*n+n]}) {
					return
				}
			}
		}
	}
}

// handled gives every letter that some layer handles.
func (p *Policy) handled() Access {
	var a Access
	for _, l := range p.Layers {
		a |= l.Handled
	}
	return a
}

// Effective gives the AND of the layers: the rules that go into the kernel. A
// layer passes the letters its rules give, what those imply, and those it does
// not handle. Letters that no layer handles are in no rule. Every row becomes a
// rule, also one that is left without access: an older or a foreign rule for the
// pair would allow what the layers refuse.
func (p *Policy) Effective() *Set {
	s := &Set{t: p.t, mask: make([]Access, p.Len())}
	all := p.handled()
	for i := range s.mask {
		s.mask[i] = p.and(i, all)
	}
	return s
}

// and gives the effective access of row i.
func (p *Policy) and(i int, all Access) Access {
	passed, written := all, all
	for n, l := range p.Layers {
		m := p.mask[i*len(p.Layers)+n] &^ stated
		passed &= l.passes(m)
		written &= m | ^l.Handled
	}
	// Lock stays as it was written: beside Write it changes nothing.
	if passed&Write != 0 {
		passed &= written | ^Lock
	}
	return passed
}

// passes gives what a layer lets through when its rules give m.
func (l Layer) passes(m Access) Access { return (m.closed() | ^l.Handled) & AllAccess }

// Validate checks what may have changed since the policy was built: the name, the
// layers and the settings. The error wraps [ErrInvalid], [ErrLabel] or [ErrLimit].
func (p *Policy) Validate() error {
	if err := p.checkHead(); err != nil {
		return err
	}
	return p.Settings.Validate()
}
