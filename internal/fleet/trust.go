package fleet

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/errs"
)

// Trust is what a reader believes signatures by. It reaches a node by its
// configuration, never through etcd. A key may stand in one of the two sets only.
type Trust struct {
	// Content keys sign manifests of bundles: what may run at all.
	Content Signers
	// Rollout keys sign pointers: which of the signed bundles runs where.
	Rollout Signers
}

// Signers are named keys of which Threshold must have signed.
type Signers struct {
	Threshold int
	// Keys are verifier keys of golang.org/x/mod/sumdb/note: name+hash+base64.
	// Two keys never have one name.
	Keys []string
}

// maxSigners bounds how many keys a set holds: a note has at most 100 signatures.
const maxSigners = 64

// Check refuses a trust that could never be met, or that one key could meet twice.
func (t Trust) Check() error {
	if _, err := t.Content.verifiers(); err != nil {
		return fmt.Errorf("content keys: %w", err)
	}
	if _, err := t.Rollout.verifiers(); err != nil {
		return fmt.Errorf("rollout keys: %w", err)
	}
	seen := map[string]bool{}
	for _, k := range t.Content.Keys {
		seen[keyMaterial(k)] = true
	}
	for _, k := range t.Rollout.Keys {
		if seen[keyMaterial(k)] {
			return fmt.Errorf("%w: key %s is both a content key and a rollout key; the two must be apart", errs.ErrInvalid, KeyName(k))
		}
	}
	return nil
}

// KeyName is the name within a verifier or signer key.
func KeyName(key string) string {
	key = strings.TrimPrefix(key, "PRIVATE+KEY+")
	name, _, _ := strings.Cut(key, "+")
	return name
}

// keyMaterial is the part of a verifier key that does not depend on its name.
func keyMaterial(key string) string { return key[strings.LastIndexByte(key, '+')+1:] }

// verifiers checks a set and makes the note package's form of it.
func (s Signers) verifiers() ([]note.Verifier, error) {
	if len(s.Keys) > maxSigners {
		return nil, fmt.Errorf("%w: %d keys, at most %d", errs.ErrInvalid, len(s.Keys), maxSigners)
	}
	if s.Threshold < 1 || s.Threshold > len(s.Keys) {
		return nil, fmt.Errorf("%w: %d signatures are wanted of %d keys", errs.ErrInvalid, s.Threshold, len(s.Keys))
	}
	names, material := map[string]bool{}, map[string]bool{}
	var out []note.Verifier
	for _, k := range s.Keys {
		v, err := note.NewVerifier(k)
		if err != nil {
			return nil, fmt.Errorf("%w: key %q: %v", errs.ErrInvalid, clip(k), err) //nolint:errorlint // the sentinel is the one callers test
		}
		if names[v.Name()] || material[keyMaterial(k)] {
			return nil, fmt.Errorf("%w: key %s is there twice", errs.ErrInvalid, v.Name())
		}
		names[v.Name()], material[keyMaterial(k)] = true, true
		out = append(out, v)
	}
	return out, nil
}

// open checks a signed text: that it is of the type, that nothing was changed,
// and that enough of the named keys have signed.
func (s Signers) open(signed []byte, payload string) (text string, err error) {
	list, err := s.verifiers()
	if err != nil {
		return "", err
	}
	n, err := note.Open(signed, note.VerifierList(list...))
	unverified := (*note.UnverifiedNoteError)(nil)
	switch {
	case errors.As(err, &unverified):
		n = unverified.Note // no signature of ours at all: none is counted
	case errors.As(err, new(*note.InvalidSignatureError)):
		return "", fmt.Errorf("%w: %v", errs.ErrTampered, err) //nolint:errorlint // as above
	case err != nil:
		return "", fmt.Errorf("%w: not a signed text", errs.ErrTampered)
	}
	if !typeLine(n.Text, payload) {
		first, _, _ := strings.Cut(n.Text, "\n")
		return "", fmt.Errorf("%w: have %q, want %q", errs.ErrWrongType, clip(first), payload)
	}
	var by []string
	for _, sig := range n.Sigs { // distinct: note.Open drops a second one of a key
		by = append(by, sig.Name)
	}
	if len(by) < s.Threshold {
		return "", fmt.Errorf("%w: %d of %d (%s)", errs.ErrTooFewSignatures, len(by), s.Threshold, orNone(strings.Join(by, ", ")))
	}
	return n.Text, nil
}

// SignedBy gives the names on a signed text, trusted or not; nothing is checked.
func SignedBy(signed []byte) []string {
	var unverified *note.UnverifiedNoteError
	_, err := note.Open(signed, note.VerifierList())
	if !errors.As(err, &unverified) {
		return nil
	}
	var names []string
	for _, sig := range unverified.Note.UnverifiedSigs {
		names = append(names, sig.Name)
	}
	return names
}

// sign signs a text.
func sign(text string, signers []note.Signer) ([]byte, error) {
	b, err := note.Sign(&note.Note{Text: text}, signers...)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return b, nil
}

// AddSignature adds signatures to a signed text. It says nothing about those
// which are there; whoever opens the text judges all of them.
func AddSignature(signed []byte, signers ...note.Signer) ([]byte, error) {
	var unverified *note.UnverifiedNoteError
	_, err := note.Open(signed, note.VerifierList())
	if !errors.As(err, &unverified) {
		return nil, fmt.Errorf("%w: not a signed text", errs.ErrTampered)
	}
	n := unverified.Note
	b, err := note.Sign(n, signers...)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return b, nil
}
