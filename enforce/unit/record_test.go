package unit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

func example(t testing.TB) *Record {
	t.Helper()
	b := profile.NewBuilder([]profile.Layer{{Name: "box", FS: profile.Handled(profile.FS, 1)}})
	b.AddPath(0, "/usr", profile.FSReadFile, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	enc := p.Encode()
	return &Record{
		Unit: "nginx.service", Policy: "web@7", ProfileDigest: profile.Digest(enc), SmackLabel: "Web",
		Umask: "0027", Limits: map[string]string{"nofile": "10"}, Environment: map[string]string{"A": "b\nc"},
		Written: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Profile: enc,
	}
}

func encoded(t testing.TB, r *Record) []byte {
	t.Helper()
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	r := example(t)
	got, err := Decode(encoded(t, r))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %v; want %+v", got, err, r)
	}
	r.ProfileDigest = "sha256:other"
	if _, err := r.Encode(); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("a record with another profile's digest: %v", err)
	}
}

// No byte of the file can change, and none can go, unnoticed.
func TestDamaged(t *testing.T) {
	whole := encoded(t, example(t))
	for n := range whole {
		if r, err := Decode(whole[:n]); !errors.Is(err, errs.ErrInvalid) {
			t.Fatalf("%d of %d bytes: %+v, %v", n, len(whole), r, err)
		}
		b := slices.Clone(whole)
		b[n] ^= 4
		if r, err := Decode(b); !errors.Is(err, errs.ErrInvalid) {
			t.Fatalf("byte %d changed: %+v, %v", n, r, err)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.profile")
	put := func(mode os.FileMode) {
		t.Helper()
		os.Remove(path)
		if err := os.WriteFile(path, encoded(t, example(t)), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	put(0o644)
	if r, err := Read(path); err != nil || r.Policy != "web@7" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, mode := range []os.FileMode{0o664, 0o646} {
		put(mode)
		if _, err := Read(path); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	put(0o644)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(link); err == nil {
		t.Error("a symbolic link was followed")
	}
	if _, err := Read(dir); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("a folder: %v", err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("another user's file: %v", err)
		}
	}
	if _, err := Read(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, example(f)))
	f.Add([]byte(magic + "\n{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			if !errors.Is(err, errs.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode(again); err != nil || !bytes.Equal(back.Profile, r.Profile) {
			t.Errorf("%v", err)
		}
	})
}
