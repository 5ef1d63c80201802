package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"policyd.dev/policyd/internal/containers"
)

// Profiles are files named by their digest, which containers get as a mount. The launcher in the container holds the
// file against the digest, so none is synced: one that was torn is refused there and written anew here.

func (m *memory) profileDir() string { return filepath.Join(m.settings.State, "profiles") }

func (m *memory) profileFile(digest string) string {
	return filepath.Join(m.profileDir(), strings.ReplaceAll(digest, ":", "-"))
}

// keepProfile makes the file of a profile, for everybody to read: a container's user must.
func (m *memory) keepProfile(digest string, encoded []byte) (path string, err error) {
	path = m.profileFile(digest)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, encoded) {
		return path, nil
	}
	if err := os.MkdirAll(m.profileDir(), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(m.profileDir(), ".new-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(encoded)
	err = errors.Join(err, f.Chmod(0o444), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("keep a profile: %w", err)
	}
	return path, nil
}

// leftover is how old what is cut off, or not used by anything, must be to be cleared away.
const leftover = time.Minute

// clear removes the profiles that no answer holds and no container was created under. A running container keeps its own
// mounted without the file.
func (m *memory) clear() error {
	m.clearing.Lock()
	defer m.clearing.Unlock()
	entries, err := os.ReadDir(m.profileDir())
	if err != nil || len(entries) == 0 {
		return nil //nolint:nilerr // there is none yet
	}
	used := m.digests()
	list, _ := containers.Records(m.settings.Records) // also of those that the runtime does not know yet
	for _, c := range list {
		used[c.Digest] = true
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < leftover || used[strings.Replace(e.Name(), "-", ":", 1)] {
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(m.profileDir(), e.Name())))
	}
	return errors.Join(errs...)
}
