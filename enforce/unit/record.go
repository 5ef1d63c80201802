package unit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/owned"
)

// Record is what a unit is started under. As a file it is three parts: a line with
// the format and the SHA-256 of all that follows it, a line of JSON, and the bytes
// of the profile, compiled as the policy is written: what this kernel can do of it
// is decided at each start.
type Record struct {
	Unit   string `json:"unit"`   // nginx.service, foo@.service
	Policy string `json:"policy"` // the version, web@7
	// ProfileDigest is that of the profile.
	ProfileDigest string `json:"profileDigest"`
	// SmackLabel is what systemd must have given the process (SmackProcessLabel=); "" for any.
	SmackLabel string `json:"smackLabel,omitempty"`
	// Umask, Limits and Environment are the policy's process settings, as written there.
	Umask       string            `json:"umask,omitempty"`
	Limits      map[string]string `json:"limits,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Written     time.Time         `json:"written"`

	Profile []byte `json:"-"`
}

const (
	magic   = "policyd-unit/1 "
	maxHead = 1 << 20 // of the JSON, bytes
	maxFile = len(magic) + 64 + 1 + maxHead + profile.MaxEncoded
)

// Encode writes the file. Errors wrap errs.ErrInvalid.
func (r *Record) Encode() ([]byte, error) {
	if got := profile.Digest(r.Profile); got != r.ProfileDigest {
		return nil, fmt.Errorf("%w: the profile's digest is %s and not %s", errs.ErrInvalid, got, r.ProfileDigest)
	}
	head, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(head) > maxHead {
		return nil, fmt.Errorf("%w: %d bytes of settings", errs.ErrTooLarge, len(head))
	}
	body := append(append(head, '\n'), r.Profile...)
	sum := sha256.Sum256(body)
	return append([]byte(magic+hex.EncodeToString(sum[:])+"\n"), body...), nil
}

// Decode reads the file's bytes. Errors wrap errs.ErrInvalid; the profile is not decoded.
func Decode(b []byte) (*Record, error) {
	first, body, ok := bytes.Cut(b, []byte("\n"))
	want, isOurs := strings.CutPrefix(string(first[:min(len(first), 256)]), magic)
	if !ok || !isOurs {
		return nil, fmt.Errorf("%w: no profile of a unit, or one of another version of policyd", errs.ErrInvalid)
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != want {
		return nil, fmt.Errorf("%w: damaged: its checksum does not hold", errs.ErrInvalid)
	}
	head, enc, ok := bytes.Cut(body, []byte("\n"))
	if !ok || len(head) > maxHead {
		return nil, fmt.Errorf("%w: it has no profile", errs.ErrInvalid)
	}
	r := &Record{}
	dec := json.NewDecoder(bytes.NewReader(head))
	dec.DisallowUnknownFields() // a setting this launcher does not know would be left out
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: more than one record", errs.ErrInvalid)
	}
	if got := profile.Digest(enc); got != r.ProfileDigest {
		return nil, fmt.Errorf("%w: the profile's digest is %s and not %s", errs.ErrInvalid, got, r.ProfileDigest)
	}
	r.Profile = enc
	return r, nil
}

// Read reads the file at a path, which must be a regular file that only root, or
// the calling user, can have written.
func Read(path string) (*Record, error) {
	f, err := owned.Open(path)
	if errors.Is(err, owned.ErrOthers) {
		err = fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(maxFile)+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", path, errs.ErrTooLarge, maxFile)
	}
	r, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
