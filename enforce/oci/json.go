package oci

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// span is a value in a text, with its key when it is a member of an object.
type span struct {
	key        string
	from       int // where the member begins: its key, or the value of an element
	start, end int // the value's bytes
}

// children gives the members of an object or the elements of an array ('{' or
// '[') in order. The whole text is valid JSON, which leaves little to be looked
// at: where strings end and how deep brackets are.
func children(b []byte, at span, open byte) ([]span, error) {
	i := skipSpace(b, at.start)
	if i >= at.end || b[i] != open {
		return nil, fmt.Errorf("%w: %.40q where %q is wanted", errs.ErrInvalid, b[at.start:at.end], string(open))
	}
	var all []span
	for i = skipSpace(b, i+1); b[i] != '}' && b[i] != ']'; {
		s := span{from: i}
		if open == '{' {
			end := skipValue(b, i)
			key, err := text(b[i:end])
			if err != nil {
				return nil, err
			}
			s.key = key
			i = skipSpace(b, skipSpace(b, end)+1) // behind the colon
		}
		s.start, s.end = i, skipValue(b, i)
		all = append(all, s)
		if i = skipSpace(b, s.end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return all, nil
}

// text gives a string of JSON. Most need no more than their quotes taken away.
func text(quoted []byte) (s string, err error) {
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			err = json.Unmarshal(quoted, &s)
			return s, err
		}
	}
	return string(inner), nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipValue gives the end of the value that begins at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
	default: // a number or a word
		for i < len(b) && !strings.ContainsRune(" \t\r\n,]}", rune(b[i])) {
			i++
		}
		return i
	}
	for depth := 0; ; i++ {
		switch b[i] {
		case '"':
			i = skipString(b, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// member finds a member of an object; false when there is none or it is null
// and its span is then that of null, if it is there. Runtimes differ in which of
// two members of one name they take, in whether case matters, and in whether a
// name ends at a NUL (crun's do), so all three are refused.
func member(b []byte, at span, name string) (span, bool, error) {
	all, err := children(b, at, '{')
	if err != nil {
		return span{}, false, err
	}
	return pick(b, all, name)
}

// pick is member for an object whose members are known.
func pick(b []byte, all []span, name string) (span, bool, error) {
	var found span
	for _, s := range all {
		if key, _, _ := strings.Cut(s.key, "\x00"); !strings.EqualFold(key, name) {
			continue
		}
		if s.key != name || found.end != 0 {
			return span{}, false, fmt.Errorf("%w: %q is there twice or in other letters (%q)", errs.ErrInvalid, name, s.key)
		}
		found = s
	}
	return found, found.end != 0 && string(b[found.start:found.end]) != "null", nil
}

// stringMember gives a member that is a string, "" when it is not there.
func stringMember(b []byte, at span, name string) (string, error) {
	s, ok, err := member(b, at, name)
	if err != nil || !ok {
		return "", err
	}
	var v string
	if err := json.Unmarshal(b[s.start:s.end], &v); err != nil {
		return "", fmt.Errorf("%w: %s: %w", errs.ErrInvalid, name, err)
	}
	if strings.Contains(v, "\x00") {
		return "", fmt.Errorf("%w: %s: %q has a NUL, where it ends for some runtimes", errs.ErrInvalid, name, v)
	}
	return v, nil
}

// change replaces the bytes from start to end.
type change struct {
	start, end int
	text       string
}

func apply(b []byte, changes []change) []byte {
	slices.SortFunc(changes, func(a, b change) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, c := range changes {
		out = append(append(out, b[at:c.start]...), c.text...)
		at = c.end
	}
	return append(out, b[at:]...)
}

// drop takes the members or elements first to last away, with their comma.
func drop(all []span, first, last int) change {
	switch {
	case last+1 < len(all):
		return change{start: all[first].from, end: all[last+1].from}
	case first > 0:
		return change{start: all[first-1].end, end: all[last].end}
	}
	return change{start: all[first].from, end: all[last].end}
}

// wholeText is the span of a text that is one JSON value.
func wholeText(b []byte) (span, error) {
	if !json.Valid(b) {
		var v any
		return span{}, fmt.Errorf("%w: not JSON: %w", errs.ErrInvalid, json.Unmarshal(b, &v))
	}
	return span{end: len(b)}, nil
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string always has a form
	return string(b)
}
