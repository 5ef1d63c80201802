package smack

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/smack/smacktest"
)

// layered is a platform's rules under a ceiling that leaves x and t alone.
func layered(t testing.TB) *Policy {
	t.Helper()
	b := NewBuilder("phone")
	for _, l := range []struct {
		name    string
		handled Access
		text    string
	}{
		{"platform", AllAccess, "App Data rwxl\nApp Log a\nApp Off r\nWeb Data rw\nWeb Data - r\nSystem App rwxat\n"},
		{"ceiling", AllAccess &^ (Execute | Transmute), "App Data rl\nApp Off -\nWeb Data w\nSystem App rwa\nNobody Data r\n"},
	} {
		if err := b.Layer(l.name, l.handled).Text(l.name, []byte(l.text)); err != nil {
			t.Fatal(err)
		}
	}
	p, warnings, err := b.Build()
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	return p
}

func TestPolicyLayers(t *testing.T) {
	p := layered(t)
	var rows []string
	for r := range p.Rows() {
		row := r.Subject + " " + r.Object
		for i := range p.Layers {
			if a, ok := r.In(i); ok {
				row += " " + a.String()
			} else {
				row += " none"
			}
		}
		rows = append(rows, row)
	}
	want := []string{"App Data rwxl rl", "App Log a none", "App Off r -", "Nobody Data none r", "System App rwxat rwa", "Web Data w w"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	// x and t pass the ceiling; what only the ceiling names is nothing.
	want = []string{"App Data rxl", "App Log -", "App Off -", "Nobody Data -", "System App rwxat", "Web Data w"}
	if got := lines(p.Effective()); !slices.Equal(got, want) {
		t.Errorf("effective %q, want %q", got, want)
	}
	if p.Len() != 6 || p.Labels() != 7 || !p.HasLabel("Nobody") || p.HasLabel("Nope") || p.Label(0) != "App" {
		t.Errorf("%d rows, %d labels", p.Len(), p.Labels())
	}
}

// Lock is implied by write on the way through the layers and is not written
// where it was not.
func TestPolicyLock(t *testing.T) {
	for _, c := range []struct{ lower, upper, want string }{
		{"w", "w", "w"},
		{"w", "rl", "l"},
		{"wl", "w", "w"},
		{"wl", "wl", "wl"},
		{"rl", "rw", "rl"},
		{"r", "l", "-"},
	} {
		b := NewBuilder("")
		for i, text := range []string{c.lower, c.upper} {
			a, _ := ParseAccess(text)
			if err := b.Layer(fmt.Sprint(i), AllAccess).Set(Place{}, "A", "B", a); err != nil {
				t.Fatal(err)
			}
		}
		p, _, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := p.Effective().Lookup("A", "B"); got.String() != c.want {
			t.Errorf("%s under %s is %s, want %s", c.lower, c.upper, got, c.want)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		build func(b *Builder)
		want  error
	}{
		"no layer":       {func(*Builder) {}, ErrInvalid},
		"two of a name":  {func(b *Builder) { b.Layer("a", Read); b.Layer("a", Read) }, ErrInvalid},
		"no name":        {func(b *Builder) { b.Layer("", Read) }, ErrInvalid},
		"control":        {func(b *Builder) { b.Layer("a\n", Read) }, ErrInvalid},
		"long name":      {func(b *Builder) { b.Layer(strings.Repeat("n", 256), Read) }, ErrLimit},
		"nothing":        {func(b *Builder) { b.Layer("a", 0) }, ErrInvalid},
		"not a letter":   {func(b *Builder) { b.Layer("a", 0x80|Read) }, ErrInvalid},
		"l without w":    {func(b *Builder) { b.Layer("a", Read|Lock) }, ErrInvalid},
		"many layers":    {func(b *Builder) { manyLayers(b, MaxLayers+1) }, ErrLimit},
		"unhandled":      {func(b *Builder) { _ = b.Layer("a", Read).Set(Place{}, "A", "B", Write) }, ErrInvalid},
		"unhandled deny": {func(b *Builder) { _ = b.Layer("a", Read).Modify(Place{}, "A", "B", 0, Write) }, ErrInvalid},
		"label":          {func(b *Builder) { _ = b.Layer("a", Read).Set(Place{}, "A", "", Read) }, ErrLabel},
	} {
		b := NewBuilder("p")
		c.build(b)
		if _, _, err := b.Build(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	b := NewBuilder("p")
	manyLayers(b, MaxLayers)
	if _, _, err := b.Build(); err != nil {
		t.Error(err)
	}
	if _, _, err := NewBuilder("a\x7f").Build(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a name with DEL: %v", err)
	}
	err := NewBuilder("p").Layer("l", AllAccess).Set(Place{"f.yaml", 3, 7}, "A", "b/c", Read)
	if err == nil || !strings.HasPrefix(err.Error(), `f.yaml:3:7: label "b/c"`) {
		t.Errorf("%v does not tell the place", err)
	}
}

func manyLayers(b *Builder, n int) {
	for i := range n {
		b.Layer(fmt.Sprint(i), AllAccess)
	}
}

// The same rules give the same policy, in whatever order they came.
func TestBuildOrder(t *testing.T) {
	text := strings.Split(strings.TrimSpace(string(smacktest.Shape{Rules: 500, Labels: 40, Seed: 5}.Text())), "\n")
	first, _, err := ParseRules("f", []byte(strings.Join(text, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(text)
	second, _, err := ParseRules("f", []byte(strings.Join(text, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(text)
	slices.Sort(want)
	got := lines(second)
	slices.Sort(got)
	if !slices.Equal(lines(first), lines(second)) || !slices.Equal(got, want) {
		t.Error("the order of the rules changes the set, or rules are lost")
	}
	if !slices.IsSortedFunc(slices.Collect(first.All()), func(a, b Rule) int {
		return strings.Compare(a.Subject+" "+a.Object, b.Subject+" "+b.Object)
	}) {
		t.Error("the rules are not in order")
	}
}

// A rule takes at most 8 bytes beside the text of the labels, and one more for
// each further layer.
func TestPackedSize(t *testing.T) {
	for _, c := range []struct {
		layers int
		most   float64
	}{{1, 8}, {2, 9}, {5, 12}} {
		b := NewBuilder("p")
		text := smacktest.Platform.Text()
		for i := range c.layers {
			if err := b.Layer(fmt.Sprint(i), AllAccess).Text("f", text); err != nil {
				t.Fatal(err)
			}
		}
		const copies = 20
		kept := make([]*Policy, copies)
		before := heap()
		for i := range kept {
			var err error
			if kept[i], _, err = b.Build(); err != nil {
				t.Fatal(err)
			}
		}
		grown := float64(heap()-before) / copies
		perRule := (grown - float64(len(kept[0].t.text))) / float64(kept[0].Len())
		t.Logf("%d layers: %.2f bytes a rule", c.layers, perRule)
		if perRule > c.most {
			t.Errorf("%d layers: %.2f bytes a rule, at most %v", c.layers, perRule, c.most)
		}
		runtime.KeepAlive(kept)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Parsing and compiling the platform's rules takes at most 400 KiB beside the text.
func TestPeakMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	text := smacktest.Platform.Text()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, _, err := ParseRules("f", text)
	runtime.ReadMemStats(&after)
	if err != nil || s.Len() != smacktest.Platform.Rules {
		t.Fatal(s, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 400<<10 {
		t.Errorf("%d KiB allocated in all, at most 400", used>>10)
	}
}
