package smack

import (
	"fmt"
	"strconv"
)

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

// LabelError says why a text is no label. It wraps [ErrLabel].
type LabelError struct {
	Label  string
	Offset int // of the byte that is refused; -1 when it is the length
}

func (e *LabelError) Error() string {
	switch {
	case e.Label == "":
		return "empty label"
	case e.Offset < 0:
		return fmt.Sprintf("label %s… has %d bytes, the kernel takes %d", quote(e.Label[:16]), len(e.Label), MaxLabel)
	case e.Offset == 0 && e.Label[0] == '-':
		return fmt.Sprintf("label %s: %s at the beginning is kept for options of the kernel", quote(e.Label), byteName('-'))
	}
	c := e.Label[e.Offset]
	head := fmt.Sprintf("label %s: %s cannot stand in a label; ", quote(e.Label), byteName(c))
	switch {
	case isKernelSpace(c):
		return head + "the kernel would split the label there"
	case e.Offset == 0:
		return head + "the kernel refuses it"
	}
	return head + fmt.Sprintf("the kernel would cut it to %q without an error", e.Label[:e.Offset])
}

// Unwrap gives ErrLabel.
func (e *LabelError) Unwrap() error { return ErrLabel }

// CheckLabel tells whether s is a label that the kernel keeps whole: 1 to 255
// bytes of printable ASCII other than space, '/', '"', '\” and '\\', and no '-'
// at the beginning (smk_parse_label_len, smk_import_entry). The error is a
// [*LabelError].
func CheckLabel(s string) error {
	for i := range len(s) {
		if class[s[i]] != classLabel {
			return &LabelError{Label: clip(s, i), Offset: i}
		}
	}
	switch {
	case s == "":
		return &LabelError{}
	case s[0] == '-':
		return &LabelError{Label: clip(s, 0)}
	case len(s) > MaxLabel:
		return &LabelError{Label: s, Offset: -1}
	}
	return nil
}

// clip shortens a text for a message so that the byte at offset i stays.
func clip(s string, i int) string { return s[:min(len(s), max(i+1, MaxLabel))] }

// Classes of bytes in rule text.
const (
	classBad   = iota // in no label: the kernel ends the label or splits it there
	classLabel        // may stand in a label
	classBlank        // space and tab
	classEnd          // line feed
)

// class follows smk_parse_label_len: a byte up to ' ', beyond '~', or one of
// four more ends a label. The kernel's isspace splits at \r, \v, \f and 0xA0
// too; here they are bad, but for \r before a line feed.
var class = func() (t [256]byte) {
	for c := '!'; c <= '~'; c++ {
		t[c] = classLabel
	}
	for _, c := range `/"'\` {
		t[c] = classBad
	}
	t[' '], t['\t'], t['\n'] = classBlank, classBlank, classEnd
	return t
}()

// isKernelSpace is isspace of the kernel's ctype.h, which follows Latin-1.
func isKernelSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0xa0 }

// byteName shows a byte in a message so that no terminal is confused by it.
func byteName(c byte) string {
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

// quote quotes a text for a message, cut to a bearable length.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
