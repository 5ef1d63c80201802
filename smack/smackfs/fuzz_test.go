package smackfs

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/smack"
)

// FuzzParseIntent: what is read is what Encode writes, and a set can be made of it.
func FuzzParseIntent(f *testing.F) {
	f.Add((&Intent{Boot: "b", Order: RevokesFirst, Changes: []Change{{"A", "B", 1, 2}, {"A", "C", 0, 127}}}).Encode())
	f.Add((&Intent{Boot: BootID()}).Encode())
	f.Add([]byte("policyd smack intent 1 b grants-first\nA B r\n"))
	f.Add([]byte("policyd smack intent 1 b grants-first\nA/x B r w\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := ParseIntent(b)
		if err != nil {
			return
		}
		if !bytes.Equal(i.Encode(), b) {
			t.Errorf("%q becomes %q", b, i.Encode())
		}
		i.Boot = BootID()
		rec, err := Recover(newModel(), nil, i)
		if err != nil || rec.Before+rec.After+rec.Between+len(rec.Other) != len(i.Changes) {
			t.Errorf("%+v, %v", rec, err)
		}
	})
}

// FuzzModel: whatever is written, the model goes on, and shows what can be read back.
func FuzzModel(f *testing.F) {
	names := slices.Sorted(maps.Keys(modelFiles))
	for _, tc := range observedWrites {
		f.Add(uint8(slices.Index(names, tc.file)), tc.old != "", []byte(tc.write))
	}
	f.Fuzz(func(t *testing.T, file uint8, old bool, data []byte) {
		fs := NewModel(ModelKernel{Old: old, Bringup: !old}).As(Root)
		name := names[int(file)%len(names)]
		f, err := fs.Open(name, unix.O_RDWR)
		if err != nil {
			if name == fileUnconf && old {
				return
			}
			t.Fatal(err)
		}
		defer f.Close()
		for range 2 {
			if n, err := f.Write(data); n < 0 || n > len(data) || err != nil && n != 0 {
				t.Errorf("%s: wrote %d of %d, %v", name, n, len(data), err)
			}
		}
		for _, l := range labelsOf(t, fs) {
			if err := smack.CheckLabel(l); err != nil {
				t.Fatalf("%s: label %q is made: %v", name, l, err)
			}
		}
		if _, err := ReadRules(fs); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSettings(fs); err != nil {
			t.Fatal(err)
		}
	})
}

// labelsOf is KernelLabels that must succeed.
func labelsOf(t *testing.T, fs FS) []string {
	t.Helper()
	labels, err := KernelLabels(fs)
	if err != nil {
		t.Fatal(err)
	}
	return labels
}

// textFS shows a text as load2.
type textFS struct {
	FS
	text string
}

func (s textFS) Open(name string, flag int) (File, error) {
	if name == fileLoad2 {
		return &textFile{Reader: strings.NewReader(s.text)}, nil
	}
	return s.FS.Open(name, flag)
}

type textFile struct{ io.Reader }

func (*textFile) Write([]byte) (int, error) { return 0, unix.EIO }
func (*textFile) Close() error              { return nil }

// FuzzReadRules: any text of load2 gives its rules or an error.
func FuzzReadRules(f *testing.F) {
	f.Add("A B rwxatlb\nA C r\n")
	f.Add("A B r\nA B r\nB A w\n")
	f.Add("A B")
	f.Add("A B rq\n")
	f.Add("A  r\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadRules(textFS{newModel(), text})
		if err != nil {
			return
		}
		c, err := compareKernel(textFS{newModel(), text}, s, s)
		if err != nil || c.changes.Len() > 0 || len(c.foreign) > 0 {
			// A pair shown twice with two accesses is what the last says to one and the first to the other.
			seen := map[string]bool{}
			for line := range strings.Lines(text) {
				pair := line[:strings.LastIndexByte(line, ' ')]
				if seen[pair] {
					return
				}
				seen[pair] = true
			}
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestReadRulesRefuses: what is no text of load2 is an error, not an empty kernel.
func TestReadRulesRefuses(t *testing.T) {
	for _, text := range []string{"A B", "A B\n", "A B r", "A  r\n", " A B r\n", "A B C r\n", "A B rq\n", "A B \n", "\n", "A/x B r\n", strings.Repeat("A", 40<<10) + " B r\n"} {
		if s, err := ReadRules(textFS{newModel(), text}); err == nil {
			t.Errorf("%.40q: %d rules", text, s.Len())
		}
	}
	if _, err := Load(t.Context(), textFS{newModel(), "A B"}, setOf(t, "A B r"), nil, Options{}); err == nil {
		t.Error("loaded")
	}
	// While others make labels the kernel shows rules again.
	r, err := Load(t.Context(), textFS{newModel(), "A B r\nC D w\nA B r\nC D w\nX Y r\nX Y r\n"}, setOf(t, "A B r", "C D w"), setOf(t, "A B r", "C D w"), Options{})
	if err != nil || r.Rules != 3 || r.Kept != 2 || len(r.Foreign) != 1 || r.Changes.Len() != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = Load(t.Context(), textFS{newModel(), ""}, setOf(t, "A B r"), nil, Options{})
	if !errors.Is(err, unix.EIO) {
		t.Errorf("a smackfs that takes nothing: %v", err)
	}
}

func TestParseIntentRefuses(t *testing.T) {
	for _, s := range []string{
		"", "\n", "policyd smack intent 1", "policyd smack intent 1 b\n", "policyd smack intent 2 b grants-first\n",
		"policyd smack intent 1 b sideways\n", "policyd smack intent 1  grants-first\n",
		"policyd smack intent 1 b grants-first\nA B r w", "policyd smack intent 1 b grants-first\nA B r\n",
		"policyd smack intent 1 b grants-first\nA B R w\n", "policyd smack intent 1 b grants-first\nA B wr w\n",
		"policyd smack intent 1 b grants-first\n-A B r w\n", "policyd smack intent 1 b grants-first\nA B r q\n",
	} {
		if i, err := ParseIntent([]byte(s)); err == nil {
			t.Errorf("%q: %+v", s, i)
		}
	}
	rec, err := Recover(newModel(), setOf(t, "A B r"), &Intent{Boot: "of another time", Changes: []Change{{"A", "B", 0, 1}}})
	if err != nil || !rec.Rebooted || rec.Owned.Len() != 0 {
		t.Errorf("after a reboot: %+v, %v", rec, err)
	}
}
