package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"policyd.dev/policyd/internal/errs"
)

// Limits of a bundle. A decoder checks each before it allocates.
const (
	MaxBundleBytes = 64 << 20 // of an encoded bundle, also of one by reference
	MaxDocs        = 10000    // in a bundle
	MaxTextBytes   = 8 << 20  // of one document
	maxDocName     = 255      // of a document's name; those of fragments have slashes
	MaxLocal       = 1000     // names that nodes may override
)

// bundleMagic begins every bundle: no text, and damaged by what damages line ends.
var bundleMagic = []byte("\x89PDB\r\n\x1a\n")

const bundleVersion = 1

// Bundle is the set of documents that a channel gives to its nodes, whole. All
// fragments that its documents include are among them, those shipped with
// policyd too, so that it means the same on every node.
type Bundle struct {
	// Docs in the order of kind and name, none twice.
	Docs []Doc
	// Local are the names of LandlockPolicies that a node's admin may override
	// on the node, sorted; the node reports where it is done.
	Local []string
}

// Doc is one document of a bundle.
type Doc struct {
	// Kind is one of internal/policy's (LandlockPolicy, Fragment, ...).
	Kind string
	// Name is metadata.name.
	Name string
	// Digest is the content digest by which policyd names this version of the
	// document (web@sha256:...), over its content and the fragments it includes.
	// Who activates a bundle must compute it again and compare.
	Digest string
	// Text is the document in YAML, as written.
	Text string
}

func (d Doc) key() string { return d.Kind + "\x00" + d.Name }

// Digest is "sha256:" and the hash of bytes in lower-case hex: of an encoded
// bundle, its name.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// Encode gives the one encoding of a bundle. It sorts a copy of Docs and Local;
// what Decode would refuse is an error (errs.ErrInvalid, errs.ErrTooLarge).
func Encode(b *Bundle) ([]byte, error) {
	docs := slices.Clone(b.Docs)
	slices.SortFunc(docs, func(x, y Doc) int { return strings.Compare(x.key(), y.key()) })
	local := slices.Clone(b.Local)
	slices.Sort(local)
	sorted := &Bundle{Docs: docs, Local: local}
	if err := sorted.check(); err != nil {
		return nil, err
	}
	out := append([]byte(nil), bundleMagic...)
	out = append(out, bundleVersion)
	out = binary.AppendUvarint(out, uint64(len(docs)))
	for _, d := range docs {
		raw, _ := hex.DecodeString(strings.TrimPrefix(d.Digest, digestPrefix))
		out = appendString(out, d.Kind)
		out = appendString(out, d.Name)
		out = append(out, raw...)
		out = appendString(out, d.Text)
	}
	out = binary.AppendUvarint(out, uint64(len(local)))
	for _, name := range local {
		out = appendString(out, name)
	}
	if len(out) > MaxBundleBytes {
		return nil, fmt.Errorf("%w: a bundle of %d bytes, at most %d", errs.ErrTooLarge, len(out), MaxBundleBytes)
	}
	return out, nil
}

// Decode reads a bundle. It accepts only what Encode writes: one bundle has one
// encoding. Its memory is bounded by a multiple of the input.
func Decode(raw []byte) (*Bundle, error) {
	if len(raw) > MaxBundleBytes {
		return nil, fmt.Errorf("%w: a bundle of %d bytes, at most %d", errs.ErrTooLarge, len(raw), MaxBundleBytes)
	}
	r := &reader{rest: raw, what: "bundle"}
	if !bytes.Equal(r.take(len(bundleMagic)), bundleMagic) {
		return nil, fmt.Errorf("%w: bundle: not a bundle", errs.ErrInvalid)
	}
	if v := r.byte(); r.err == nil && v != bundleVersion {
		return nil, fmt.Errorf("%w: bundle: format version %d, this policyd reads %d", errs.ErrInvalid, v, bundleVersion)
	}
	b := &Bundle{}
	for range r.count(MaxDocs, 3+sha256.Size) {
		b.Docs = append(b.Docs, Doc{
			Kind:   r.string(maxDocName),
			Name:   r.string(maxDocName),
			Digest: digestPrefix + hex.EncodeToString(r.take(sha256.Size)),
			Text:   r.string(MaxTextBytes),
		})
		if r.err != nil {
			return nil, r.err
		}
	}
	for range r.count(MaxLocal, 1) {
		b.Local = append(b.Local, r.string(maxDocName))
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return b, nil
}

// check holds what is true of every bundle.
func (b *Bundle) check() error {
	if len(b.Docs) == 0 {
		return fmt.Errorf("%w: bundle: no document in it", errs.ErrInvalid)
	}
	if len(b.Docs) > MaxDocs || len(b.Local) > MaxLocal {
		return fmt.Errorf("%w: bundle: %d documents (at most %d), %d names open to nodes (at most %d)", errs.ErrTooLarge, len(b.Docs), MaxDocs, len(b.Local), MaxLocal)
	}
	for i, d := range b.Docs {
		if err := d.check(); err != nil {
			return err
		}
		if i > 0 && b.Docs[i-1].key() >= d.key() {
			return fmt.Errorf("%w: bundle: %s %s is there twice or out of order", errs.ErrInvalid, d.Kind, d.Name)
		}
	}
	for i, name := range b.Local {
		if err := validWord(name); err != nil {
			return err
		}
		if i > 0 && b.Local[i-1] >= name {
			return fmt.Errorf("%w: bundle: %s is open to nodes twice or out of order", errs.ErrInvalid, name)
		}
	}
	return nil
}

func (d Doc) check() error {
	if err := validWord(d.Kind); err != nil {
		return err
	}
	if err := validWord(d.Name); err != nil {
		return err
	}
	if err := ValidDigest(d.Digest); err != nil {
		return fmt.Errorf("%s %s: %w", d.Kind, d.Name, err)
	}
	if len(d.Text) > MaxTextBytes {
		return fmt.Errorf("%w: %s %s has %d bytes, at most %d", errs.ErrTooLarge, d.Kind, d.Name, len(d.Text), MaxTextBytes)
	}
	if d.Text == "" || !utf8.ValidString(d.Text) {
		return fmt.Errorf("%w: %s %s: want a text in UTF-8", errs.ErrInvalid, d.Kind, d.Name)
	}
	return nil
}

// validWord checks what stands as one word in a manifest: printable ASCII
// without spaces.
func validWord(s string) error {
	if s == "" || len(s) > maxDocName {
		return fmt.Errorf("%w: name %q has %d bytes, want 1 to %d", errs.ErrInvalid, clip(s), len(s), maxDocName)
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return fmt.Errorf("%w: name %q: want printable ASCII without spaces", errs.ErrInvalid, s)
		}
	}
	return nil
}
