package smackfs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/smack"
)

// hookFS looks at every write before it is made. The hook's error is the write's; what it gives is written instead.
type hookFS struct {
	FS
	writes int
	hook   func(n int, name string, p []byte) ([]byte, error)
	after  func(name string)
}

func (h *hookFS) Unwrap() FS { return h.FS }

func (h *hookFS) Open(name string, flag int) (File, error) {
	f, err := h.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &hookFile{File: f, h: h, name: name}, nil
}

type hookFile struct {
	File
	h    *hookFS
	name string
}

func (f *hookFile) Write(p []byte) (int, error) {
	if len(p) == 0 { // a look at the privilege
		return f.File.Write(p)
	}
	n := len(p)
	if f.h.hook != nil {
		q, err := f.h.hook(f.h.writes, f.name, p)
		f.h.writes++
		if err != nil {
			return 0, err
		}
		p = q
	}
	_, err := f.File.Write(p)
	if f.h.after != nil {
		f.h.after(f.name)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// rulesOf gives the rules of the kernel by pair.
func rulesOf(t *testing.T, fs FS) map[string]smack.Access {
	t.Helper()
	s, err := ReadRules(fs)
	if err != nil {
		t.Fatal(err)
	}
	return pairs(s)
}

// pairs gives the rules of a set that are not empty.
func pairs(s *smack.Set) map[string]smack.Access {
	m := map[string]smack.Access{}
	for r := range s.All() {
		if r.Access != 0 {
			m[r.Subject+" "+r.Object] = r.Access
		}
	}
	return m
}

func setOf(t *testing.T, rules ...string) *smack.Set {
	t.Helper()
	b := smack.NewSetBuilder()
	for _, r := range rules {
		f := strings.Fields(r)
		a, err := smack.ParseAccess(f[2])
		if err != nil {
			t.Fatal(err)
		}
		b.Set(f[0], f[1], a)
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func setOfMap(t *testing.T, m map[string]smack.Access) *smack.Set {
	t.Helper()
	b := smack.NewSetBuilder()
	for k, a := range m {
		s, o, _ := strings.Cut(k, " ")
		b.Set(s, o, a)
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes rules as somebody else would.
func put(t *testing.T, fs FS, rules string) {
	t.Helper()
	if err := writeFile(fs, fileLoad2, []byte(rules)); err != nil {
		t.Fatal(err)
	}
}

// randomRules gives up to n rules over labels with a prefix; with zeros, some without access.
func randomRules(r *rand.Rand, prefix string, labels, n int, zeros bool) map[string]smack.Access {
	m := map[string]smack.Access{}
	for range n {
		a := smack.Access(r.IntN(128))
		if a == 0 && !zeros {
			a = smack.Read
		}
		m[randomPair(r, prefix, labels)] = a
	}
	return m
}

// randomPair gives two different labels: a rule on one would be left out.
func randomPair(r *rand.Rand, prefix string, labels int) string {
	i := r.IntN(labels)
	return fmt.Sprintf("%s%d %s%d", prefix, i, prefix, (i+1+r.IntN(labels-1))%labels)
}

// changed gives rules of which about one in k is another, is gone, or is new.
func changed(r *rand.Rand, m map[string]smack.Access, prefix string, labels, k int) map[string]smack.Access {
	out := maps.Clone(m)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		switch r.IntN(2 * k) {
		case 0:
			out[key] = smack.Access(r.IntN(128))
		case 1:
			delete(out, key)
		}
	}
	for range len(m) / k {
		out[randomPair(r, prefix, labels)] = smack.Access(1 + r.IntN(127))
	}
	return out
}

func nonZero(m map[string]smack.Access) map[string]smack.Access {
	out := map[string]smack.Access{}
	for k, a := range m {
		if a != 0 {
			out[k] = a
		}
	}
	return out
}

// same fails the test when the kernel's rules are not those wanted.
func same(t *testing.T, what string, got, want map[string]smack.Access) {
	t.Helper()
	var diff []string
	for k, a := range want {
		if got[k] != a {
			diff = append(diff, fmt.Sprintf("%s is %v, want %v", k, got[k], a))
		}
	}
	for k, a := range got {
		if _, ok := want[k]; !ok {
			diff = append(diff, fmt.Sprintf("%s is %v, want none", k, a))
		}
	}
	if len(diff) > 0 {
		slices.Sort(diff)
		t.Fatalf("%s: %d pairs: %s", what, len(diff), strings.Join(diff[:min(len(diff), 10)], "; "))
	}
}

// union gives the rules of several maps.
func union(ms ...map[string]smack.Access) map[string]smack.Access {
	out := map[string]smack.Access{}
	for _, m := range ms {
		maps.Copy(out, m)
	}
	return out
}

// generated is the deterministic set of 17000 rules over 500 labels that measurements use.
func generated(t testing.TB, seed uint64) *smack.Set {
	t.Helper()
	const labels, rules = 500, 17000
	r := rand.New(rand.NewPCG(seed, 17000))
	b := smack.NewSetBuilder()
	seen := map[[2]int]bool{}
	for len(seen) < rules {
		p := [2]int{r.IntN(labels), r.IntN(labels)}
		if p[0] == p[1] || seen[p] {
			continue
		}
		seen[p] = true
		b.Set(fmt.Sprintf("Gen::App%03d", p[0]), fmt.Sprintf("Gen::App%03d", p[1]), smack.Access(1+r.IntN(63)))
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newModel() *Model { return NewModel(ModelKernel{Bringup: true}) }
