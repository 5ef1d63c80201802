package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

// What would be gone with the process is not acknowledged: the file was removed, or another was put in its place.
func TestFileMovedAway(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"removed": os.Remove,
		"renamed": func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policyd.db")
			s, err := Open(path, Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			change := func() error {
				return s.update(context.Background(), func(tx *wtx) error {
					return tx.put(tx.bucket(bucketKeyRequests), []byte("k"), []byte("v"))
				})
			}
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if err := move(path); err != nil {
				t.Fatal(err)
			}
			if err := change(); !errors.Is(err, errs.ErrStoreFailed) {
				t.Errorf("acknowledged: %v", err)
			}
		})
	}
}
