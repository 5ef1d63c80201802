package smack

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

	"policyd.dev/policyd/smack/smacktest"
)

var update = flag.Bool("update", false, "write the golden files")

// samples are the policies of the golden files.
func samples(t testing.TB) map[string]*Policy {
	t.Helper()
	smallest, _, err := func() (*Policy, Problems, error) {
		b := NewBuilder("")
		b.Layer("l", AllAccess)
		return b.Build()
	}()
	if err != nil {
		t.Fatal(err)
	}
	everything := layered(t)
	everything.Settings = everySetting()
	b := NewBuilder("platform")
	if err := b.Layer("rules", AllAccess).Text("f", smacktest.Shape{Rules: 400, Labels: 30, Seed: 4}.Text()); err != nil {
		t.Fatal(err)
	}
	rules, _, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*Policy{"smallest": smallest, "everything": everything, "rules": rules}
}

func TestEncodeGolden(t *testing.T) {
	for name, p := range samples(t) {
		file := filepath.Join("testdata", name+".smackpolicy")
		got := p.Encode()
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the encoding changed", name)
		}
		back, err := Decode(want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(back.Encode(), want) || Digest(want) != Digest(got) {
			t.Errorf("%s: what is decoded is another policy", name)
		}
		if !back.Effective().Difference(p.Effective()).Empty() || len(back.Settings.Difference(&p.Settings)) != 0 || back.Name != p.Name || back.Len() != p.Len() {
			t.Errorf("%s: something is lost", name)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := samples(t)["everything"].Encode()
	change := func(from, to string) []byte {
		f, _ := hex.DecodeString(from)
		x, _ := hex.DecodeString(to)
		if bytes.Count(good, f) != 1 {
			t.Fatalf("%s stands %d times in %x", from, bytes.Count(good, f), good)
		}
		return bytes.Replace(bytes.Clone(good), f, x, 1)
	}
	text := func(s string) string { return hex.EncodeToString([]byte(s)) }
	for name, c := range map[string]struct {
		in   []byte
		want error
		text string
	}{
		"nothing":            {nil, ErrFormat, "does not begin"},
		"another magic":      {append([]byte("\x89PDLP"), good[5:]...), ErrFormat, "does not begin"},
		"a later version":    {append([]byte(magic+"\x02"), good[9:]...), ErrVersion, "2, this program reads 1"},
		"a byte more":        {append(bytes.Clone(good), 0), ErrFormat, "1 bytes behind the end"},
		"an overlong number": {change("05"+text("phone"), "8500"+text("phone")), ErrFormat, "shortest form"},
		"a huge count":       {change("05"+text("phone")+"02", "05"+text("phone")+"ffffff0f"), ErrFormat, "at most 64"},
		"labels that do not fit": {
			change("07"+"03"+text("App"), "ffff03"+"03"+text("App")), ErrFormat,
			"do not fit",
		},
		"a bad label":         {change("03"+text("App"), "03"+text("A/p")), ErrFormat, "'/' (0x2f)"},
		"labels out of order": {change("03"+text("App"), "03"+text("Zpp")), ErrFormat, "stands behind"},
		"a layer of nothing":  {change(text("platform")+"7f", text("platform")+"00"), ErrFormat, "handles no letter"},
		"two layers alike":    {change("07"+text("ceiling"), "08"+text("platform")), ErrFormat, "two layers"},
		"onlycap out of order": {
			change("06"+text("System")+"01"+text("_")+"02", "01"+text("_")+"06"+text("System")+"02"), ErrFormat,
			"not in order",
		},
		"an unknown flag": {change("03"+text("Lab")+"00", "03"+text("Lab")+"08"), ErrFormat, "not in order"},
	} {
		if _, err := Decode(c.in); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
	for n := range good {
		if _, err := Decode(good[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a policy", n, len(good))
		}
	}
}

// No byte can change without the policy becoming another one or none.
func TestDecodeEveryBit(t *testing.T) {
	good := samples(t)["everything"].Encode()
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			if p, err := Decode(b); err == nil && !bytes.Equal(p.Encode(), b) {
				t.Fatalf("byte %d bit %d: two encodings of one policy", i, bit)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, p := range samples(f) {
		f.Add(p.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		if again := p.Encode(); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		s := p.Effective()
		if s.Len() != p.Len() || s.Labels() != p.Labels() {
			t.Fatal("rows are lost")
		}
		for r := range s.All() {
			if got, ok := s.Lookup(r.Subject, r.Object); !ok || got != r.Access {
				t.Fatalf("%v is not found", r)
			}
		}
	})
}

// docExample is the worked example of docs/formats.md.
func docExample(t *testing.T) *Policy {
	t.Helper()
	b := NewBuilder("phone")
	if err := b.Layer("platform", AllAccess).Text("f", []byte("App Data rwx\nApp Log a\n")); err != nil {
		t.Fatal(err)
	}
	if err := b.Layer("ceiling", Read|Write|Append|Lock).Text("f", []byte("App Data rl\n")); err != nil {
		t.Fatal(err)
	}
	p, _, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewNetlabel("127.0.0.1", NetlabelCIPSO)
	if err != nil {
		t.Fatal(err)
	}
	p.Settings = Settings{PTrace: new(uint8(1)), Onlycap: []string{"System"}, Cipso: []Cipso{{"App", 7, []int{1, 2}}}, Netlabel: []Netlabel{n}}
	return p
}

// The example in the format's description is what the code writes: the bytes
// at the start of each line of its hex block, and its digest.
func TestDocExample(t *testing.T) {
	doc, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(doc), "```hex\n")
	block, _, ok2 := strings.Cut(block, "```")
	if !ok || !ok2 {
		t.Fatal("no hex block in the description")
	}
	var got []byte
	for line := range strings.Lines(block) {
		digits, _, _ := strings.Cut(line, ";")
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		got = append(got, b...)
	}
	want := docExample(t).Encode()
	if !bytes.Equal(got, want) {
		t.Errorf("the description's example is\n%x\nthe code writes\n%x", got, want)
	}
	if !strings.Contains(string(doc), Digest(want)) {
		t.Errorf("the description lacks the example's digest %s", Digest(want))
	}
	for _, limit := range []int{MaxLayers, MaxLabels, MaxLabel, MaxRules, maxRowLayers, maxEntries, maxPolicyBytes} {
		if !strings.Contains(string(doc), fmt.Sprintf("| %d |", limit)) {
			t.Errorf("the description lacks the limit %d", limit)
		}
	}
}
