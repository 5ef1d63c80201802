package smackfs

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// loadTests run on the model, and on kernels after others have left rules and labels there.
func loadTests(t *testing.T, fs FS) {
	t.Run("difference", func(t *testing.T) { testDifference(t, fs) })
	t.Run("foreign", func(t *testing.T) { testForeign(t, fs) })
	t.Run("random", func(t *testing.T) { testRandomLoads(t, fs, 40) })
	t.Run("killed", func(t *testing.T) { testKilled(t, fs) })
	t.Run("failing", func(t *testing.T) { testFailing(t, fs) })
	t.Run("refused", func(t *testing.T) { testRefused(t, fs) })
	t.Run("canceled", func(t *testing.T) { testCanceled(t, fs) })
	t.Run("read back", func(t *testing.T) { testReadBack(t, fs) })
	t.Run("generated", func(t *testing.T) { testGenerated(t, fs) })
}

func TestLoad(t *testing.T) { loadTests(t, newModel()) }

// load is Load that must succeed.
func load(t *testing.T, fs FS, want, owned *smack.Set, o Options) *Report {
	t.Helper()
	r, err := Load(t.Context(), fs, want, owned, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testDifference(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	var written []string
	h := &hookFS{FS: fs, hook: func(_ int, name string, p []byte) ([]byte, error) {
		written = append(written, name+": "+string(p))
		return p, nil
	}}
	var owned *smack.Set
	for _, tc := range []struct {
		name    string
		want    []string
		order   Order
		written []string
	}{
		{name: "all", want: []string{"D1 D2 rx", "D1 D3 w", "D2 D3 -", "D4 D1 rwxatlb"}, written: []string{"load2: D1 D2 rx\nD1 D3 w\nD4 D1 rwxatlb\n"}},
		{name: "again", want: []string{"D1 D2 rx", "D1 D3 w", "D2 D3 -", "D4 D1 rwxatlb"}},
		{name: "one", want: []string{"D1 D2 wx", "D1 D3 w", "D2 D3 -", "D4 D1 rwxatlb"}, written: []string{"load2: D1 D2 wx\n"}},
		{
			name: "grants first", want: []string{"D1 D2 rx", "D1 D3 wr", "D4 D1 -"},
			written: []string{"load2: D1 D2 rwx\nD1 D3 rw\nD1 D2 rx\nD4 D1 -\n"},
		},
		{
			name: "revokes first", want: []string{"D1 D2 wx", "D1 D3 w", "D4 D2 r"}, order: RevokesFirst,
			written: []string{"load2: D1 D2 x\nD1 D3 w\nD1 D2 wx\nD4 D2 r\n"},
		},
		{name: "none", written: []string{"load2: D1 D2 -\nD1 D3 -\nD4 D2 -\n"}},
		{name: "none again"},
	} {
		written = nil
		want := setOf(t, tc.want...)
		r := load(t, h, want, owned, Options{Order: tc.order})
		owned = r.Owned
		if got := strings.Join(written, "|"); got != strings.Join(tc.written, "|") {
			t.Errorf("%s: wrote %q, want %q", tc.name, got, tc.written)
		}
		if r.Writes != len(tc.written) {
			t.Errorf("%s: %d writes reported, want %d", tc.name, r.Writes, len(tc.written))
		}
		same(t, tc.name, rulesOf(t, fs), union(others, pairs(want)))
	}
	// Rules that change no decision are left out.
	r := load(t, fs, setOf(t, "D1 D1 rwx", "* D1 r", "D1 _ rx", "D1 _2 r"), owned, Options{})
	same(t, "dead rules", rulesOf(t, fs), union(others, map[string]smack.Access{"D1 _2": smack.Read}))
	load(t, fs, &smack.Set{}, r.Owned, Options{})
}

func testForeign(t *testing.T, fs FS) {
	before := rulesOf(t, fs)
	put(t, fs, "F1 F2 rwx\nF1 F3 r\nF4 F1 w\n")
	withOthers := rulesOf(t, fs)
	want := setOf(t, "F1 F2 r", "F1 F3 r", "F2 F1 x", "F4 F1 -")

	r, err := Load(t.Context(), fs, want, nil, Options{})
	if !errors.Is(err, errs.ErrSmackForeign) || !strings.Contains(err.Error(), `"F1 F2 rwx" is loaded, r is wanted`) || !strings.Contains(err.Error(), `"F4 F1 w"`) {
		t.Errorf("conflict: %v", err)
	}
	if len(r.Conflicts) != 2 || r.Writes != 0 {
		t.Errorf("conflicts %v, %d writes", r.Conflicts, r.Writes)
	}
	same(t, "after a conflict", rulesOf(t, fs), withOthers)

	// Rules that are just as wanted stay somebody else's.
	want = setOf(t, "F1 F3 r", "F2 F1 x")
	r = load(t, fs, want, nil, Options{})
	if a, ok := r.Owned.Lookup("F1", "F3"); ok {
		t.Errorf("owns F1 F3 %v", a)
	}
	same(t, "owned", pairs(r.Owned), map[string]smack.Access{"F2 F1": smack.Execute})
	r = load(t, fs, &smack.Set{}, r.Owned, Options{})
	same(t, "after unloading", rulesOf(t, fs), withOthers)

	// A dry run, then adopting.
	want = setOf(t, "F1 F2 r", "F1 F3 r", "F2 F1 x", "F4 F1 -")
	r = load(t, fs, want, r.Owned, Options{Adopt: true, DryRun: true, Labels: true})
	if r.Changes.Len() != 3 || r.Writes != 0 || r.Labels == 0 || len(r.NewLabels) != 0 {
		t.Errorf("dry run: %+v", r)
	}
	same(t, "after a dry run", rulesOf(t, fs), withOthers)
	r = load(t, fs, want, r.Owned, Options{Adopt: true})
	same(t, "adopted", rulesOf(t, fs), union(before, pairs(want)))

	// Somebody changes rules of policyd's: seen, and mended.
	put(t, fs, "F1 F3 rwx\nF2 F1 -\nF4 F1 r\n")
	r = load(t, fs, want, r.Owned, Options{})
	drift := []Change{{"F1", "F3", smack.Read, smack.Read | smack.Write | smack.Execute}, {"F2", "F1", smack.Execute, 0}, {"F4", "F1", 0, smack.Read}}
	if fmt.Sprint(r.Drift) != fmt.Sprint(drift) {
		t.Errorf("drift %v, want %v", r.Drift, drift)
	}
	same(t, "mended", rulesOf(t, fs), union(before, pairs(want)))
	load(t, fs, &smack.Set{}, r.Owned, Options{})
	same(t, "unloaded", rulesOf(t, fs), before)
}

// testRandomLoads holds after every single write what the order promises, and after every load that the kernel has what
// is wanted and what is others'.
func testRandomLoads(t *testing.T, fs FS, n int) {
	r := rand.New(rand.NewPCG(4, 4))
	put(t, fs, "RndO1 R1 rwx\nR1 RndO1 r\nR2 RndO1 rwxatlb\n")
	others := rulesOf(t, fs)
	rules, owned := map[string]smack.Access{}, &smack.Set{}
	for i := range n {
		next := randomRules(r, "R", 12, 60, true)
		if i%3 > 0 {
			next = changed(r, rules, "R", 12, 1+r.IntN(20))
		}
		order := Order(r.IntN(2))
		old, want := union(others, nonZero(rules)), union(others, nonZero(next))
		h := &hookFS{FS: fs, after: func(string) {
			holdsBetween(t, rulesOf(t, fs), old, want, order)
		}}
		rep := load(t, h, setOfMap(t, next), owned, Options{Order: order})
		same(t, fmt.Sprintf("load %d", i), rulesOf(t, fs), want)
		if len(rep.Drift) > 0 || len(rep.Foreign) != len(others) {
			t.Fatalf("load %d: drift %v, %d foreign rules, want %d", i, rep.Drift, len(rep.Foreign), len(others))
		}
		rules, owned = next, rep.Owned
	}
	load(t, fs, &smack.Set{}, owned, Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}

// holdsBetween: with grants first every pair has all of the old or all of the new letters of every pair; with revokes
// first none has a letter beyond the old or beyond the new ones.
func holdsBetween(t *testing.T, now, old, want map[string]smack.Access, order Order) {
	t.Helper()
	overOld, overNew := true, true
	for k := range union(now, old, want) {
		a, b := old[k]&^now[k], want[k]&^now[k]
		if order == RevokesFirst {
			a, b = now[k]&^old[k], now[k]&^want[k]
		}
		overOld, overNew = overOld && a == 0, overNew && b == 0
		if lost := old[k] & want[k] &^ now[k]; lost != 0 {
			t.Fatalf("%s: %s lost %v in between", order, k, lost)
		}
		if extra := now[k] &^ (old[k] | want[k]); extra != 0 {
			t.Fatalf("%s: %s gained %v in between", order, k, extra)
		}
	}
	if !overOld && !overNew {
		t.Fatalf("%s: a moment that is beyond both the old and the new rules", order)
	}
}

// big gives rules that take several writes.
func big(t *testing.T, prefix string, seed uint64) *smack.Set {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	return setOfMap(t, randomRules(r, prefix+strings.Repeat("x", 60), 40, 200, false))
}

func testGenerated(t *testing.T, fs FS) {
	others, err := readFile(fs, fileLoad2)
	if err != nil {
		t.Fatal(err)
	}
	set := generated(t, 1)
	longest := 0
	h := &hookFS{FS: fs, hook: func(_ int, name string, p []byte) ([]byte, error) {
		if name == fileLoad2 {
			longest = max(longest, len(p))
			if p[len(p)-1] != '\n' {
				t.Errorf("a chunk ends within a rule: %q", p[len(p)-20:])
			}
		}
		return p, nil
	}}
	r := load(t, h, set, nil, Options{})
	shows(t, fs, others, set)
	if r.Written != 17000 || longest > maxWrite || longest < maxWrite-600 {
		t.Errorf("%d rules written, chunks of up to %d bytes", r.Written, longest)
	}
	if r = load(t, h, set, r.Owned, Options{}); r.Writes != 0 || r.Kept != 17000 {
		t.Errorf("an unchanged load: %d writes, %d kept", r.Writes, r.Kept)
	}
	one := mutated(t, set, func(i int) bool { return i == 7777 })
	if r = load(t, h, one, r.Owned, Options{}); r.Writes != 1 || r.Written != 1 {
		t.Errorf("one rule: %d writes of %d rules", r.Writes, r.Written)
	}
	next := mutated(t, set, func(i int) bool { return i%10 == 0 })
	r = load(t, h, next, r.Owned, Options{})
	shows(t, fs, others, next)
	r = load(t, h, set, r.Owned, Options{})
	shows(t, fs, others, set)
	r = load(t, h, &smack.Set{}, r.Owned, Options{})
	if r.Writes > 150 {
		t.Errorf("%d writes to drop all rules", r.Writes)
	}
	shows(t, fs, others, &smack.Set{})
}

// mutated gives the set with the rules of some rows changed: other letters, or none.
func mutated(t *testing.T, s *smack.Set, row func(i int) bool) *smack.Set {
	t.Helper()
	b, i := smack.NewSetBuilder(), 0
	for r := range s.All() {
		if row(i) && i%20 == 0 {
			r.Access = 0
		} else if row(i) {
			r.Access ^= smack.Read | smack.Bringup
		}
		b.Set(r.Subject, r.Object, r.Access)
		i++
	}
	out, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lineSum is a sum of hashes of lines, each with its newline: equal for the same lines in any order.
type lineSum struct {
	seed maphash.Seed
	sum  uint64
}

func (s *lineSum) add(line []byte) { s.sum += maphash.Bytes(s.seed, line) }

// shows holds that load2 shows those lines and the rules of the set, and nothing else.
func shows(t *testing.T, fs FS, others []byte, s *smack.Set) {
	t.Helper()
	now, err := readFile(fs, fileLoad2)
	if err != nil {
		t.Fatal(err)
	}
	seed := maphash.MakeSeed()
	want, got := lineSum{seed: seed}, lineSum{seed: seed}
	for line := range bytes.Lines(others) {
		want.add(line)
	}
	for r := range s.All() {
		if r.Access != 0 {
			want.add(r.Append(nil))
		}
	}
	for line := range bytes.Lines(now) {
		got.add(line)
	}
	if want.sum != got.sum {
		t.Fatalf("load2 does not show the %d rules of the set and %d bytes of others', but %d bytes", s.Len(), len(others), len(now))
	}
}
