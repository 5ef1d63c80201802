package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// maxFindings bounds how many errors one file reports; the rest is counted.
const maxFindings = 100

// maxExcerpt is how much of a line an excerpt shows, in characters.
const maxExcerpt = 160

// Errors is every error found in a file, a document or a compilation, in the
// order of the text. It is errs.ErrInvalid, and errs.ErrTooLarge too where a
// limit of size was passed.
type Errors struct {
	findings []*apiv1.Finding
	more     int // errors beyond maxFindings
}

// Error gives every finding on lines of its own: place, message, field, then
// the line of the text with a caret below the column.
func (e *Errors) Error() string {
	var b strings.Builder
	for i, f := range e.findings {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(FormatFinding(f))
	}
	if e.more > 0 {
		fmt.Fprintf(&b, "\nand %d more errors", e.more)
	}
	return b.String()
}

// Findings returns the errors as messages; severity is always an error.
func (e *Errors) Findings() []*apiv1.Finding { return e.findings }

// Unwrap makes the errors sentinels of internal/errs for errors.Is.
func (e *Errors) Unwrap() []error {
	all := []error{errs.ErrInvalid}
	for _, f := range e.findings {
		if f.GetCode() == codeTooLarge {
			return append(all, errs.ErrTooLarge)
		}
	}
	return all
}

// add appends a finding unless there are too many already.
func (e *Errors) add(f *apiv1.Finding) {
	if e.full() {
		e.more++
		return
	}
	f.Severity = apiv1.Finding_SEVERITY_ERROR
	e.findings = append(e.findings, f)
}

// full tells that further errors are only counted.
func (e *Errors) full() bool { return len(e.findings) >= maxFindings }

// err gives nil when nothing was found, and else the errors in the order of the text.
func (e *Errors) err() error {
	if len(e.findings) == 0 {
		return nil
	}
	sortFindings(e.findings)
	return e
}

// sortFindings orders by place; findings without one keep their order.
func sortFindings(fs []*apiv1.Finding) {
	slices.SortStableFunc(fs, func(a, b *apiv1.Finding) int {
		if a.GetLine() != b.GetLine() {
			return int(a.GetLine()) - int(b.GetLine())
		}
		return int(a.GetColumn()) - int(b.GetColumn())
	})
}

// FormatFinding gives one finding as people read it, without a final newline:
//
//	web.yaml:7:14: error: unknown right "raed_file"; did you mean "read_file"? [unknown-right] at spec.layers[0].paths[0].allow[0]
//	    7 |   - {allow: [raed_file], at: [/usr]}
//	      |              ^
func FormatFinding(f *apiv1.Finding) string {
	var b strings.Builder
	if f.GetFile() != "" {
		b.WriteString(printable(f.GetFile()))
		b.WriteByte(':')
	}
	if f.GetLine() > 0 {
		fmt.Fprintf(&b, "%d:", f.GetLine())
		if f.GetColumn() > 0 {
			fmt.Fprintf(&b, "%d:", f.GetColumn())
		}
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if f.GetSeverity() == apiv1.Finding_SEVERITY_WARNING {
		b.WriteString("warning: ")
	} else {
		b.WriteString("error: ")
	}
	b.WriteString(printable(f.GetMessage()))
	fmt.Fprintf(&b, " [%s]", f.GetCode())
	if f.GetField() != "" {
		fmt.Fprintf(&b, " at %s", printable(f.GetField()))
	}
	if f.GetExcerpt() == "" || f.GetLine() == 0 {
		return b.String()
	}
	number := fmt.Sprintf("%5d", f.GetLine())
	excerpt := printable(f.GetExcerpt())
	fmt.Fprintf(&b, "\n%s | %s", number, excerpt)
	if col := int(f.GetColumn()); col > 0 && col <= utf8.RuneCountInString(excerpt)+1 {
		fmt.Fprintf(&b, "\n%s | ", strings.Repeat(" ", len(number)))
		for i, r := range []rune(excerpt) {
			if i == col-1 {
				break
			}
			if r == '\t' {
				b.WriteByte('\t')
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteByte('^')
	}
	return b.String()
}

// excerptOf cuts a line to what an excerpt shows.
func excerptOf(line string) string {
	line = strings.TrimRight(line, "\r\n")
	if len(line) <= maxExcerpt {
		return line
	}
	n := 0
	for i := range line {
		if n == maxExcerpt {
			return line[:i] + "..."
		}
		n++
	}
	return line
}

// printable keeps a text from a document from steering a terminal: what cannot
// be printed becomes "\uFFFD", tabs stay.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
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
