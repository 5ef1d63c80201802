package policytest

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Paint colours a word of the text output by its meaning; it may leave it as
// it is.
type Paint func(s string, status Status) string

// WriteText writes a line for every test, what failed, and a summary. With
// verbose every expectation gets a line; otherwise the skipped ones are only
// counted, by their reasons.
func WriteText(w io.Writer, r *Report, verbose bool, paint Paint) error {
	var b strings.Builder
	for _, t := range r.Tests {
		writeTest(&b, t, verbose, paint)
	}
	for i := range r.Coverage {
		writeCoverage(&b, &r.Coverage[i])
	}
	s := &r.Summary
	parts := []string{fmt.Sprintf("%d passed", s.Passed)}
	if s.Enforced > 0 {
		parts = append(parts, fmt.Sprintf("%d of them by the kernel", s.Enforced))
	}
	for _, n := range []struct {
		n    int
		text string
	}{{s.Failed, "failed"}, {s.Skipped, "skipped"}, {s.Broken, "not run"}} {
		if n.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.n, n.text))
		}
	}
	status, word := Passed, "ok"
	if !r.Good() {
		status, word = Failed, "FAIL"
	}
	fmt.Fprintf(&b, "%s: %s: %s in %.2fs\n", paint(word, status), plural(s.Tests, "test"), strings.Join(parts, ", "), s.Seconds)
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func writeTest(b *strings.Builder, t *Result, verbose bool, paint Paint) {
	head := func(word string, s Status, text string) {
		fmt.Fprintf(b, "%s %s (%s:%d): %s\n", paint(fmt.Sprintf("%-4s", word), s), t.Name, clean(t.File), t.Line, text)
	}
	n := len(t.Expectations)
	text := plural(n, "expectation")
	if skipped := t.Count(Skipped); skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	switch {
	case t.Error != "":
		head("FAIL", Failed, "not run: "+indented(t.Error))
		return
	case t.Failed():
		head("FAIL", Failed, fmt.Sprintf("%d failed of %s", t.Count(Failed), text))
	case t.Count(Skipped) == n:
		head("skip", Skipped, text)
	default:
		head("ok", Passed, text)
	}
	if !verbose {
		writeSkips(b, t, paint)
	}
	for i := range t.Expectations {
		x := &t.Expectations[i]
		if !verbose && x.Status != Failed {
			continue
		}
		by := ""
		if x.byKernel() {
			by = " (kernel: " + x.Kernel.Under + ")"
		}
		fmt.Fprintf(b, "  %s %s:%d: %s%s\n", paint(string(x.Status), x.Status), clean(t.File), x.Line, clean(x.Op), by)
		if x.Status == Passed {
			continue
		}
		if x.Status == Failed {
			fmt.Fprintf(b, "         want %s\n", x.Want.String())
		}
		fmt.Fprintf(b, "         %s\n", indented(x.Text))
		if x.Status == Failed && x.Reason != "" {
			fmt.Fprintf(b, "         because %s\n", x.Reason)
		}
	}
}

// mostSkips is how many operations are named for one reason.
const mostSkips = 8

// writeSkips tells every reason once, with the operations it holds for.
func writeSkips(b *strings.Builder, t *Result, paint Paint) {
	var reasons []string
	ops := map[string][]string{}
	for i := range t.Expectations {
		if x := &t.Expectations[i]; x.Status == Skipped {
			if ops[x.Text] == nil {
				reasons = append(reasons, x.Text)
			}
			ops[x.Text] = append(ops[x.Text], fmt.Sprintf("%s (line %d)", x.Op, x.Line))
		}
	}
	for _, reason := range reasons {
		if n := len(ops[reason]); n > mostSkips {
			ops[reason] = append(ops[reason][:mostSkips], fmt.Sprintf("and %d more", n-mostSkips))
		}
		fmt.Fprintf(b, "  %s %s\n         %s\n", paint("skipped", Skipped), clean(strings.Join(ops[reason], "; ")), indented(reason))
	}
}

// String gives "deny EACCES by layer host".
func (w *Want) String() string {
	text := w.Verdict
	if w.Errno != "" {
		text += " " + w.Errno
	}
	if len(w.Layers) > 0 {
		text += " by layer " + strings.Join(w.Layers, ", ")
	}
	return text
}

func writeCoverage(b *strings.Builder, c *PolicyCoverage) {
	if c.Total == 0 {
		return
	}
	fmt.Fprintf(b, "coverage of %s: %d of %s, %.0f%%\n", c.Policy, c.Touched, plural(c.Total, "rule"), c.Percent)
	for _, r := range c.Untouched() {
		fmt.Fprintf(b, "  untouched %s %s\n", clean(r.Place()), r.Field)
	}
}

// indented is a text of many lines beneath a test.
func indented(s string) string { return strings.ReplaceAll(clean(s), "\n", "\n           ") }

// clean keeps a name from steering a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}
