package smack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Place is a place in a text. Lines and columns count from 1, columns in bytes.
type Place struct {
	File         string
	Line, Column int // 0: not known
}

// String gives file:line:column, without what is not known.
func (p Place) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is an error or a warning with the place it is about.
type Problem struct {
	Place Place
	Code  Code // what kind of warning; "" for an error
	Text  string
	Other Place // a second place the text speaks of, with File "" when there is none
	Err   error // the sentinel of an error; nil for a warning
}

// Code names a kind of warning. The names are an interface.
type Code string

// The kinds of warnings.
const (
	WarnDuplicate  Code = "duplicate"      // the pair has a rule already
	WarnBoth       Code = "allow-and-deny" // a letter is allowed and denied by one rule
	WarnComment    Code = "comment"        // a comment here is a rule elsewhere, or the reverse
	WarnLongLine   Code = "long-line"      // systemd stops at the line
	WarnDead       Code = "dead"           // the rule has no effect
	WarnPartlyDead Code = "partly-dead"    // some letters of the rule have no effect
	WarnPrefix     Code = "prefix"         // a prefix of addresses is written in another way
	WarnDialect    Code = "dialect"        // another reader would have done something else
)

func (p Problem) Error() string {
	if at := p.Place.String(); at != "" {
		return at + ": " + p.Text
	}
	return p.Text
}

// Unwrap gives the sentinel of an error.
func (p Problem) Unwrap() error { return p.Err }

// Problems are all errors found in one go.
type Problems []Problem

// Error gives a line for each.
func (ps Problems) Error() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
	}
	return b.String()
}

// Unwrap gives them one by one.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// warnings keeps warnings, at most [MaxProblems] of a kind, and counts the rest.
type warnings struct {
	list   Problems
	counts map[Code]int
}

func (w *warnings) add(p Problem) {
	if w.counts == nil {
		w.counts = map[Code]int{}
	}
	w.counts[p.Code]++
	if w.counts[p.Code] <= MaxProblems {
		w.list = append(w.list, p)
	}
}

// all gives the warnings, and for each kind with more of them how many.
func (w *warnings) all() Problems {
	list := w.list[:len(w.list):len(w.list)]
	for _, code := range slices.Sorted(maps.Keys(w.counts)) {
		if more := w.counts[code] - MaxProblems; more > 0 {
			list = append(list, Problem{Code: code, Text: fmt.Sprintf("%d more warnings of the kind %s", more, code)})
		}
	}
	return list
}
