package profile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const (
	ro = FSReadFile | FSReadDir
	rw = ro | FSWriteFile
)

// rule is a path rule of a test: at the path, in the layer.
type rule struct {
	layer  int
	path   string
	access Access
}

// build makes a profile with layers of these handled fs masks.
func build(t testing.TB, handled []Access, rules ...rule) *Profile {
	t.Helper()
	var layers []Layer
	for i, h := range handled {
		layers = append(layers, Layer{Name: fmt.Sprintf("l%d", i+1), FS: h})
	}
	b := NewBuilder(layers)
	for _, r := range rules {
		b.AddPath(r.layer-1, r.path, r.access, false, Fail)
	}
	return mustBuild(t, b)
}

func mustBuild(t testing.TB, b *Builder) *Profile {
	t.Helper()
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// randomProfile makes a valid profile over a small tree of names, so that rows
// are often above one another and on the paths that randomPath gives.
func randomProfile(r *rand.Rand) *Profile {
	layers := make([]Layer, 1+r.IntN(4))
	if r.IntN(8) == 0 {
		layers = make([]Layer, 17+r.IntN(4))
	}
	for i := range layers {
		l := &layers[i]
		l.Name = fmt.Sprintf("layer-%d", i)
		for l.FS|l.Net|l.Scope == 0 {
			l.FS = randomMask(r, FS)
			l.Net = randomMask(r, Net)
			l.Scope = randomMask(r, Scope)
		}
		if r.IntN(2) == 0 {
			l.QuietFS = l.FS & randomMask(r, FS)
			l.QuietNet = l.Net & randomMask(r, Net)
			l.QuietScope = l.Scope & randomMask(r, Scope)
			l.Log = LogFlags(r.IntN(8))
		}
	}
	b := NewBuilder(layers)
	for range r.IntN(20) {
		i := r.IntN(len(layers))
		l := &layers[i]
		access := l.FS & randomMask(r, FS)
		if quiet := l.QuietFS != 0 && r.IntN(3) == 0; quiet || access != 0 {
			path := randomPath(r)
			b.AddPath(i, path, access, quiet, Missing(r.IntN(2)))
			if n := strings.LastIndexByte(path, '/'); n > 0 && r.IntN(4) == 0 {
				b.KeepWithin(path, n)
			}
		}
		first := uint16(r.IntN(20))
		if access := l.Net & randomMask(r, Net); access != 0 {
			b.AddPorts(i, first, first+uint16(r.IntN(6)), access, l.QuietNet != 0 && r.IntN(3) == 0)
		}
	}
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	p.Degrade, p.Flatten = r.IntN(2) == 0, r.IntN(2) == 0
	return p
}

// randomMask gives all, none or some rights of a kind.
func randomMask(r *rand.Rand, k Kind) Access {
	all := Handled(k, MaxABI)
	switch r.IntN(4) {
	case 0:
		return 0
	case 1:
		return all
	}
	return Access(r.Uint32()) & all
}

func randomPath(r *rand.Rand) string {
	path := ""
	for range r.IntN(5) {
		// "a-" and "a!" sort between "a" and what is beneath it.
		path += "/" + []string{"a", "b", "a", "b", "a-", "a!"}[r.IntN(6)]
	}
	if path == "" {
		return "/"
	}
	return path
}

// rounds runs a property on many random profiles, each from its own seed, which
// a failure names.
func rounds(t *testing.T, n int, property func(t *testing.T, r *rand.Rand, p *Profile)) {
	t.Helper()
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 1))
		property(t, r, randomProfile(r))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
