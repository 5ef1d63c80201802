package smackfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
	owned = load(t, fs, &smack.Set{}, r.Owned, Options{}).Owned

	// A subject of which all rules go is revoked at once, but not when a rule of others is among them.
	for _, foreign := range []bool{false, true} {
		var rules []string
		for i := range 140 {
			rules = append(rules, fmt.Sprintf("DRev D%d r", i))
		}
		r := load(t, fs, setOf(t, rules...), owned, Options{})
		if foreign {
			put(t, fs, "DRev Somebody r")
			others["DRev Somebody"] = smack.Read
		}
		written = nil
		r = load(t, h, &smack.Set{}, r.Owned, Options{})
		if got := len(written) == 1 && written[0] == "revoke-subject: DRev"; got == foreign {
			t.Errorf("foreign rule %v: wrote %q", foreign, written)
		}
		same(t, "revoked", rulesOf(t, fs), others)
		if len(r.Changes) != 140 {
			t.Errorf("%d changes reported, want 140", len(r.Changes))
		}
	}
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
	if len(r.Changes) != 3 || r.Writes != 0 || r.Labels == 0 || len(r.NewLabels) != 0 {
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

var errKilled = errors.New("killed")

// testKilled ends the load before every write, as a kill does: nothing is put back. The next run sees what is there from
// the intent, and mends it.
func testKilled(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Kill", 1), big(t, "Kill", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	for n := 0; ; n++ {
		order := Order(n % 2)
		var intent []byte
		h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
			if i == n {
				panic(errKilled)
			}
			return p, nil
		}}
		o := Options{Order: order, Intent: func(b []byte) error {
			intent = b
			return nil
		}}
		killed := func() (killed bool) {
			defer func() {
				if r := recover(); r != nil && r != any(errKilled) {
					panic(r)
				} else if r != nil {
					killed = true
				}
			}()
			load(t, h, to, owned, o)
			return false
		}()
		if !killed {
			if n < 5 {
				t.Fatalf("only %d writes: the test is too small", n)
			}
			break
		}
		it, err := ParseIntent(intent)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := Recover(fs, owned, it)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Rebooted || len(rec.Other) > 0 || rec.Before+rec.After+rec.Between != len(it.Changes) || (n == 0) != (rec.Before == len(it.Changes)) {
			t.Fatalf("killed at write %d of order %s: %+v of %d", n, order, rec, len(it.Changes))
		}
		// On to the new rules and back to the old ones, or back at once.
		if n%3 > 0 {
			rec.Owned = load(t, fs, to, rec.Owned, Options{}).Owned
			same(t, "gone on", rulesOf(t, fs), union(others, pairs(to)))
		}
		owned = load(t, fs, from, rec.Owned, Options{}).Owned
		same(t, "gone back", rulesOf(t, fs), union(others, pairs(from)))
	}
	load(t, fs, &smack.Set{}, to, Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}

// testFailing lets every write fail in turn, and from there on every further one, with errors of several kinds.
func testFailing(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Fail", 1), big(t, "Fail", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EPERM, unix.EINVAL} {
		for n, done := 0, false; !done; n++ {
			done = true
			h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
				if i == n {
					done = false
					return nil, errno
				}
				return p, nil
			}}
			r, err := Load(t.Context(), h, to, owned, Options{Order: Order(n % 2)})
			switch {
			case done && err == nil, errno == unix.EINVAL && errors.Is(err, errs.ErrSmackRefused):
			case !errors.Is(err, errno) || errors.Is(err, errs.ErrSmackPartly):
				t.Fatalf("write %d with %v: %v", n, errno, err)
			}
			if err == nil { // a refusal that did not come again is no harm
				owned = load(t, fs, from, r.Owned, Options{}).Owned
				continue
			}
			if !r.PutBack || r.Owned != owned {
				t.Fatalf("write %d with %v: put back %v", n, errno, r.PutBack)
			}
			same(t, "put back", rulesOf(t, fs), union(others, pairs(from)))
		}
	}
	// Nothing can be written any more from the third write on.
	h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
		if i >= 2 {
			return nil, unix.EIO
		}
		return p, nil
	}}
	r, err := Load(t.Context(), h, to, owned, Options{})
	if !errors.Is(err, errs.ErrSmackPartly) || !errors.Is(err, unix.EIO) || r.PutBack {
		t.Fatalf("no write works: %v", err)
	}
	load(t, fs, &smack.Set{}, setOfMap(t, union(pairs(from), pairs(to))), Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}

