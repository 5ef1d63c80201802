package fleet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// MaxBlobBytes is the most that is put into one key of etcd.
const MaxBlobBytes = 1 << 20

// blobMagic begins every blob, and every bundle file.
var blobMagic = []byte("\x89PDF\r\n\x1a\n")

const (
	blobInline    = 1
	blobReference = 2
	maxURL        = 2048
)

// Blob is a bundle as it is handed on, in etcd and as a file: its signed
// manifest, and its bytes or where they are.
type Blob struct {
	// Manifest is the signed text.
	Manifest []byte
	// Bundle holds the encoded bundle; nil when URL says where it is.
	Bundle []byte
	// URL is file:///path or https://host/path.
	URL string
}

// EncodeBlob gives the bytes of a blob. It does not look at MaxBlobBytes, which
// is etcd's limit and not a file's.
func EncodeBlob(b *Blob) ([]byte, error) {
	out := append([]byte(nil), blobMagic...)
	if b.URL != "" {
		if b.Bundle != nil {
			return nil, fmt.Errorf("%w: blob: both bytes and a reference", errs.ErrInvalid)
		}
		if err := ValidURL(b.URL); err != nil {
			return nil, err
		}
		out = append(out, blobReference)
		out = appendString(out, string(b.Manifest))
		return appendString(out, b.URL), nil
	}
	if len(b.Bundle) == 0 || len(b.Bundle) > MaxBundleBytes {
		return nil, fmt.Errorf("%w: blob: a bundle of %d bytes", errs.ErrInvalid, len(b.Bundle))
	}
	out = append(out, blobInline)
	out = appendString(out, string(b.Manifest))
	out = binary.AppendUvarint(out, uint64(len(b.Bundle)))
	return append(out, b.Bundle...), nil
}

// DecodeBlob reads a blob. Nothing of it may be believed before OpenManifest and
// Manifest.Match have accepted it; Blob.Open does both.
func DecodeBlob(raw []byte) (*Blob, error) {
	r := &reader{rest: raw, what: "blob"}
	if !bytes.Equal(r.take(len(blobMagic)), blobMagic) {
		return nil, fmt.Errorf("%w: blob: not a bundle of policyd", errs.ErrInvalid)
	}
	kind := r.byte()
	b := &Blob{Manifest: []byte(r.string(1_000_000))}
	switch kind {
	case blobInline:
		b.Bundle = bytes.Clone(r.take(r.num(MaxBundleBytes)))
	case blobReference:
		b.URL = r.string(maxURL)
	default:
		r.fail("kind %d is not known", kind)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if kind == blobReference {
		return b, ValidURL(b.URL)
	}
	return b, nil
}

// ValidURL checks where a bundle may be fetched from: file:///path, which is
// there on the node, or https://host/path.
func ValidURL(s string) error {
	u, err := url.Parse(s)
	ok := err == nil && len(s) <= maxURL && u.User == nil && u.Fragment == "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
	switch {
	case ok && u.Scheme == "file" && u.Host == "" && strings.HasPrefix(u.Path, "/") && u.RawQuery == "":
		return nil
	case ok && u.Scheme == "https" && u.Host != "":
		return nil
	}
	return fmt.Errorf("%w: %q: want file:///path or https://host/path", errs.ErrInvalid, clip(s))
}

// Open checks a blob: the manifest's signatures, that it is of this fleet and of
// the bundle asked for by digest, and that the bytes are the manifest's. content
// are the bytes of a blob by reference, fetched by the caller; nil otherwise.
func (b *Blob) Open(trust Trust, fleet, digest string, content []byte) (*Manifest, *Bundle, error) {
	m, err := OpenManifest(b.Manifest, trust, fleet)
	if err != nil {
		return nil, nil, err
	}
	if m.Bundle != digest {
		return nil, nil, fmt.Errorf("%w: the manifest is of bundle %s, not of %s", errs.ErrTampered, m.Bundle, digest)
	}
	if b.URL == "" {
		content = b.Bundle
	}
	bundle, err := m.Match(content)
	return m, bundle, err
}

// IsBlob tells that bytes begin as a blob does.
func IsBlob(raw []byte) bool { return bytes.HasPrefix(raw, blobMagic) }
