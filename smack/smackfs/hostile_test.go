package smackfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// hostileTests are loads beside others who do what they like.
func hostileTests(t *testing.T, fs FS) {
	t.Run("dead", func(t *testing.T) { testDeadBesideForeign(t, fs) })
	t.Run("meanwhile", func(t *testing.T) { testMeanwhile(t, fs) })
	t.Run("built in", func(t *testing.T) { testBuiltInLabels(t, fs) })
	t.Run("special", func(t *testing.T) { testSpecialLoads(t, fs, 150) })
}

func TestHostile(t *testing.T) {
	hostileTests(t, newModel())
	t.Run("writers", func(t *testing.T) { testWriters(t, newModel()) })
}

// A wanted rule that adds nothing to what the kernel grants of itself is not written, but says that the pair has no more
// than that: a rule of somebody else with more is in the way as any other.
func testDeadBesideForeign(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	put(t, fs, "Dead1 _ rwx\n^ Dead1 rw\nDead1 * rt\nDead2 _ rx\nDead1 Dead1 r\n")
	want := setOf(t, "Dead1 _ rx", "^ Dead1 r", "Dead1 * r", "Dead2 _ r", "Dead1 Dead1 rwx", "Dead1 Dead2 r")
	withOthers := rulesOf(t, fs)
	r, err := Load(t.Context(), fs, want, nil, Options{})
	if !errors.Is(err, errs.ErrSmackForeign) || len(r.Conflicts) != 3 {
		t.Fatalf("%v, conflicts %v", err, r.Conflicts)
	}
	for _, rule := range []string{`"Dead1 _ rwx"`, `"^ Dead1 rw"`, `"Dead1 * rt"`} {
		if !strings.Contains(err.Error(), rule) {
			t.Errorf("%s is not named: %v", rule, err)
		}
	}
	same(t, "refused", rulesOf(t, fs), withOthers)
	// One with no more is in nobody's way, until it is more.
	r = load(t, fs, setOf(t, "Dead2 _ r"), nil, Options{})
	if r.Kept != 1 || r.Writes != 0 || r.Owned.Len() != 0 {
		t.Errorf("harmless: %+v", r)
	}
	put(t, fs, "Dead2 _ w\n")
	if r, err := Load(t.Context(), fs, setOf(t, "Dead2 _ r"), r.Owned, Options{}); !errors.Is(err, errs.ErrSmackForeign) || len(r.Conflicts) != 1 {
		t.Errorf("changed since: %v, conflicts %v", err, r.Conflicts)
	}
	put(t, fs, "Dead2 _ rx\n")
	r = load(t, fs, want, nil, Options{Adopt: true})
	same(t, "adopted", rulesOf(t, fs), union(others, pairs(setOf(t, "Dead2 _ rx", "Dead1 Dead1 r", "Dead1 Dead2 r"))))
	// What is of no effect and somebody else's stays so, and is listed.
	foreign := map[string]bool{}
	for _, rule := range r.Foreign {
		foreign[text(rule)] = true
	}
	if !foreign["Dead2 _ rx"] || !foreign["Dead1 Dead1 r"] {
		t.Errorf("foreign %v", r.Foreign)
	}
	// Also one that comes later is no drift, but more is.
	owned := r.Owned
	put(t, fs, "^ Dead1 x\nDead1 _ rw\n")
	r = load(t, fs, want, owned, Options{})
	if fmt.Sprint(r.Drift) != "[{Dead1 _ - rw}]" || r.Changes.Len() != 1 {
		t.Errorf("drift %v, %d changes", r.Drift, r.Changes.Len())
	}
	put(t, fs, "Dead2 _ -\nDead1 Dead1 -\n^ Dead1 -\n")
	load(t, fs, &smack.Set{}, r.Owned, Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}

// Rules that others add while policyd writes are not its own: what goes is what was read, nothing else.
func testMeanwhile(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	var rules []string
	for i := range 300 {
		rules = append(rules, fmt.Sprintf("Mean1 Mean%d r", 100+i))
	}
	for _, order := range []Order{GrantsFirst, RevokesFirst} {
		owned := load(t, fs, setOf(t, rules...), nil, Options{}).Owned
		h := &hookFS{FS: fs, hook: func(n int, _ string, p []byte) ([]byte, error) {
			put(t, fs, fmt.Sprintf("Mean1 MeanNew%d rw\nMeanNew Mean1 %s\n", n, []string{"r", "rwx"}[n%2]))
			return p, nil
		}}
		r := load(t, h, setOf(t, "Mean2 Mean1 r"), owned, Options{Order: order})
		if r.Writes == 0 {
			t.Fatal("nothing was written")
		}
		now := rulesOf(t, fs)
		for n := range r.Writes {
			if a := now[fmt.Sprintf("Mean1 MeanNew%d", n)]; a != smack.Read|smack.Write {
				t.Errorf("%s: the rule that somebody made at write %d of %d is %s", order, n, r.Writes, a)
			}
			put(t, fs, fmt.Sprintf("Mean1 MeanNew%d -\nMeanNew Mean1 -\n", n))
		}
		load(t, fs, &smack.Set{}, r.Owned, Options{})
		same(t, "unloaded", rulesOf(t, fs), others)
	}
}

// Rules on the labels that every kernel has are loaded and answered as package smack decides.
func testBuiltInLabels(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	b := smack.NewSetBuilder()
	labels := []string{"_", "^", "*", "?", "@", "Built", "Built2"}
	n := 1
	for _, s := range labels {
		for _, o := range labels {
			n = n*37 + 11
			b.Set(s, o, smack.Access(n)&smack.AllAccess&^smack.Bringup)
		}
	}
	want, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for pair := range others { // of other tests
		s, o, _ := strings.Cut(pair, " ")
		if _, ok := want.Lookup(s, o); ok {
			put(t, fs, pair+" -\n")
			delete(others, pair)
		}
	}
	r := load(t, fs, want, nil, Options{})
	for _, s := range labels {
		for _, o := range labels {
			for a := smack.Access(1); a < smack.Bringup; a++ {
				q := smack.Query{Subject: s, Object: o, Access: a}
				got, err := Ask(fs, q)
				if err != nil {
					t.Fatal(err)
				}
				if d := want.Decide(q, smack.Kernel{}); d.Allowed != got.Allowed {
					t.Fatalf("%v: the kernel says %v, decided: %s", q, got, d)
				}
			}
		}
	}
	load(t, fs, &smack.Set{}, r.Owned, Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}

// Somebody sets onlycap while policyd writes: it can do nothing any more, says what is left, and when it may again it
// knows what is its own.
func TestOnlycapMeanwhile(t *testing.T) {
	for n := range 3 {
		for _, order := range []Order{GrantsFirst, RevokesFirst} {
			m := newModel()
			fs, admin := m.As(Caller{Label: "Policyd", MacAdmin: true, Root: true}), m.As(Caller{Label: "Admin", MacAdmin: true, Root: true})
			put(t, admin, "Admin Only rwx\n")
			others := rulesOf(t, m)
			from, to := big(t, "Only", 1), big(t, "Only", 2)
			owned := load(t, fs, from, nil, Options{}).Owned
			var intent []byte
			h := &hookFS{FS: fs, hook: func(i int, _ string, p []byte) ([]byte, error) {
				if i == n {
					if err := writeFile(admin, fileOnlycap, []byte("Admin")); err != nil {
						t.Fatal(err)
					}
				}
				return p, nil
			}}
			r, err := Load(t.Context(), h, to, owned, Options{Order: order, Intent: func(b []byte) error { intent = b; return nil }})
			if !errors.Is(err, errs.ErrSmackOnlycap) || !strings.Contains(err.Error(), `"Policyd"`) {
				t.Fatalf("write %d: %v", n, err)
			}
			if partly := errors.Is(err, errs.ErrSmackPartly); partly != (n > 0) || partly == r.PutBack {
				t.Errorf("write %d: partly %v, put back %v", n, partly, r.PutBack)
			}
			if err := writeFile(admin, fileOnlycap, []byte("Admin Policyd")); err != nil {
				t.Fatal(err)
			}
			it, err := ParseIntent(intent)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := Recover(fs, owned, it)
			if err != nil {
				t.Fatal(err)
			}
			// What the failed load claims and what the intent says are both enough to go back.
			for _, owned := range []*smack.Set{rec.Owned, r.Owned} {
				back := load(t, fs, from, owned, Options{}).Owned
				same(t, "gone back", rulesOf(t, m), union(others, pairs(from)))
				load(t, fs, &smack.Set{}, back, Options{})
				same(t, "unloaded", rulesOf(t, m), others)
			}
		}
	}
}

// Random loads among special labels beside others who change what they like between them: with adopting every wanted pair
// answers as it was wanted, without it nothing of others is touched, and unloading leaves what is others'.
func testSpecialLoads(t *testing.T, fs FS, n int) {
	r := rand.New(rand.NewPCG(41, 42))
	labels := []string{"_", "^", "*", "?", "@", "Sp1", "Sp2", "Sp3"}
	random := func(n int) map[string]smack.Access {
		m := map[string]smack.Access{}
		for range r.IntN(n) {
			m[labels[r.IntN(len(labels))]+" "+labels[r.IntN(len(labels))]] = smack.Access(r.IntN(64)) // without b: it allows nothing
		}
		return m
	}
	meaning := func(rules map[string]smack.Access, pair string) (answers [64]bool) {
		s, o, _ := strings.Cut(pair, " ")
		set := setOfMap(t, map[string]smack.Access{pair: rules[pair]})
		for a := range smack.Access(64) {
			answers[a] = set.Decide(smack.Query{Subject: s, Object: o, Access: a}, smack.Kernel{}).Allowed
		}
		return answers
	}
	var owned *smack.Set
	for i := range n {
		for pair, a := range random(8) {
			put(t, fs, pair+" "+a.String()+"\n")
		}
		before := rulesOf(t, fs)
		want := random(30)
		o := Options{Order: Order(r.IntN(2)), Adopt: r.IntN(2) == 0}
		rep, err := Load(t.Context(), fs, setOfMap(t, want), owned, o)
		now := rulesOf(t, fs)
		if errors.Is(err, errs.ErrSmackForeign) && !o.Adopt {
			same(t, "refused", now, before)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for pair := range want {
			if meaning(now, pair) != meaning(want, pair) {
				t.Fatalf("load %d: %s is %s, wanted %s", i, pair, now[pair], want[pair])
			}
		}
		was := map[string]smack.Access{}
		if owned != nil {
			was = pairs(owned)
		}
		for pair, a := range before {
			if _, wanted := want[pair]; !wanted && was[pair] == 0 && now[pair] != a {
				t.Fatalf("load %d: %s of others was %s, is %s", i, pair, a, now[pair])
			}
		}
		again, err := Load(t.Context(), fs, setOfMap(t, want), rep.Owned, Options{})
		if err != nil || again.Writes != 0 || len(again.Drift) != 0 {
			t.Fatalf("load %d again: %v, %d writes, drift %v", i, err, again.Writes, again.Drift)
		}
		owned = again.Owned
		if i%5 == 4 {
			mine := pairs(owned)
			load(t, fs, &smack.Set{}, owned, Options{})
			for pair, a := range rulesOf(t, fs) {
				if now[pair] != a || mine[pair] != 0 {
					t.Fatalf("load %d: %s %s stays after unloading", i, pair, a)
				}
			}
			owned = nil
		}
	}
	if owned != nil {
		load(t, fs, &smack.Set{}, owned, Options{})
	}
	for pair := range rulesOf(t, fs) { // no other test has rules of these labels alone
		if s, o, _ := strings.Cut(pair, " "); slices.Contains(labels, s) && slices.Contains(labels, o) {
			put(t, fs, pair+" -\n")
		}
	}
}
