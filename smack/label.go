package smack

import "policyd.dev/policyd/smack/label"

// The labels every kernel has (smack_known_* in the kernel).
const (
	Floor = label.Floor
	Hat   = label.Hat
	Star  = label.Star
	Huh   = label.Huh
	Web   = label.Web
)

// BuiltIn reports whether a label is one of the five that the kernel has from
// the start and gives a meaning beyond rules.
func BuiltIn(s string) bool { return label.BuiltIn(s) }

// LabelError says why a text is no label. It wraps [ErrLabel].
type LabelError = label.Error

// CheckLabel tells whether s is a label that the kernel keeps whole, as
// [label.Check] does. The error is a [*LabelError].
func CheckLabel(s string) error { return label.Check(s) }

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

func byteName(c byte) string { return label.ByteName(c) }

func quote(s string) string { return label.Quote(s) }
