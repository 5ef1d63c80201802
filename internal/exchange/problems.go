package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// Codes of findings: those of policies where the mistake is the same, and two more.
const (
	codeSyntax          = "syntax"
	codeEncoding        = "encoding"
	codeTooLarge        = "too-large"
	codeAlias           = "alias"
	codeUnknownKind     = "unknown-kind"
	codeUnknownKey      = "unknown-key"
	codeRepeatedKey     = "repeated-key"
	codeWrongType       = "wrong-type"
	codeMissingKey      = "missing-key"
	codeBadValue        = "bad-value"
	codeBadName         = "bad-name"
	codeBadABI          = "bad-abi"
	codeUnknownRight    = "unknown-right"
	codeNotHandled      = "not-handled"
	codeHandlesNothing  = "handles-nothing"
	codeEmptyAllow      = "empty-allow"
	codeBadPath         = "bad-path"
	codeBadPort         = "bad-port"
	codeBadTemplate     = "bad-template"
	codeUnknownVariable = "unknown-variable"
	codeUnknownOption   = "unknown-option" // of a command line
	codeDiffers         = "differs"        // a remark: the tool would have done it otherwise
)

// maxFindings bounds how many errors are told; maxExcerpt is how many bytes of a line are shown.
const (
	maxFindings = 100
	maxExcerpt  = 160
)

// File is a text to read. Name stands in errors, and in comments of what is made of it.
type File struct {
	Name string
	Data []byte
}

// Problems is every error of the files. It is errs.ErrInvalid.
type Problems struct{ findings []*apiv1.Finding }

// Error gives every finding as policy.FormatFinding does.
func (p *Problems) Error() string {
	lines := make([]string, 0, len(p.findings))
	for _, f := range p.findings {
		lines = append(lines, policy.FormatFinding(f))
	}
	return strings.Join(lines, "\n")
}

// Findings are the errors, in the order they were found.
func (p *Problems) Findings() []*apiv1.Finding { return p.findings }

// Unwrap makes it errs.ErrInvalid.
func (p *Problems) Unwrap() error { return errs.ErrInvalid }

// spot is a place in a file: line and column from 1, columns in characters. A line of 0 is the file as a whole, unless a
// byte is given: its line and column are counted when they are told, and col is added.
type spot struct {
	file      *source
	line, col int
	byte      int // from 1; 0: line and col are given
}

// where gives the line and column.
func (s spot) where() (line, col int) {
	if s.byte == 0 {
		return s.line, s.col
	}
	offset := min(s.byte-1, len(s.file.Data))
	line, found := slices.BinarySearch(s.file.starts, offset)
	if !found {
		line--
	}
	return line + 1, utf8.RuneCount(s.file.Data[s.file.starts[line]:offset]) + 1 + s.col
}

// source is a file with the beginnings of its lines.
type source struct {
	File
	starts []int
}

func newSource(f File) *source {
	s := &source{File: f, starts: []int{0}}
	for i, c := range f.Data {
		if c == '\n' {
			s.starts = append(s.starts, i+1)
		}
	}
	return s
}

// at gives the place of a byte.
func (s *source) at(offset int) spot { return spot{file: s, byte: max(offset, 0) + 1} }

// cell gives a place by its line and by its column in bytes, both from 1.
func (s *source) cell(line, col int) spot {
	if line < 1 || line > len(s.starts) {
		return spot{file: s}
	}
	return s.at(s.starts[line-1] + max(col, 1) - 1)
}

// whole is the file without a place in it.
func (s *source) whole() spot { return spot{file: s} }

func (s *source) line(n int) string {
	if n < 1 || n > len(s.starts) {
		return ""
	}
	line := s.Data[s.starts[n-1]:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	text := strings.TrimRight(strings.ToValidUTF8(string(line), "\uFFFD"), "\r")
	if len(text) > maxExcerpt {
		cut := maxExcerpt
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "..."
	}
	return text
}

// report collects errors and remarks.
type report struct {
	errors, remarks []*apiv1.Finding
	more            int             // errors beyond maxFindings
	told            map[string]bool // remarks that were made already
}

func (r *report) errorf(at spot, code, format string, args ...any) {
	if len(r.errors) >= maxFindings {
		r.more++
		return
	}
	r.errors = append(r.errors, finding(at, apiv1.Finding_SEVERITY_ERROR, code, fmt.Sprintf(format, args...)))
}

// remarkf makes a remark, once each.
func (r *report) remarkf(at spot, format string, args ...any) {
	f := finding(at, apiv1.Finding_SEVERITY_WARNING, codeDiffers, fmt.Sprintf(format, args...))
	key := fmt.Sprint(f.GetFile(), f.GetLine(), f.GetColumn(), f.GetMessage())
	if r.told[key] {
		return
	}
	if r.told == nil {
		r.told = map[string]bool{}
	}
	r.told[key] = true
	r.remarks = append(r.remarks, f)
}

func finding(at spot, severity apiv1.Finding_Severity, code, text string) *apiv1.Finding {
	f := &apiv1.Finding{Severity: severity, Code: code, Message: text}
	if at.file != nil {
		f.File = at.file.Name
		if line, col := at.where(); line > 0 {
			f.Line, f.Column = uint32(line), uint32(col)
			f.Excerpt = at.file.line(line)
		}
	}
	return f
}

func (r *report) err() error {
	if len(r.errors) == 0 {
		return nil
	}
	all := r.errors
	if r.more > 0 {
		all = append(all, finding(spot{}, apiv1.Finding_SEVERITY_ERROR, codeTooLarge, fmt.Sprintf("and %d more errors", r.more)))
	}
	return &Problems{all}
}

// text checks that a file is UTF-8 without control characters.
func (r *report) text(s *source) bool {
	for i := 0; i < len(s.Data); {
		c, n := utf8.DecodeRune(s.Data[i:])
		switch {
		case c == utf8.RuneError && n == 1:
			r.errorf(s.at(i), codeEncoding, "byte %#02x is not UTF-8", s.Data[i])
			return false
		case c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f:
			r.errorf(s.at(i), codeEncoding, "control character %#02x", c)
			return false
		}
		i += n
	}
	return true
}

// merge takes the errors of a document that was made, which should have none.
func (r *report) merge(err error) error {
	if found, ok := errors.AsType[*policy.Errors](err); ok {
		for _, f := range found.Findings() {
			f.Message = "the policy that would come out is not valid: " + f.GetMessage()
			f.File, f.Line, f.Column, f.Excerpt = "", 0, 0, ""
			r.errors = append(r.errors, f)
		}
		return r.err()
	}
	return err
}

// clip shortens a value for a message.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