// testRefused makes the kernel itself refuse a rule in the middle of a chunk: the rules before it are loaded then.
func testRefused(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Ref", 1), big(t, "Ref", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	all := make([]smack.Rule, 0, to.Len())
	for r := range to.All() {
		if a, _ := from.Lookup(r.Subject, r.Object); a != r.Access {
			all = append(all, r)
		}
	}
	for _, at := range []int{0, 1, len(all) / 2, len(all) - 1} {
		bad := all[at].Subject + " " + all[at].Object + " "
		h := &hookFS{FS: fs, hook: func(_ int, _ string, p []byte) ([]byte, error) {
			if i := bytes.Index(p, []byte(bad)); i == 0 || i > 0 && p[i-1] == '\n' {
				q := bytes.Clone(p)
				q[i] = '-' // the kernel takes no label that begins so
				return q, nil
			}
			return p, nil
		}}
		r, err := Load(t.Context(), h, to, owned, Options{})
		if !errors.Is(err, errs.ErrSmackRefused) || errors.Is(err, errs.ErrSmackPartly) || !strings.Contains(err.Error(), `rule "`+bad) || !r.PutBack {
			t.Fatalf("rule %d: %v", at, err)
		}
		same(t, "put back", rulesOf(t, fs), union(others, pairs(from)))
	}
	load(t, fs, &smack.Set{}, owned, Options{})
}

func testCanceled(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, to := big(t, "Can", 1), big(t, "Can", 2)
	owned := load(t, fs, from, nil, Options{}).Owned
	for n := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
			if i == n {
				cancel()
			}
			return p, nil
		}}
		r, err := Load(ctx, h, to, owned, Options{})
		if !errors.Is(err, context.Canceled) || !r.PutBack {
			t.Fatalf("canceled at write %d: %v", n, err)
		}
		same(t, "canceled", rulesOf(t, fs), union(others, pairs(from)))
	}
	load(t, fs, &smack.Set{}, owned, Options{})
}

// testReadBack lets the kernel take something else than was written.
func testReadBack(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	lied := false
	h := &hookFS{FS: fs, hook: func(_ int, _ string, p []byte) ([]byte, error) {
		if lied {
			return p, nil
		}
		lied = true
		return bytes.ReplaceAll(p, []byte("RB1 RB2 rwx"), []byte("RB1 RB2 r  ")), nil
	}}
	r, err := Load(t.Context(), h, setOf(t, "RB1 RB2 rwx", "RB2 RB1 a"), nil, Options{})
	if !errors.Is(err, errs.ErrSmackRefused) || !strings.Contains(err.Error(), `"RB1 RB2 r" instead of rwx`) || !r.PutBack {
		t.Errorf("%v", err)
	}
	same(t, "put back", rulesOf(t, fs), others)
	// What others load meanwhile is no harm.
	h.hook = func(_ int, _ string, p []byte) ([]byte, error) {
		return append([]byte("RBOther RB1 r\n"), p...), nil
	}
	r = load(t, h, setOf(t, "RB1 RB2 rwx"), nil, Options{})
	others["RBOther RB1"] = smack.Read
	load(t, fs, &smack.Set{}, r.Owned, Options{})
	same(t, "with another's rule", rulesOf(t, fs), others)
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
