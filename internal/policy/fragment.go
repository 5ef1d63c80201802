package policy

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// FragmentSource finds fragments by name. An unknown name is errs.ErrNotFound.
type FragmentSource interface {
	Fragment(name string) (*apiv1.Fragment, error)
}

// Std is the source of the shipped fragments, std/*.
func Std() FragmentSource { return nil }

// StdFragments returns the shipped fragments, sorted by name.
func StdFragments() []*Document { return nil }

// IsReserved tells that a name belongs to the shipped fragments ("std/...") and
// cannot be applied by users.
func IsReserved(name string) bool { return false }

// Pin finds every fragment a document includes, directly or through others.
// Pins are sorted by name and hold the digest of each fragment's own content
// (the includes of an include have pins of their own); the map is by digest. An
// unknown fragment or a cycle is an [*Errors].
func Pin(d *Document, src FragmentSource) ([]*apiv1.Pin, map[string]*apiv1.Fragment, error) {
	return nil, nil, errStub
}

// Pinned is the source that resolves a stored document's pins: byDigest finds a
// fragment of that content.
func Pinned(pins []*apiv1.Pin, byDigest func(digest string) (*apiv1.Fragment, error)) FragmentSource {
	return nil
}
