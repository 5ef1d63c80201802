package fleet

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/errs"
)

func signedManifest(t testing.TB, fleet string, signers ...note.Signer) (raw, signed []byte) {
	t.Helper()
	raw, err := Encode(testBundle())
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewManifest(fleet, raw, testTime, "why")
	if err != nil {
		t.Fatal(err)
	}
	signed, err = SignManifest(m, signers...)
	if err != nil {
		t.Fatal(err)
	}
	return raw, signed
}

func signedPointer(t testing.TB, change func(*Pointer), signers ...note.Signer) []byte {
	t.Helper()
	p := testPointer()
	if change != nil {
		change(p)
	}
	signed, err := SignPointer(p, signers...)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestPointerRefusals(t *testing.T) {
	k := newKeys(t)
	stranger := newTestKey(t, "ci") // another key of a trusted name
	_, manifest := signedManifest(t, "prod", k.ci.signer)
	good := signedPointer(t, nil, k.ci.signer)
	for name, tc := range map[string]struct {
		signed    []byte
		threshold int
		want      error
	}{
		"good":                        {good, 1, nil},
		"both keys":                   {signedPointer(t, nil, k.ci.signer, k.night.signer), 2, nil},
		"one too few":                 {good, 2, errs.ErrTooFewSignatures},
		"one key twice":               {append(bytes.Clone(good), good[bytes.LastIndex(good, []byte("—")):]...), 2, errs.ErrTooFewSignatures},
		"a content key":               {signedPointer(t, nil, k.alice.signer), 1, errs.ErrTooFewSignatures},
		"content and rollout":         {signedPointer(t, nil, k.alice.signer, k.ci.signer), 2, errs.ErrTooFewSignatures},
		"another key of that name":    {signedPointer(t, nil, stranger.signer), 1, errs.ErrTooFewSignatures},
		"other fleet":                 {signedPointer(t, func(p *Pointer) { p.Fleet = "test" }, k.ci.signer), 1, errs.ErrWrongFleet},
		"other channel":               {signedPointer(t, func(p *Pointer) { p.Channel = "canary" }, k.ci.signer), 1, errs.ErrWrongChannel},
		"a manifest":                  {manifest, 1, errs.ErrWrongType},
		"empty":                       {nil, 1, errs.ErrTampered},
		"text without signature":      {[]byte(testPointer().Text()), 1, errs.ErrTampered},
		"text changed":                {bytes.Replace(good, []byte("percent 500"), []byte("percent 2500"), 1), 1, errs.ErrTampered},
		"line added":                  {bytes.Replace(good, []byte("percent"), []byte("extra 1\npercent"), 1), 1, errs.ErrTampered},
		"signature of something else": {append([]byte(testPointer().Text()+"\n"), manifest[bytes.LastIndex(manifest, []byte("—")):]...), 1, errs.ErrTampered},
		"far too large":               {bytes.Repeat([]byte("x"), maxPointerBytes+1), 1, errs.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := OpenPointer(tc.signed, k.trust(tc.threshold), "prod", "stable")
			if !errors.Is(err, tc.want) {
				t.Fatalf("have %v, want %v", err, tc.want)
			}
			if tc.want == nil {
				if diff := cmp.Diff(testPointer(), p); diff != "" {
					t.Error(diff)
				}
			} else if p != nil {
				t.Error("a refused pointer was given out")
			}
		})
	}
}

// Whatever single byte is changed, what is read is refused, or is the very same
// pointer (a name in a signature line that nobody counts, the two bits that the
// last character of a signature in base64 has to spare).
func TestEveryTamperedByte(t *testing.T) {
	k := newKeys(t)
	good := signedPointer(t, nil, k.ci.signer)
	for i := range good {
		for _, x := range []byte{1, 0x20, 0x80} {
			bad := bytes.Clone(good)
			bad[i] ^= x
			if p, err := OpenPointer(bad, k.trust(1), "prod", "stable"); err == nil && !cmp.Equal(testPointer(), p) {
				t.Fatalf("byte %d ^ %#x was accepted: %+v", i, x, p)
			}
		}
	}
}

