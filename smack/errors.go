package smack

import (
	"errors"

	"policyd.dev/policyd/smack/label"
)

// The errors of this package, to be tested with errors.Is. They stand here and
// not in a table shared by the project because the package depends on the
// standard library alone.
var (
	// ErrLabel: a text is not a Smack label, or not one the kernel would keep whole.
	ErrLabel = label.ErrLabel

	// ErrAccess: a text is not a list of access letters.
	ErrAccess = errors.New("not a list of access letters")

	// ErrSyntax: rule text, or a file of settings, breaks its format.
	ErrSyntax = errors.New("syntax error")

	// ErrLimit: a number or a length is beyond a limit of limits.go.
	ErrLimit = errors.New("beyond a limit")

	// ErrInvalid: a policy or a setting says something the kernel refuses,
	// takes for something else, or cannot enforce.
	ErrInvalid = errors.New("invalid")

	// ErrFormat: the bytes are not an encoded policy, or not the only encoding
	// of one.
	ErrFormat = errors.New("not a well-formed compiled Smack policy")

	// ErrVersion: an encoded policy of a format this package does not read.
	ErrVersion = errors.New("unknown format version of a compiled Smack policy")
)
