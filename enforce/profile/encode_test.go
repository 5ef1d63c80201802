package profile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// docExample is the worked example of docs/profile-format.md.
func docExample() *Profile {
	return &Profile{
		Name: "web", ABI: 10, Degrade: true,
		Layers: []Layer{
			{Name: "host", FS: FSExecute | ro, Net: NetBindTCP, Scope: ScopeSignal, Log: LogNewExecOn},
			{Name: "app", FS: FSReadFile | FSMakeReg, QuietFS: FSReadFile},
		},
		Paths: []PathRow{
			{Path: "/etc", Missing: Skip, Access: []Access{ro, FSReadFile | QuietRule}},
			{Path: "/usr", Missing: Fail, Access: []Access{FSExecute | ro, FSReadFile}},
		},
		Ports: []PortRow{{8000, 8010, []Access{NetBindTCP, 0}}},
	}
}

func goldenProfiles() map[string]*Profile {
	all := &Profile{
		Name: "everything", ABI: 11, Degrade: true, AcceptSharedInode: true, AcceptReferFlatten: true, Flatten: true,
		Layers: []Layer{{
			Name: "all", FS: Handled(FS, 11), Net: Handled(Net, 11), Scope: Handled(Scope, 11),
			QuietFS: Handled(FS, 11), QuietNet: Handled(Net, 11), QuietScope: Handled(Scope, 11), Log: logFlagsKnown(11),
		}},
		Paths: []PathRow{{Path: "/", Missing: Fail, Access: []Access{Handled(FS, 11) | QuietRule}}, {Path: "/\xff\xfe not utf-8", Missing: Skip, Access: []Access{QuietRule}}},
		Ports: []PortRow{{0, 65535, []Access{Handled(Net, 11) | QuietRule}}},
	}
	layers := make([]Layer, 20)
	for i := range layers {
		layers[i] = Layer{Name: fmt.Sprintf("layer %d", i), FS: ro}
	}
	b := NewBuilder(layers)
	for i := range layers {
		b.AddPath(i, fmt.Sprintf("/srv/%02d", i), ro, false, Fail)
	}
	deep, err := b.Build()
	if err != nil {
		panic(err)
	}
	return map[string]*Profile{
		"doc-example": docExample(),
		"smallest":    {ABI: 6, Layers: []Layer{{Name: "s", Scope: ScopeSignal}}},
		"everything":  all,
		"deep":        deep,
	}
}

func TestGolden(t *testing.T) {
	for name, p := range goldenProfiles() {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".profile")
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
				t.Errorf("encoding has changed, which old stores will not read\ngot  %x\nwant %x", got, want)
			}
			back, err := Decode(want)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, p) {
				t.Errorf("decoded %+v, want %+v", back, p)
			}
		})
	}
}

// The example in the format's description is what the code writes: the bytes
// at the start of each line of its hex block, and its digest.
func TestDocExample(t *testing.T) {
	doc, err := os.ReadFile("../../docs/profile-format.md")
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
	want := docExample().Encode()
	if !bytes.Equal(got, want) {
		t.Errorf("the description's example is\n%x\nthe code writes\n%x", got, want)
	}
	if !strings.Contains(string(doc), Digest(want)) {
		t.Errorf("the description lacks the example's digest %s", Digest(want))
	}
	for _, limit := range []int{MaxLayers, MaxPathRows, MaxPortRows, MaxPath, MaxName, MaxMasks, MaxEncoded} {
		if !strings.Contains(string(doc), fmt.Sprintf("| %d |", limit)) {
			t.Errorf("the description lacks the limit %d", limit)
		}
	}
}

func TestEncodeRoundTrip(t *testing.T) {
	rounds(t, 500, func(t *testing.T, r *rand.Rand, p *Profile) {
		b := p.Encode()
		back, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, p) {
			t.Errorf("decoded %+v, want %+v", back, p)
		}
		if again := back.Encode(); !bytes.Equal(again, b) {
			t.Errorf("encoded again %x, want %x", again, b)
		}
	})
}

