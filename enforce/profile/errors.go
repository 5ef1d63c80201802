package profile

import "errors"

// The errors of this package, to be tested with errors.Is. They stand here and
// not in a table shared by the project because the package depends on the
// standard library alone.
var (
	// ErrFormat: the bytes are not an encoded profile, or not the only
	// encoding of one (trailing bytes, an overlong number).
	ErrFormat = errors.New("not a well-formed profile")

	// ErrVersion: an encoded profile of a format this package does not read.
	ErrVersion = errors.New("unknown profile format version")

	// ErrLimit: a number or a length is beyond a limit of limits.go.
	ErrLimit = errors.New("profile exceeds a limit")

	// ErrInvalid: the profile says something no kernel accepts, or something
	// that could be said in two ways.
	ErrInvalid = errors.New("invalid profile")

	// ErrFlattenRefer: flattening could allow a rename or link that the
	// layers refuse with EXDEV, and the profile does not accept that.
	ErrFlattenRefer = errors.New("flattening would weaken the test of renames")
)
