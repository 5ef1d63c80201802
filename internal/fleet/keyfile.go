package fleet

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/errs"
)

// CredentialPrefix begins a key's place that is a systemd credential: its name
// follows, in the folder of $CREDENTIALS_DIRECTORY.
const CredentialPrefix = "credential:"

// NewKey makes an Ed25519 key of a name: the text of its private file and its
// verifier key.
func NewKey(name string) (private, public string, err error) {
	if err := ValidName(name); err != nil {
		return "", "", fmt.Errorf("key: %w", err)
	}
	return note.GenerateKey(rand.Reader, name)
}

// WriteKey writes a private key to a file of mode 0600 that must not exist yet,
// whole or not at all.
func WriteKey(path, private string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(private + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("key %s: %w; keys are never written over", path, errs.ErrExists)
	}
	return err
}

// ReadSigner reads a private key from a file that nobody but its owner (and
// root's group) may read, or from a systemd credential (credential:NAME).
func ReadSigner(place string) (note.Signer, error) {
	path, isCredential := place, false
	if name, ok := strings.CutPrefix(place, CredentialPrefix); ok {
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" || name == "" || strings.ContainsRune(name, '/') {
			return nil, fmt.Errorf("%w: key %s: no such credential ($CREDENTIALS_DIRECTORY is %q)", errs.ErrNotFound, place, dir)
		}
		path, isCredential = filepath.Join(dir, name), true
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if !st.Mode().IsRegular() { // a FIFO would keep the reader waiting
		return nil, fmt.Errorf("%w: key %s: not a regular file", errs.ErrInvalid, path)
	}
	if !isCredential && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: key %s can be read by others (mode %04o): chmod 600 it, and if others were on the machine make a new one", errs.ErrNotAllowed, path, st.Mode().Perm())
	}
	if st.Size() > 4096 {
		return nil, fmt.Errorf("%w: key %s: not a key", errs.ErrInvalid, path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	s, err := note.NewSigner(strings.TrimSpace(string(raw)))
	if err != nil {
		return nil, fmt.Errorf("%w: key %s: not a private key of policyctl fleet init", errs.ErrInvalid, path)
	}
	return s, nil
}
