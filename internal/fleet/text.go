package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"policyd.dev/policyd/internal/errs"
)

// A signed text is lines of a word and its value. The first line is the type of
// the payload, so that a signature under one kind of text is none under another.
// One meaning has one text: what is read is written again and compared.

// fields reads such lines in the order in which they must stand.
type fields struct {
	rest string
	what string
	err  error
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s: %s", errs.ErrInvalid, f.what, fmt.Sprintf(format, args...))
	}
}

// value takes the next line, which must begin with word.
func (f *fields) value(word string) string {
	if f.err != nil {
		return ""
	}
	line, rest, ok := strings.Cut(f.rest, "\n")
	v, is := strings.CutPrefix(line, word+" ")
	if !ok || !is {
		f.fail("want a line %q, have %q", word+" ...", clip(line))
		return ""
	}
	f.rest = rest
	return v
}

// more tells whether the next line begins with word.
func (f *fields) more(word string) bool {
	return f.err == nil && strings.HasPrefix(f.rest, word+" ")
}

func (f *fields) number(word string) uint64 {
	v := f.value(word)
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		f.fail("%s %q: want a number", word, clip(v))
	}
	return n
}

func (f *fields) time(word string) time.Time {
	v := f.value(word)
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		f.fail("%s %q: want a time as 2026-01-02T15:04:05Z", word, clip(v))
	}
	return t.UTC()
}

func (f *fields) duration(word string) time.Duration {
	v := f.value(word)
	d, err := time.ParseDuration(v)
	if err != nil {
		f.fail("%s %q: want a duration as 10m0s", word, clip(v))
	}
	return d
}

func (f *fields) quoted(word string) string {
	v := f.value(word)
	s, err := strconv.Unquote(v)
	if err != nil {
		f.fail("%s: want a text in quotes", word)
	}
	return s
}

func (f *fields) optional(word string) string {
	if v := f.value(word); v != none {
		return v
	}
	return ""
}

// none stands for a value that is not there.
const none = "-"

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// typeLine tells whether a text is of a type, by its first line.
func typeLine(text, payload string) bool { return strings.HasPrefix(text, payload+"\n") }
