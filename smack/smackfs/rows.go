package smackfs

import (
	"bytes"
	"fmt"
	"slices"

	"policyd.dev/policyd/smack"
)

// rows holds a Set so that the kernel's rules, which come subject by subject, find theirs in a step or two each.
type rows struct {
	bySubject map[string][2]int
	subject   []string
	object    []string
	access    []smack.Access
}

func newRows(s *smack.Set) *rows {
	n := s.Len()
	r := &rows{
		bySubject: make(map[string][2]int, s.Labels()),
		subject:   make([]string, 0, n), object: make([]string, 0, n), access: make([]smack.Access, 0, n),
	}
	first := 0
	for rule := range s.All() {
		i := len(r.subject)
		if i > first && r.subject[first] != rule.Subject {
			r.bySubject[r.subject[first]] = [2]int{first, i}
			first = i
		}
		r.subject = append(r.subject, rule.Subject)
		r.object = append(r.object, rule.Object)
		r.access = append(r.access, rule.Access)
	}
	if n > 0 {
		r.bySubject[r.subject[first]] = [2]int{first, n}
	}
	return r
}

// run is the rows of one subject, with the place where the next object is looked for first: the kernel shows the newest
// first, so rules loaded in order come in the reverse order.
type run struct {
	r      *rows
	lo, hi int
	next   int
}

func (r *rows) run(subject []byte) run {
	span := r.bySubject[string(subject)]
	return run{r: r, lo: span[0], hi: span[1], next: span[1] - 1}
}

// find gives the row of an object, or -1.
func (s *run) find(object []byte) int {
	if s.next >= s.lo && s.r.object[s.next] == string(object) {
		s.next--
		return s.next + 1
	}
	i, ok := slices.BinarySearchFunc(s.r.object[s.lo:s.hi], object, func(a string, b []byte) int {
		switch {
		case a < string(b):
			return -1
		case a > string(b):
			return 1
		}
		return 0
	})
	if !ok {
		return -1
	}
	i += s.lo
	s.next = i - 1
	return i
}

// lineParser takes the text of load2 apart.
type lineParser struct {
	text []byte
	line int

	subject, object []byte
	access          smack.Access
}

// next gives whether there was a further rule. The kernel shows what it keeps in one form, and every other form is an
// error: this is not a smackfs, or not one this package knows.
func (p *lineParser) next() (bool, error) {
	if len(p.text) == 0 {
		return false, nil
	}
	p.line++
	line := p.text
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line, p.text = line[:i], line[i+1:]
	} else {
		p.text = nil
	}
	bad := func() (bool, error) {
		return false, fmt.Errorf("line %d of load2 is no rule: %.120q", p.line, line)
	}
	i := bytes.IndexByte(line, ' ')
	j := bytes.LastIndexByte(line, ' ')
	if i <= 0 || j <= i+1 || j == len(line)-1 {
		return bad()
	}
	p.subject, p.object = line[:i], line[i+1:j]
	if bytes.IndexByte(p.object, ' ') >= 0 {
		return bad()
	}
	p.access = 0
	for _, c := range line[j+1:] {
		k := bytes.IndexByte([]byte(modelLetters), c)
		if k < 0 {
			return bad()
		}
		p.access |= 1 << k
	}
	return true, nil
}

// ReadRules reads the rules that the kernel has, all of them of non-zero access: it hides the rest. While others make
// labels the kernel repeats rules; each pair is in the set once.
func ReadRules(fs FS) (*smack.Set, error) {
	text, err := readFile(fs, fileLoad2)
	if err != nil {
		return nil, explain(fs, err)
	}
	return parseRules(text)
}

func parseRules(text []byte) (*smack.Set, error) {
	b := smack.NewSetBuilder()
	p := lineParser{text: text}
	for {
		ok, err := p.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return b.Build()
		}
		b.Set(string(p.subject), string(p.object), p.access)
	}
}