// A text that a trusted key has signed and that has not the one form is refused too.
func TestSignedButNotCanonical(t *testing.T) {
	k := newKeys(t)
	text := testPointer().Text()
	for name, changed := range map[string]string{
		"number with zero": strings.Replace(text, "seq 7", "seq 07", 1),
		"line missing":     strings.Replace(text, "sticky false\n", "", 1),
		"line twice":       strings.Replace(text, "seq 7\n", "seq 7\nseq 7\n", 1),
		"line at the end":  text + "more\n",
		"order of labels":  strings.Replace(text, "tier=,zone=eu", "zone=eu,tier=", 1),
		"label twice":      strings.Replace(text, "tier=,zone=eu", "tier=,tier=,zone=eu", 1),
		"time elsewhere":   strings.Replace(text, "issued 2026-11-30T12:00:00Z", "issued 2026-11-30T13:00:00+01:00", 1),
		"sticky maybe":     strings.Replace(text, "sticky false", "sticky maybe", 1),
		"stages fall":      strings.Replace(text, "stages 100,500", "stages 500,100", 1),
		"no last stage":    strings.Replace(text, ",2500,10000", ",2500", 1),
		"percent no stage": strings.Replace(text, "percent 500", "percent 501", 1),
		"soak below 0":     strings.Replace(text, "soak 10m0s", "soak -10m0s", 1),
		"seq 0":            strings.Replace(text, "seq 7", "seq 0", 1),
		"seq too large":    strings.Replace(text, "seq 7", "seq 99999999999999999999", 1),
		"expired at birth": strings.Replace(text, "not_after 2026-12-30", "not_after 2026-10-30", 1),
		"digest short":     strings.Replace(text, "digest sha256:", "digest sha256:0", 1),
		"of the year 0":    strings.Replace(text, "issued 2026", "issued 0000", 1),
		"huge percent":     strings.Replace(text, "percent 500", "percent 18446744073709551615", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if changed == text {
				t.Fatal("nothing was changed")
			}
			signed, err := sign(changed, []note.Signer{k.ci.signer})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := OpenPointer(signed, k.trust(1), "prod", "stable"); !errors.Is(err, errs.ErrInvalid) {
				t.Errorf("have %v", err)
			}
		})
	}
}

func TestFollows(t *testing.T) {
	p := testPointer()
	other := testPointer()
	other.Message = "another"
	for name, tc := range map[string]struct {
		seq  uint64
		id   string
		want error
	}{
		"the first":             {0, "", nil},
		"newer":                 {6, "x", nil},
		"the same":              {7, p.ID(), nil},
		"same number, other":    {7, other.ID(), errs.ErrOlderSequence},
		"older":                 {8, "x", errs.ErrOlderSequence},
		"older after overtake":  {1 << 63, "x", errs.ErrOlderSequence},
		"older, equal contents": {8, p.ID(), errs.ErrOlderSequence},
	} {
		if err := p.Follows(tc.seq, tc.id); !errors.Is(err, tc.want) {
			t.Errorf("%s: have %v, want %v", name, err, tc.want)
		}
	}
	if err := p.Expired(p.NotAfter); err != nil {
		t.Error(err)
	}
	if err := p.Expired(p.NotAfter.Add(time.Second)); !errors.Is(err, errs.ErrExpired) {
		t.Error(err)
	}
}

func TestManifestAndBlob(t *testing.T) {
	k := newKeys(t)
	raw, signed := signedManifest(t, "prod", k.alice.signer)
	digest := Digest(raw)
	_, foreign := signedManifest(t, "test", k.alice.signer)
	_, byRollout := signedManifest(t, "prod", k.ci.signer)

	// A manifest that lists less than is in the bundle, signed by a content key.
	m, err := NewManifest("prod", raw, testTime, "")
	if err != nil {
		t.Fatal(err)
	}
	m.Docs = m.Docs[1:]
	unlisted, err := SignManifest(m, k.alice.signer)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(raw)
	changed[len(changed)-6] ^= 1

	for name, tc := range map[string]struct {
		blob      Blob
		digest    string
		content   []byte
		threshold int
		want      error
	}{
		"good":              {Blob{signed, raw, ""}, digest, nil, 1, nil},
		"by reference":      {Blob{signed, nil, "https://example.org/a"}, digest, raw, 1, nil},
		"wrong content":     {Blob{signed, nil, "https://example.org/a"}, digest, changed, 1, errs.ErrTampered},
		"no content":        {Blob{signed, nil, "https://example.org/a"}, digest, nil, 1, errs.ErrTampered},
		"byte changed":      {Blob{signed, changed, ""}, digest, nil, 1, errs.ErrTampered},
		"another bundle":    {Blob{signed, raw, ""}, digestOf("x"), nil, 1, errs.ErrTampered},
		"fleet":             {Blob{foreign, raw, ""}, digest, nil, 1, errs.ErrWrongFleet},
		"rollout key":       {Blob{byRollout, raw, ""}, digest, nil, 1, errs.ErrTooFewSignatures},
		"one too few":       {Blob{signed, raw, ""}, digest, nil, 2, errs.ErrTooFewSignatures},
		"not all is listed": {Blob{unlisted, raw, ""}, digest, nil, 1, errs.ErrTampered},
		"a pointer":         {Blob{signedPointer(t, nil, k.alice.signer), raw, ""}, digest, nil, 1, errs.ErrWrongType},
	} {
		t.Run(name, func(t *testing.T) {
			m, b, err := tc.blob.Open(k.trust(tc.threshold), "prod", tc.digest, tc.content)
			if !errors.Is(err, tc.want) {
				t.Fatalf("have %v, want %v", err, tc.want)
			}
			if tc.want == nil && (len(b.Docs) != 3 || m.Message != "why" || m.Docs[0].Name != "web") {
				t.Errorf("have %+v %+v", m, b)
			}
			if tc.want != nil && b != nil {
				t.Error("a refused bundle was given out")
			}
		})
	}

	both, err := AddSignature(signed, k.bob.signer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenManifest(both, k.trust(2), "prod"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"alice", "bob"}, SignedBy(both)); diff != "" {
		t.Error(diff)
	}
	if _, err := AddSignature([]byte("nothing"), k.bob.signer); !errors.Is(err, errs.ErrTampered) {
		t.Error(err)
	}
}

