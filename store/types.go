package store

import (
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Options of Open. The zero value is what policyd uses when its configuration says nothing.
type Options struct {
	// Timeout is how long to wait for another process to let go of the file. 0: one second.
	Timeout time.Duration
	// ReadOnly opens the file under a shared lock; nothing is created, migrated or written.
	ReadOnly bool
	// KeepVersions is how many of the newest versions of a document GC keeps. 0: 50.
	KeepVersions int
	// Now is the clock of versions and log entries. nil: time.Now.
	Now func() time.Time
	// NoSync leaves out fsync: only for tests that do not test durability.
	NoSync bool
}

// Actor says on whose behalf a change is made.
type Actor struct {
	// Name is the peer identity as the server saw it (uid:1000).
	Name string
	// Message is the remark kept with versions and log entries.
	Message string
	// RequestID, when not empty, makes the change idempotent for a day: a repeat by the same
	// Name gets the answer of the first time and has no second effect.
	RequestID string
	// RequestHash tells requests apart: a repeat with another hash is errs.ErrRequestReused.
	RequestHash []byte
}

// Put is one document ready to be stored: validated, its fragments pinned, its digest computed.
type Put struct {
	Kind, Name string
	// Resource is the document.
	Resource *apiv1.Resource
	// Source is the text it was written as, SourceName the name of its file; both may be empty.
	Source, SourceName string
	// SourceLine is the line of that file where Source begins, from 1; 0 when it is not known.
	SourceLine uint32
	// Digest is "sha256:" and 64 hex digits over the canonical content and the pins.
	Digest string
	// Pins are the fragments included, transitively, by the digest of their content.
	Pins []*apiv1.Pin
	// PinContents holds, by digest, the fragments of Pins that the store may not have yet.
	PinContents map[string]*apiv1.Fragment
	// Expect, when not nil, is the number the newest version must have; 0: the document must
	// not exist (or be deleted).
	Expect *uint64
}

// Applied is what became of one Put.
type Applied struct {
	// Info is the version that holds the content, new or not.
	Info *apiv1.VersionInfo
	// Outcome is created, changed or unchanged.
	Outcome apiv1.ApplyResponse_Outcome
}

// Filter selects documents in List.
type Filter struct {
	// Labels must all be equal.
	Labels map[string]string
	// After is the name (the token of the page before) to go on behind.
	After string
	// Limit is the size of the page. 0: everything.
	Limit int
	// Deleted includes documents that were deleted with their history kept.
	Deleted bool
}

// SandboxFilter selects sandboxes in Sandboxes.
type SandboxFilter struct {
	// Ended includes sandboxes that have ended.
	Ended bool
	// Policy, when not empty, is the name of their policy.
	Policy string
	// After is the id to go on behind; Limit the size of the page, 0: everything.
	After string
	Limit int
}
