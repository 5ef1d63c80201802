package smack

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// Text adds the rules of a text, a rule a line:
//
//	SUBJECT OBJECT ACCESS         the pair's access is ACCESS
//	SUBJECT OBJECT ALLOW DENY     ALLOW is added to the pair's access, then DENY taken away
//
// Columns are parted by spaces and tabs. Blank lines and lines whose first
// column begins with '#' are left out. Lines end with a line feed, a carriage
// return before it is no part of them; the last may do without.
//
// The error is [Problems], each with file, line and column and wrapping
// [ErrLabel], [ErrAccess], [ErrSyntax], [ErrInvalid] or [ErrLimit]: all errors
// of the text, at most [MaxProblems]. After an error Build fails too. The text is
// not kept.
//
// Nothing is allocated for a rule beside its 6 bytes.
func (l *LayerBuilder) Text(file string, text []byte) error {
	return l.TextAt(Place{file, 1, 1}, text)
}

// TextAt is Text for a text that stands in a file: its first line at at.Line, and
// each of its lines from at.Column on, as a block of YAML does.
func (l *LayerBuilder) TextAt(at Place, text []byte) error {
	t := textParser{l: l, begin: at}
	if len(text) > MaxText {
		t.fail(0, 0, fmt.Sprintf("%d bytes, at most %d", len(text), MaxText), ErrLimit)
		return t.end()
	}
	n, err := l.b.file(at.File)
	if err != nil {
		return l.b.keep(err)
	}
	t.file = n
	if skip, name := byteOrderMark(text); skip > 0 {
		t.fail(1, 1, fmt.Sprintf("the text begins with a byte order mark (%s): the kernel would take it for a part of a label", name), ErrSyntax)
		text = text[skip:]
	}
	const shortest = len("A B r\n")
	rules := min(bytes.Count(text, newline), len(text)/shortest, MaxRules-l.b.rules-1) + 1
	l.rules = slices.Grow(l.rules, rules)
	t.parse(text)
	return t.end()
}

// Template adds the rules of a template: the text with the values of its
// variables put in, as [DialectTemplate] has them. Places are those in the template, but
// for columns behind a variable. The error is that of [LayerBuilder.Text].
func (l *LayerBuilder) Template(file string, text []byte, set map[string][]string) error {
	t := textParser{l: l, begin: Place{file, 1, 1}}
	n, err := l.b.file(file)
	if err != nil {
		return l.b.keep(err)
	}
	t.file = n
	rows, errs := expand(File{file, text}, set)
	t.errs = errs
	for _, r := range rows {
		if !t.row([]byte(r.text), r.number) {
			break
		}
	}
	return t.end()
}

var newline = []byte{'\n'}

// textParser parses one text.
type textParser struct {
	l       *LayerBuilder
	begin   Place // of the text's first byte
	file    uint16
	errs    Problems
	subject []byte // of the rule before, and its number: most texts go by subject
	id      uint16
}

func (t *textParser) fail(line, column int, text string, err error) {
	t.errs = append(t.errs, Problem{Place: t.at(line, column), Text: text, Err: err})
}

// at gives the place in the file of a place in the text; 0 stays 0.
func (t *textParser) at(line, column int) Place {
	p := Place{t.begin.File, line, column}
	if line > 0 {
		p.Line += t.begin.Line - 1
	}
	if column > 0 {
		p.Column += t.begin.Column - 1
	}
	return p
}

// end gives the errors of the text.
func (t *textParser) end() error {
	if len(t.errs) == 0 {
		return nil
	}
	return t.l.b.keep(t.errs)
}

func (t *textParser) parse(text []byte) {
	for number := 1; len(text) > 0; number++ {
		end := bytes.IndexByte(text, '\n')
		var row []byte
		if end < 0 {
			row, text = text, nil
		} else {
			row, text = text[:end], text[end+1:]
		}
		if !t.row(row, number) {
			return
		}
	}
}

