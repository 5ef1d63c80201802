package policy

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
)

// smackTexts finds the places of a document that package smack names as lines of
// texts: each text goes by its field, and a list counts as a line a rule.
type smackTexts struct {
	origin
	places map[string]*smackText
}

type smackText struct {
	at   *place
	text string
	list bool
	node *yaml.Node // of the text in the document; nil when it came as a message
}

// add names a text. The chain of at must live as long as the texts.
func (t *smackTexts) add(at place, text string, list bool) string {
	name := at.String()
	s := &smackText{at: at.keep(), text: text, list: list}
	if t.seg != nil {
		s.node = locate(t.root, &at)
	}
	t.places[name] = s
	return name
}

// keep copies a chain of places out of the stack.
func (p *place) keep() *place {
	if p == nil {
		return nil
	}
	return &place{parent: p.parent.keep(), name: strings.Clone(p.name), index: p.index}
}

// finding makes one for a place of a text.
func (t *smackTexts) finding(code string, at smack.Place, message string) *apiv1.Finding {
	s := t.places[at.File]
	if s == nil { // about many rules
		spec := (*place)(nil).key("spec")
		layers := spec.key("layers")
		return t.origin.finding(code, &layers, message)
	}
	if s.list {
		here := s.at.at(at.Line - 1)
		return t.origin.finding(code, &here, message)
	}
	if line, column, ok := t.line(s, at); ok {
		return t.seg.finding(code, line, column, at.File, message)
	}
	if at.Line > 0 && message != "" {
		message = fmt.Sprintf("line %d of the text: %s", at.Line, message)
	}
	return t.origin.finding(code, s.at, message)
}

// line finds a line of a text in the document, where the text stands as it is: in
// a literal block ("|"). Columns of findings count characters.
func (t *smackTexts) line(s *smackText, at smack.Place) (line, column int, ok bool) {
	if s.node == nil || s.node.Style&yaml.LiteralStyle == 0 || at.Line < 1 {
		return 0, 0, false
	}
	line = s.node.Line + at.Line
	have := strings.TrimRight(t.seg.line(line), "\r\n")
	want := s.line(at.Line)
	if !strings.HasSuffix(have, want) {
		return 0, 0, false
	}
	indent := len(have) - len(want)
	return line, characters(have, indent+max(at.Column, 1)-1) + 1, true
}

// line is a line of the text, from 1.
func (s *smackText) line(n int) string {
	rest := s.text
	for ; n > 1; n-- {
		i := strings.IndexByte(rest, '\n')
		if i < 0 {
			return ""
		}
		rest = rest[i+1:]
	}
	head, _, _ := strings.Cut(rest, "\n")
	return head
}

// warning makes a finding of a warning of package smack.
func (t *smackTexts) warning(p smack.Problem) *apiv1.Finding {
	text := p.Text
	if p.Other.File != "" {
		text = strings.Replace(text, p.Other.String(), t.where(p.Other), 1)
	}
	f := t.finding(string(p.Code), p.Place, text)
	f.Severity = apiv1.Finding_SEVERITY_WARNING
	return f
}

// where names a place in a message.
func (t *smackTexts) where(at smack.Place) string {
	f := t.finding("", at, "")
	switch {
	case f.GetLine() == 0 && at.Line > 0 && !t.places[at.File].list:
		return fmt.Sprintf("line %d of %s", at.Line, f.GetField())
	case f.GetLine() == 0:
		return f.GetField()
	case f.GetFile() == "":
		return fmt.Sprintf("line %d", f.GetLine())
	}
	return fmt.Sprintf("%s:%d", f.GetFile(), f.GetLine())
}
