package fleet

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"policyd.dev/policyd/internal/errs"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the encoding changed: signatures made before no longer fit\n%s", path, cmp.Diff(string(want), string(got)))
	}
}

func TestGolden(t *testing.T) {
	raw, err := Encode(testBundle())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "bundle.hex", []byte(hex.Dump(raw)))
	m, err := NewManifest("prod", raw, testTime, "first \"one\"\nü")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "manifest.txt", []byte(m.Text()))
	golden(t, "pointer.txt", []byte(testPointer().Text()))
	inline, err := EncodeBlob(&Blob{Manifest: []byte("manifest\n"), Bundle: raw})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "blob.hex", []byte(hex.Dump(inline)))
	reference, err := EncodeBlob(&Blob{Manifest: []byte("manifest\n"), URL: "https://example.org/web.bundle"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "blob-reference.hex", []byte(hex.Dump(reference)))
}

func TestBundleOrderDoesNotMatter(t *testing.T) {
	one, err := Encode(testBundle())
	if err != nil {
		t.Fatal(err)
	}
	b := testBundle()
	b.Docs[0], b.Docs[2] = b.Docs[2], b.Docs[0]
	two, err := Encode(b)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("another order of documents gives other bytes (%v)", err)
	}
	if b.Docs[0].Kind != "Binding" {
		t.Error("Encode sorted its caller's documents")
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Bundle)
		want   error
	}{
		"nothing":           {func(b *Bundle) { b.Docs = nil }, errs.ErrInvalid},
		"twice":             {func(b *Bundle) { b.Docs[1] = b.Docs[0] }, errs.ErrInvalid},
		"no kind":           {func(b *Bundle) { b.Docs[0].Kind = "" }, errs.ErrInvalid},
		"space in name":     {func(b *Bundle) { b.Docs[0].Name = "a b" }, errs.ErrInvalid},
		"newline in name":   {func(b *Bundle) { b.Docs[0].Name = "a\nb" }, errs.ErrInvalid},
		"long name":         {func(b *Bundle) { b.Docs[0].Name = strings.Repeat("x", 256) }, errs.ErrInvalid},
		"digest of another": {func(b *Bundle) { b.Docs[0].Digest = "md5:00" }, errs.ErrInvalid},
		"digest upper case": {func(b *Bundle) { b.Docs[0].Digest = "sha256:" + strings.ToUpper(b.Docs[0].Digest[7:]) }, errs.ErrInvalid},
		"no text":           {func(b *Bundle) { b.Docs[0].Text = "" }, errs.ErrInvalid},
		"text not UTF-8":    {func(b *Bundle) { b.Docs[0].Text = "\xff" }, errs.ErrInvalid},
		"long text":         {func(b *Bundle) { b.Docs[0].Text = strings.Repeat("x", MaxTextBytes+1) }, errs.ErrTooLarge},
		"local twice":       {func(b *Bundle) { b.Local = []string{"web", "web"} }, errs.ErrInvalid},
		"too many local":    {func(b *Bundle) { b.Local = make([]string, MaxLocal+1) }, errs.ErrTooLarge},
		"too many":          {func(b *Bundle) { b.Docs = make([]Doc, MaxDocs+1) }, errs.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			b := testBundle()
			tc.change(b)
			if _, err := Encode(b); !errors.Is(err, tc.want) {
				t.Errorf("have %v, want %v", err, tc.want)
			}
		})
	}
}