// row reads a line without its line feed; false when the text cannot be read further.
func (t *textParser) row(row []byte, number int) bool {
	if len(t.errs) == MaxProblems {
		t.fail(number, 0, fmt.Sprintf("more than %d errors: the text is not read further", MaxProblems), ErrSyntax)
		return false
	}
	if n := len(row); n > 0 && row[n-1] == '\r' {
		row = row[:n-1]
	}
	if len(row) > MaxLine {
		t.fail(number, MaxLine+1, fmt.Sprintf("the line has %d bytes, at most %d", len(row), MaxLine), ErrLimit)
		return true
	}
	start := skipBlanks(row, 0)
	switch {
	case start == len(row):
		return true
	case row[start] == '#':
		t.comment(row, number, start)
		return true
	}
	return t.rule(row, number)
}

// rule adds the rule of a line; false when the text cannot be read further.
func (t *textParser) rule(text []byte, number int) bool {
	rule, f, at := scanRule(text)
	if f != faultNone {
		what, err := explain(text, rule, f, at)
		t.fail(number, at+1, what, err)
		return true
	}
	l := t.l
	named := rule.allow
	if rule.deny&threeColumns == 0 {
		named |= rule.deny
	}
	if named&^l.handled != 0 {
		p := l.unhandled(named)
		t.fail(number, rule.access+1, p.Text, p.Err)
		return true
	}
	if !bytes.Equal(rule.subject, t.subject) {
		id, ok := l.b.labels.id(rule.subject)
		if !ok {
			t.fail(number, rule.start+1, tooManyLabels, ErrLimit)
			return false
		}
		t.subject, t.id = rule.subject, id
	}
	object, ok := l.b.labels.id(rule.object)
	if !ok {
		t.fail(number, rule.start+1, tooManyLabels, ErrLimit)
		return false
	}
	if l.b.rules == MaxRules {
		t.fail(number, rule.start+1, tooManyRules, ErrLimit)
		return false
	}
	if len(text) >= systemdLine || text[0] == ';' {
		t.odd(text, number)
	}
	here := t.at(number, rule.start+1)
	l.place(t.file, uint32(here.Line), uint16(min(here.Column, math.MaxUint16)))
	l.add(packed{t.id, object, rule.allow, rule.deny})
	return true
}

// odd warns of a rule that systemd reads in another way.
func (t *textParser) odd(text []byte, number int) {
	at := t.at(number, 1)
	if len(text) >= systemdLine {
		t.l.warned.add(Problem{Place: at, Code: WarnLongLine, Text: fmt.Sprintf("the line has %d bytes: systemd stops loading at a line of %d", len(text), systemdLine)})
	}
	if text[0] == ';' {
		t.l.warned.add(Problem{Place: at, Code: WarnComment, Text: "the line is a rule, but a comment for systemd: ';' (0x3b) is its first byte"})
	}
}

// comment warns of a comment that others take for a rule.
func (t *textParser) comment(text []byte, number, start int) {
	rule, f, _ := scanRule(text)
	if f != faultNone {
		return
	}
	t.l.warned.add(Problem{
		Place: t.at(number, start+1), Code: WarnComment,
		Text: fmt.Sprintf("the line is a comment, but a rule of the subject %s for the kernel and libsmack; to name such a label, write the rule as a list of its parts", quote(string(rule.subject))),
	})
}

// byteOrderMark gives the length of the mark a text begins with.
func byteOrderMark(text []byte) (int, string) {
	switch {
	case bytes.HasPrefix(text, []byte("\xef\xbb\xbf")):
		return 3, "ef bb bf, UTF-8"
	case bytes.HasPrefix(text, []byte("\xff\xfe")):
		return 2, "ff fe, UTF-16"
	case bytes.HasPrefix(text, []byte("\xfe\xff")):
		return 2, "fe ff, UTF-16"
	}
	return 0, ""
}

// ParseRules compiles one text of rules alone, as [LayerBuilder.Text] reads it.
func ParseRules(file string, text []byte) (*Set, Problems, error) {
	b := NewBuilder("")
	if err := b.Layer("rules", AllAccess).Text(file, text); err != nil {
		return nil, nil, err
	}
	p, warnings, err := b.Build()
	if err != nil {
		return nil, nil, err
	}
	return p.Effective(), warnings, nil
}
