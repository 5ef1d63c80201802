package smack

import (
	"fmt"
	"math"
	"sort"
)

// Builder makes a [Policy] of layers of rules. Rules are kept packed in the
// order they came, 6 bytes each; labels are interned.
type Builder struct {
	name   string
	labels interner
	layers []*LayerBuilder
	files  []string
	rules  int
	err    error // the first that any rule met
}

// LayerBuilder takes the rules of one layer, in the order in which they merge.
type LayerBuilder struct {
	b       *Builder
	name    string
	handled Access
	rules   []packed
	runs    []run
	warned  warnings
}

// packed is one rule: afterwards the pair's access is (access|allow)&^deny
// (smk_set_access in the kernel's smackfs.c). A rule of 3 columns denies all that
// it does not allow, and has the bit threeColumns.
type packed struct {
	subject, object uint16
	allow, deny     Access
}

// threeColumns marks, in packed.deny, a rule that sets.
const threeColumns Access = 1 << 7

// run gives the places of rules that follow each other line by line: rule
// number i of the layer, from first on, stands in line + (i - first).
type run struct {
	first  uint32
	line   uint32 // 0: the rule has no place
	file   uint16
	column uint16
}

// NewBuilder begins a policy.
func NewBuilder(name string) *Builder { return &Builder{name: name} }

// Layer begins a layer, above those begun before. It handles the letters
// given: only those may its rules name, all others it leaves alone. What is
// wrong with the name or the letters, [Builder.Build] says.
func (b *Builder) Layer(name string, handled Access) *LayerBuilder {
	l := &LayerBuilder{b: b, name: name, handled: handled}
	b.layers = append(b.layers, l)
	return l
}

// Set adds a rule of 3 columns: the pair's access is a, whatever it was.
func (l *LayerBuilder) Set(at Place, subject, object string, a Access) error {
	return l.single(at, subject, object, a, AllAccess&^a|threeColumns)
}

// Modify adds a rule of 4 columns: allow is added to the pair's access, then deny taken
// away from it. A pair without a rule begins with no access.
func (l *LayerBuilder) Modify(at Place, subject, object string, allow, deny Access) error {
	return l.single(at, subject, object, allow, deny)
}

// keep remembers the first error: a policy without the rule that was refused
// must not be built.
func (b *Builder) keep(err error) error {
	if b.err == nil {
		b.err = err
	}
	return err
}

// single adds a rule that does not come from text, so its labels are checked
// here. Errors are a [Problem] with the place given.
func (l *LayerBuilder) single(at Place, subject, object string, allow, deny Access) error {
	err := l.addSingle(at, subject, object, allow, deny)
	if err != nil {
		return l.b.keep(err)
	}
	return nil
}

func (l *LayerBuilder) addSingle(at Place, subject, object string, allow, deny Access) error {
	for _, label := range [...]string{subject, object} {
		if err := CheckLabel(label); err != nil {
			return Problem{Place: at, Text: err.Error(), Err: ErrLabel}
		}
	}
	named := allow
	if deny&threeColumns == 0 {
		named |= deny
	}
	if p := l.unhandled(named); p.Err != nil {
		p.Place = at
		return p
	}
	file, err := l.b.file(at.File)
	if err != nil {
		return err
	}
	var buf [MaxLabel]byte
	sub, ok1 := l.b.labels.id(buf[:copy(buf[:], subject)])
	obj, ok2 := l.b.labels.id(buf[:copy(buf[:], object)])
	if !ok1 || !ok2 {
		return Problem{Place: at, Text: tooManyLabels, Err: ErrLimit}
	}
	if l.b.rules == MaxRules {
		return Problem{Place: at, Text: tooManyRules, Err: ErrLimit}
	}
	l.place(file, uint32(max(at.Line, 0)), uint16(min(max(at.Column, 0), math.MaxUint16)))
	l.add(packed{sub, obj, allow, deny})
	return nil
}

var (
	tooManyLabels = fmt.Sprintf("more than %d labels in one policy", MaxLabels)
	tooManyRules  = fmt.Sprintf("more than %d rules in one policy", MaxRules)
)

// unhandled is the error for letters that the layer does not handle.
func (l *LayerBuilder) unhandled(a Access) Problem {
	if a&^l.handled == 0 {
		return Problem{}
	}
	return Problem{
		Text: fmt.Sprintf("layer %q does not handle %s, so its rules cannot name it", l.name, a&^l.handled),
		Err:  ErrInvalid,
	}
}

func (l *LayerBuilder) add(r packed) {
	l.rules = append(l.rules, r)
	l.b.rules++
}

// place records where the next rule stands.
func (l *LayerBuilder) place(file uint16, line uint32, column uint16) {
	n := uint32(len(l.rules))
	if len(l.runs) > 0 {
		last := l.runs[len(l.runs)-1]
		next := last.line + n - last.first
		if last.line == 0 {
			next = 0
		}
		if last.file == file && last.column == column && next == line {
			return
		}
	}
	l.runs = append(l.runs, run{first: n, line: line, file: file, column: column})
}

// at gives the place of rule number i.
func (l *LayerBuilder) at(i int) Place {
	n := sort.Search(len(l.runs), func(n int) bool { return int(l.runs[n].first) > i }) - 1
	r := l.runs[n]
	p := Place{File: l.b.files[r.file], Column: int(r.column)}
	if r.line > 0 {
		p.Line = int(r.line) + i - int(r.first)
	}
	return p
}

// file numbers a file's name.
func (b *Builder) file(name string) (uint16, error) {
	for i := len(b.files) - 1; i >= 0; i-- {
		if b.files[i] == name {
			return uint16(i), nil
		}
	}
	if len(b.files) > maxFiles {
		return 0, Problem{Place: Place{File: name}, Text: fmt.Sprintf("more than %d files in one policy", maxFiles), Err: ErrLimit}
	}
	b.files = append(b.files, name)
	return uint16(len(b.files) - 1), nil
}

// FirstUse gives the place of the first rule that names the label.
func (b *Builder) FirstUse(label string) (Place, bool) {
	for _, l := range b.layers {
		for i, r := range l.rules {
			if string(b.labels.label(int(r.subject))) == label || string(b.labels.label(int(r.object))) == label {
				return l.at(i), true
			}
		}
	}
	return Place{}, false
}