// No byte of a bundle can be cut off, added or, but for texts and digests that
// the bundle's own digest holds, changed.
func TestDecodeRefuses(t *testing.T) {
	raw, err := Encode(testBundle())
	if err != nil {
		t.Fatal(err)
	}
	for n := range raw {
		if _, err := Decode(raw[:n]); !errors.Is(err, errs.ErrInvalid) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := Decode(append(bytes.Clone(raw), 0)); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("one byte more: %v", err)
	}
	for i := range raw {
		for _, x := range []byte{1, 0x80, 0xff} {
			changed := bytes.Clone(raw)
			changed[i] ^= x
			b, err := Decode(changed)
			if err != nil {
				continue
			}
			if again, err := Encode(b); err != nil || !bytes.Equal(again, changed) {
				t.Fatalf("byte %d ^ %#x: decoded, and encodes to other bytes (%v)", i, x, err)
			}
		}
	}
	version := bytes.Clone(raw)
	version[8] = 2
	if _, err := Decode(version); err == nil || !strings.Contains(err.Error(), "format version 2") {
		t.Errorf("a later format: %v", err)
	}
	long := append(bytes.Clone(raw[:9]), 0x83, 0x00) // 3 documents, in two bytes
	if _, err := Decode(append(long, raw[10:]...)); err == nil || !strings.Contains(err.Error(), "shortest") {
		t.Errorf("a long number: %v", err)
	}
	if _, err := Decode(make([]byte, MaxBundleBytes+1)); !errors.Is(err, errs.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func bundles() *rapid.Generator[*Bundle] {
	word := rapid.StringMatching(`[!-~]{1,12}`)
	return rapid.Custom(func(t *rapid.T) *Bundle {
		b := &Bundle{}
		for i := range rapid.IntRange(1, 8).Draw(t, "docs") {
			b.Docs = append(b.Docs, Doc{
				Kind: word.Draw(t, "kind"), Name: fmt.Sprint(i, word.Draw(t, "name")),
				Digest: digestOf(word.Draw(t, "digest")), Text: rapid.StringN(1, 50, -1).Draw(t, "text"),
			})
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "local") {
			b.Local = append(b.Local, fmt.Sprint(i, word.Draw(t, "name")))
		}
		return b
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, err := Encode(bundles().Draw(t, "bundle"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Encode(b); err != nil || !bytes.Equal(raw, again) {
			t.Fatalf("decoded and encoded again: other bytes (%v)", err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	raw, err := Encode(testBundle())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := Decode(raw)
		if err != nil {
			return
		}
		if again, err := Encode(b); err != nil || !bytes.Equal(raw, again) {
			t.Fatalf("a second encoding of one bundle was accepted (%v)", err)
		}
	})
}

func TestBlobRoundTripAndLimits(t *testing.T) {
	for name, b := range map[string]*Blob{
		"both":     {Manifest: []byte("m"), Bundle: []byte("b"), URL: "file:///a"},
		"neither":  {Manifest: []byte("m")},
		"http":     {Manifest: []byte("m"), URL: "http://example.org/a"},
		"relative": {Manifest: []byte("m"), URL: "file://a/b"},
		"user":     {Manifest: []byte("m"), URL: "https://a:b@example.org/"},
		"space":    {Manifest: []byte("m"), URL: "https://example.org/a b"},
		"query":    {Manifest: []byte("m"), URL: "file:///a?b"},
	} {
		if _, err := EncodeBlob(b); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, b := range []*Blob{{Manifest: []byte("m"), Bundle: []byte("b")}, {Manifest: []byte("m"), URL: "file:///srv/web.bundle"}} {
		raw, err := EncodeBlob(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeBlob(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Error(diff)
		}
		for n := range raw {
			if _, err := DecodeBlob(raw[:n]); !errors.Is(err, errs.ErrInvalid) {
				t.Fatalf("the first %d bytes: %v", n, err)
			}
		}
	}
}

func FuzzDecodeBlob(f *testing.F) {
	for _, b := range []*Blob{{Manifest: []byte("m"), Bundle: []byte("b")}, {Manifest: []byte("m"), URL: "https://example.org/a"}} {
		raw, err := EncodeBlob(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := DecodeBlob(raw)
		if err != nil {
			return
		}
		if len(b.Bundle) == 0 && b.URL == "" {
			return // Encode wants bytes; Match refuses none of them
		}
		if again, err := EncodeBlob(b); err != nil || !bytes.Equal(raw, again) {
			t.Fatalf("a second encoding of one blob was accepted (%v)", err)
		}
	})
}
