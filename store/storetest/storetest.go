// Package storetest opens stores for tests and checks them whole when the test ends.
//
// Only tests import it. It imports store.
package storetest

import (
	"context"
	"path/filepath"
	"testing"

	"policyd.dev/policyd/store"
)

// Open opens a new store in a temporary folder. When the test ends the store is checked whole and closed.
func Open(t testing.TB) *store.Store {
	t.Helper()
	return OpenAt(t, filepath.Join(t.TempDir(), "policyd.db"), store.Options{NoSync: true})
}

// OpenAt is Open for a path and options of the caller's. A store the test has closed itself is checked by its file.
func OpenAt(t testing.TB, path string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(path, o)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
		CheckFile(t, path)
	})
	return s
}

// CheckFile fails the test for every problem of a closed store's file.
func CheckFile(t testing.TB, path string) {
	t.Helper()
	problems, _, _, err := store.CheckFile(context.Background(), path)
	if err != nil {
		t.Errorf("check %s: %v", path, err)
	}
	for _, p := range problems {
		t.Errorf("check %s: %s", path, p)
	}
}
