package smack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, _, err := ParseRules("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func changes(list []Change) []string {
	var out []string
	for _, c := range list {
		out = append(out, fmt.Sprintf("%s %s %s>%s", c.Subject, c.Object, c.Old, c.New))
	}
	return out
}

func TestDifference(t *testing.T) {
	from := mustParse(t, "A B r\nA C rw\nA D r\nGone X r\nGone Y w\nKept X r\nZero X -\nSame S rw\n")
	to := mustParse(t, "A B rx\nA C rx\nA D -\nGone Y -\nKept X r\nNew N a\nSame S rw\nZero Y -\n")
	d := to.Difference(from)
	for _, c := range []struct {
		name      string
		got, want []string
	}{
		{"grants", changes(d.Grants), []string{"A B r>rx", "New N ->a"}},
		{"exchanges", changes(d.Exchanges), []string{"A C rw>rx"}},
		{"revocations", changes(d.Revocations), []string{"A D r>-", "Gone X r>-", "Gone Y w>-"}},
		{"all", changes(d.All()), []string{"A B r>rx", "A C rw>rx", "A D r>-", "Gone X r>-", "Gone Y w>-", "New N ->a"}},
		{"gone", d.Gone, []string{"Gone"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s %q, want %q", c.name, c.got, c.want)
		}
	}
	if d.Empty() || d.Len() != 6 || !d.Weaker() || d.Grants[1].Rule() != (Rule{"New", "N", Append}) {
		t.Error("the sums are wrong")
	}
	if d := to.Difference(to); !d.Empty() || d.Weaker() || d.Gone != nil {
		t.Errorf("a set differs from itself: %v", d)
	}
	if d := from.Difference(&Set{}); len(d.Grants) != 7 || d.Gone != nil {
		t.Errorf("from nothing: %v", d)
	}
	if d := (&Set{}).Difference(from); len(d.Revocations) != 7 || !slices.Equal(d.Gone, []string{"A", "Gone", "Kept", "Same"}) {
		t.Errorf("to nothing: %v", d)
	}
}

// Applying a difference to the old set gives the new one.
func TestDifferenceApplies(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func() *Set {
		b := NewSetBuilder()
		for range rng.IntN(60) {
			b.Set(string(rune('A'+rng.IntN(6))), string(rune('D'+rng.IntN(6))), Access(rng.IntN(8)))
		}
		return mustBuild(t, b)
	}
	for range 200 {
		from, to := random(), random()
		d := to.Difference(from)
		b := NewSetBuilder()
		for r := range from.All() {
			b.Set(r.Subject, r.Object, r.Access)
		}
		for _, c := range d.All() {
			if old, _ := from.Lookup(c.Subject, c.Object); old != c.Old || c.Old == c.New {
				t.Fatalf("%v was %s", c, old)
			}
			b.Set(c.Subject, c.Object, c.New)
		}
		if rest := to.Difference(mustBuild(t, b)); !rest.Empty() {
			t.Fatalf("%v is left", rest.All())
		}
		for _, c := range d.Grants {
			if c.Old&^c.New != 0 {
				t.Fatalf("%v is no grant", c)
			}
		}
		for _, c := range d.Revocations {
			if c.New&^c.Old != 0 {
				t.Fatalf("%v is no revocation", c)
			}
		}
		for _, s := range d.Gone {
			for r := range to.Objects(s) {
				if r.Access != 0 {
					t.Fatalf("%s has %v", s, r)
				}
			}
		}
	}
}

// Policies are compared by what the kernel answers.
func TestPolicyDifference(t *testing.T) {
	build := func(texts ...string) *Policy {
		b := NewBuilder("p")
		for i, text := range texts {
			if err := b.Layer(fmt.Sprint(i), AllAccess).Text("f", []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		p, _, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		from, to *Policy
		want     []string
	}{
		{build("A B w\n"), build("A B wl\n"), nil},
		{build("A B rw\n"), build("A B rwx\n", "A B rw\n"), nil},
		{build("A B r\nX _ rx\n* A r\n^ A l\nX X r\n"), build("A B r\nX _ x\nA * r\nX @ r\n"), nil},
		{build("A B -\n"), build(""), nil},
		{build("A B r\n"), build("A B r\n", ""), []string{"A B r>-"}},
		{build("X _ r\n"), build("X _ rl\n"), []string{"X _ ->rl"}},
		{build("X * t\n"), build(""), []string{"X * t>-"}},
	} {
		if got := changes(c.to.Difference(c.from).All()); !slices.Equal(got, c.want) {
			t.Errorf("%q to %q: %q, want %q", lines(c.from.Effective()), lines(c.to.Effective()), got, c.want)
		}
	}
}
