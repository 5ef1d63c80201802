package profile

import (
	"bytes"
	"errors"
	"testing"
)

// TestKeepWithin: a row's folder is one above it, survives encoding, and the longest of several holds.
func TestKeepWithin(t *testing.T) {
	b := NewBuilder([]Layer{{Name: "a", FS: ro}, {Name: "b", FS: ro}})
	for layer := range 2 {
		for _, path := range []string{"/srv/www/shop", "/home", "/free"} {
			if err := b.AddPath(layer, path, ro, false, Skip); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, n := range []int{len("/srv"), len("/srv/www"), len("/srv"), len("/")} {
		if err := b.KeepWithin("/srv/www/shop", n); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.KeepWithin("/home", len("/home")); err != nil {
		t.Fatal(err)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.ABI = 1
	encoded := p.Encode()
	back, err := Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	flat, err := Flatten(p)
	if err != nil {
		t.Fatal(err)
	}
	reduced, _ := p.Reduce(1)
	want := map[string]int{"/free": 0, "/home": 5, "/srv/www/shop": 8}
	for name, q := range map[string]*Profile{"built": p, "decoded": back, "flat": flat.Profile, "reduced": reduced} {
		if len(q.Paths) != len(want) {
			t.Errorf("%s: %+v", name, q.Paths)
		}
		for _, r := range q.Paths {
			if r.Within != want[r.Path] || r.Missing != Skip {
				t.Errorf("%s: %s is kept within %d bytes, want %d, missing %v", name, r.Path, r.Within, want[r.Path], r.Missing)
			}
		}
	}

	const row = "\x05/home\x03"
	at := bytes.Index(encoded, []byte(row+"\x05"))
	if at < 0 {
		t.Fatalf("no row in %x", encoded)
	}
	at += len(row)
	for length, kind := range map[byte]error{0: ErrFormat, 1: ErrInvalid, 4: ErrInvalid, 6: ErrInvalid} {
		bad := bytes.Clone(encoded)
		bad[at] = length
		if _, err := Decode(reseal(bad)); !errors.Is(err, kind) {
			t.Errorf("a folder of %d bytes of /home: %v, want %v", length, err, kind)
		}
	}
	for path, n := range map[string]int{"/srv/www/shop": len("/srv/w"), "/home": len("/home") + 1, "/nowhere": 4, "/free": -1} {
		b := NewBuilder(p.Layers)
		for _, r := range p.Paths {
			if err := b.AddPathRow(r.Path, r.Access, r.Missing); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.KeepWithin(path, n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s within its first %d bytes: %v", path, n, err)
		}
		if _, err := b.Build(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s within its first %d bytes was built: %v", path, n, err)
		}
	}
}