// Every prefix and every changed byte is refused or is another profile: no two
// byte strings give one profile.
func TestDecodeStrict(t *testing.T) {
	good := docExample().Encode()
	for n := range good {
		if _, err := Decode(good[:n]); !errors.Is(err, ErrFormat) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if p, err := Decode(bad); err == nil && !bytes.Equal(p.Encode(), bad) {
				t.Errorf("byte %d bit %d: decoded but encodes otherwise", i, bit)
			}
		}
	}
	// What a writer with other ideas would write, with a good checksum.
	edit := func(at int, with ...byte) []byte {
		return reseal(append(append(bytes.Clone(good[:at]), with...), good[at+1:]...))
	}
	for i := len(magic) + 1; i < len(good); i++ {
		bad := bytes.Clone(good)
		bad[i] ^= 0xff
		if _, err := Decode(bad); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	tests := []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"nothing", nil, ErrFormat},
		{"first bytes alone", good[:len(magic)+1], ErrFormat},
		{"a checksum alone", reseal(bytes.Clone(good[:len(magic)+1+sumBytes])), ErrFormat},
		{"text", []byte("apiVersion: policyd/v1\n"), ErrFormat},
		{"one byte more", append(bytes.Clone(good), 0), ErrFormat},
		{"one byte more before the checksum", edit(len(good)-sumBytes, 0, 0), ErrFormat},
		{"version 1", edit(8, 1), ErrVersion},
		{"version 3", edit(8, 3), ErrVersion},
		{"version 0", edit(8, 0), ErrVersion},
		{"abi 0", edit(9, 0), ErrInvalid},
		{"abi 12", edit(9, 12), ErrInvalid},
		{"unknown flag", edit(10, 0x10), ErrFormat},
		{"overlong length of name", edit(11, 0x83, 0x00), ErrFormat},
		{"name of 256 bytes", edit(11, 0x80, 0x02), ErrLimit},
		{"number of six bytes", edit(15, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01), ErrFormat},
		{"number beyond 32 bits", edit(21, 0xff, 0xff, 0xff, 0xff, 0x1f), ErrLimit},
		{"layers beyond the limit", edit(15, 0x81, 0x08), ErrLimit},
		{"layers beyond the bytes", edit(15, 0x80, 0x08), ErrFormat},
		{"no layers", edit(15, 0), ErrFormat},
		{"log flag 8", edit(27, 8), ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if p, err := Decode(tt.bytes); !errors.Is(err, tt.want) {
				t.Errorf("decoded %+v, error %v, want %v", p, err, tt.want)
			}
		})
	}
	if _, err := Decode(make([]byte, MaxEncoded+1)); !errors.Is(err, ErrLimit) {
		t.Errorf("too many bytes: %v", err)
	}
}

// A few bytes that announce the largest tables must not make room for them.
func TestDecodeAllocatesWithinItsInput(t *testing.T) {
	head := append([]byte(magic), formatVersion, 1, 0, 0)
	layer := []byte{1, 'a', 1, 0, 0, 0, 0, 0, 0}
	inputs := map[string][]byte{
		"layers": append(bytes.Clone(head), 0x80, 0x08),
		"paths":  append(append(append(bytes.Clone(head), 1), layer...), 0x80, 0x80, 0x40),
		"ports":  append(append(append(bytes.Clone(head), 1), layer...), 0, 0x80, 0x80, 0x04),
	}
	for name, in := range inputs {
		t.Run(name, func(t *testing.T) {
			in = reseal(append(in, make([]byte, 64)...))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(in)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("decoded")
			}
			// The error's text and the runtime itself take some.
			if got := after.TotalAlloc - before.TotalAlloc; got > 1<<14 {
				t.Errorf("%d bytes allocated for %d of input", got, len(in))
			}
		})
	}
}

// reseal makes the last bytes the checksum of those before, in place.
func reseal(b []byte) []byte {
	at := len(b) - sumBytes
	binary.BigEndian.PutUint32(b[at:], checksum(b[:at]))
	return b
}

func unsealed(p *Profile) []byte {
	b := p.Encode()
	return b[:len(b)-sumBytes]
}

func FuzzDecode(f *testing.F) {
	for _, p := range goldenProfiles() {
		f.Add(unsealed(p))
	}
	for seed := range uint64(20) {
		f.Add(unsealed(randomProfile(rand.New(rand.NewPCG(seed, 1)))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = reseal(append(bytes.Clone(b), make([]byte, sumBytes)...))
		p, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrLimit) && !errors.Is(err, ErrInvalid) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		if got := p.Encode(); !bytes.Equal(got, b) {
			t.Errorf("encoded again %x, was %x", got, b)
		}
		ix := NewIndex(p)
		for i := range p.Paths {
			if x, y := p.DecidePath(p.Paths[i].Path, Handled(FS, MaxABI)), ix.DecidePath(p.Paths[i].Path, Handled(FS, MaxABI)); !reflect.DeepEqual(x, y) {
				t.Errorf("%q: walk %+v, index %+v", p.Paths[i].Path, x, y)
			}
		}
		if _, err := Flatten(p); err != nil {
			t.Errorf("flatten: %v", err)
		}
	})
}
