package smack

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func mustBuild(t testing.TB, b *SetBuilder) *Set {
	t.Helper()
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lines gives a set as the lines of load2.
func lines(s *Set) []string {
	var out []string
	for r := range s.All() {
		out = append(out, fmt.Sprintf("%s %s %s", r.Subject, r.Object, r.Access))
	}
	return out
}

func TestSet(t *testing.T) {
	b := NewSetBuilder()
	b.Set("B", "A", Read|Write)
	b.Set("A", "B", Read)
	b.Set("A", "Z", Write)
	b.Set("A", "B", Execute) // the last one wins
	b.Modify("A", "Z", Read|Lock, Write|Lock)
	b.Modify("New", "Pair", Read|Write, Write)
	b.Modify("No", "Effect", 0, 0) // a rule that is none: neither it nor its labels stay
	b.Set("X", "Y", 0)             // explicitly nothing
	s := mustBuild(t, b)
	want := []string{"A B x", "A Z r", "B A rw", "New Pair r", "X Y -"}
	if got := lines(s); !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
	if s.Len() != 5 || s.Labels() != 7 {
		t.Errorf("%d rules, %d labels; want 5, 7", s.Len(), s.Labels())
	}
	for _, c := range []struct {
		subject, object string
		access          Access
		ok              bool
	}{
		{"A", "B", Execute, true},
		{"X", "Y", 0, true},
		{"Y", "X", 0, false},
		{"A", "Nope", 0, false},
		{"Nope", "A", 0, false},
		{"No", "Effect", 0, false},
	} {
		if a, ok := s.Lookup(c.subject, c.object); a != c.access || ok != c.ok {
			t.Errorf("%s %s: %s %v, want %s %v", c.subject, c.object, a, ok, c.access, c.ok)
		}
	}
	if s.HasLabel("No") || !s.HasLabel("Z") {
		t.Error("the labels are not those of the rules")
	}
	if got := len(slices.Collect(s.Objects("A"))); got != 2 {
		t.Errorf("A has %d objects, want 2", got)
	}
	var empty Set
	if _, ok := empty.Lookup("A", "B"); ok || empty.Len() != 0 || lines(&empty) != nil {
		t.Error("the zero value is no empty set")
	}
}

func TestSetBuilderRefuses(t *testing.T) {
	b := NewSetBuilder()
	b.Set("a/b", "A", Read)
	b.Set("A", "B", Read)
	if _, err := b.Build(); !errors.Is(err, ErrLabel) {
		t.Errorf("a bad label: %v", err)
	}
	b = NewSetBuilder()
	for i := range MaxLabels {
		b.Set("S", fmt.Sprintf("L%d", i), Read) // with S one too many at the end
	}
	if _, err := b.Build(); !errors.Is(err, ErrLimit) {
		t.Errorf("too many labels: %v", err)
	}
}
