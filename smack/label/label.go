// Package label is what a Smack label may be. It stands apart from package smack
// for programs that must be there at once, as those in containers: the rules and
// settings of smack bring net/netip and encoding/xml with them.
//
// It imports the standard library alone.
package label

import (
	"errors"
	"fmt"
	"strconv"
)

// Max is how many bytes a label has at most (SMK_LONGLABEL is 256 and counts the final NUL).
const Max = 255

// ErrLabel: a text is not a Smack label, or not one the kernel would keep whole.
var ErrLabel = errors.New("not a Smack label")

// The labels every kernel has (smack_known_* in the kernel).
const (
	Floor = "_" // what unlabelled processes and files have
	Hat   = "^"
	Star  = "*"
	Huh   = "?"
	Web   = "@"
)

// BuiltIn reports whether a label is one of the five that the kernel has from
// the start and gives a meaning beyond rules.
func BuiltIn(label string) bool {
	if len(label) != 1 {
		return false
	}
	switch label {
	case Floor, Hat, Star, Huh, Web:
		return true
	}
	return false
}

// Error says why a text is no label. It wraps [ErrLabel].
type Error struct {
	Label  string
	Offset int // of the byte that is refused; -1 when it is the length
}

func (e *Error) Error() string {
	switch {
	case e.Label == "":
		return "empty label"
	case e.Offset < 0:
		return fmt.Sprintf("label %s… has %d bytes, the kernel takes %d", Quote(e.Label[:16]), len(e.Label), Max)
	case e.Offset == 0 && e.Label[0] == '-':
		return fmt.Sprintf("label %s: %s at the beginning is kept for options of the kernel", Quote(e.Label), ByteName('-'))
	}
	c := e.Label[e.Offset]
	head := fmt.Sprintf("label %s: %s cannot stand in a label; ", Quote(e.Label), ByteName(c))
	switch {
	case isSpace(c):
		return head + "the kernel would split the label there"
	case e.Offset == 0:
		return head + "the kernel refuses it"
	}
	return head + fmt.Sprintf("the kernel would cut it to %q without an error", e.Label[:e.Offset])
}

// Unwrap gives ErrLabel.
func (e *Error) Unwrap() error { return ErrLabel }

// Check tells whether s is a label that the kernel keeps whole: 1 to 255
// bytes of printable ASCII other than space, '/', '"', '\” and '\\', and no '-'
// at the beginning (smk_parse_label_len, smk_import_entry). The error is a
// [*Error].
func Check(s string) error {
	for i := range len(s) {
		if !may(s[i]) {
			return &Error{Label: clip(s, i), Offset: i}
		}
	}
	switch {
	case s == "":
		return &Error{}
	case s[0] == '-':
		return &Error{Label: clip(s, 0)}
	case len(s) > Max:
		return &Error{Label: s, Offset: -1}
	}
	return nil
}

// clip shortens a text for a message so that the byte at offset i stays.
func clip(s string, i int) string { return s[:min(len(s), max(i+1, Max))] }

// may tells whether a byte may stand in a label: a byte up to ' ', beyond '~', or
// one of four more ends a label (smk_parse_label_len).
func may(c byte) bool {
	return c > ' ' && c <= '~' && c != '/' && c != '"' && c != '\'' && c != '\\'
}

// isSpace is isspace of the kernel's ctype.h, which follows Latin-1.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0xa0 }

// ByteName shows a byte in a message so that no terminal is confused by it.
func ByteName(c byte) string {
	switch {
	case c == ' ':
		return "space (0x20)"
	case c == '\'':
		return "' (0x27)"
	case c > ' ' && c <= '~':
		return fmt.Sprintf("'%c' (0x%02x)", c, c)
	case c == 0:
		return "NUL (0x00)"
	case c == '\t':
		return "tab (0x09)"
	case c == '\r':
		return "carriage return (0x0d)"
	case c == 0x7f:
		return "DEL (0x7f)"
	case c >= 0x80:
		return fmt.Sprintf("byte 0x%02x (not ASCII)", c)
	}
	return fmt.Sprintf("control character 0x%02x", c)
}

// Quote quotes a text for a message, cut to a bearable length.
func Quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