func TestTrust(t *testing.T) {
	k := newKeys(t)
	renamed := "other" + k.alice.verifier[strings.IndexByte(k.alice.verifier, '+'):]
	a, b, c := k.alice.verifier, k.bob.verifier, k.ci.verifier
	for name, tc := range map[string]struct {
		trust Trust
		ok    bool
	}{
		"good":               {k.trust(2), true},
		"no keys":            {Trust{Signers{1, nil}, Signers{1, []string{c}}}, false},
		"threshold 0":        {Trust{Signers{0, []string{a}}, Signers{1, []string{c}}}, false},
		"threshold beyond":   {Trust{Signers{2, []string{a}}, Signers{1, []string{c}}}, false},
		"key twice":          {Trust{Signers{2, []string{a, a}}, Signers{1, []string{c}}}, false},
		"key under two name": {Trust{Signers{2, []string{a, renamed}}, Signers{1, []string{c}}}, false},
		"both roles":         {Trust{Signers{1, []string{a, b}}, Signers{1, []string{b}}}, false},
		"no key at all":      {Trust{Signers{1, []string{"hello"}}, Signers{1, []string{c}}}, false},
	} {
		if err := tc.trust.Check(); (err == nil) != tc.ok || err != nil && !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	private, public, err := NewKey("alice")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "content.key")
	if err := WriteKey(path, private); err != nil {
		t.Fatal(err)
	}
	if err := WriteKey(path, private); !errors.Is(err, errs.ErrExists) {
		t.Errorf("written over: %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	for _, place := range []string{path, "credential:content.key"} {
		s, err := ReadSigner(place)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := SignPointer(testPointer(), s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenPointer(signed, Trust{Rollout: Signers{1, []string{public}}}, "prod", "stable"); err != nil {
			t.Error(err)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSigner(path); !errors.Is(err, errs.ErrNotAllowed) {
		t.Errorf("a key others can read: %v", err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]error{
		bad: errs.ErrInvalid, filepath.Join(dir, "none"): os.ErrNotExist,
		"credential:../bad": errs.ErrNotFound, "credential:": errs.ErrNotFound, "credential:none": os.ErrNotExist,
	} {
		if _, err := ReadSigner(place); !errors.Is(err, want) {
			t.Errorf("%s: have %v, want %v", place, err, want)
		}
	}
	if _, _, err := NewKey("a b"); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
}

func FuzzPointer(f *testing.F) {
	f.Add(testPointer().Text())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePointer(text)
		if err == nil && p.Text() != text {
			t.Fatal("two texts of one pointer")
		}
		if err == nil {
			p.Desired("node", nil)
		}
	})
}

func FuzzManifest(f *testing.F) {
	raw, err := Encode(testBundle())
	if err != nil {
		f.Fatal(err)
	}
	m, err := NewManifest("prod", raw, testTime, "why")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Text())
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseManifest(text)
		if err == nil && m.Text() != text {
			t.Fatal("two texts of one manifest")
		}
	})
}
