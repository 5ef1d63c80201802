package smack

import "testing"

func TestRows(t *testing.T) {
	b := NewSetBuilder()
	for _, r := range []Rule{
		{"A", "B", Read},
		{"A", "A", Read},
		{"A", "_", Read | Execute},
		{"A", "_2", Write},
		{"*", "A", Read},
		{"B", "B", 0},
		{"C", "A", Lock},
	} {
		b.Set(r.Subject, r.Object, r.Access)
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	for r := range s.All() {
		lo, hi := s.SubjectRows(r.Subject)
		if row < lo || row >= hi {
			t.Errorf("row %d of %v is not in %d to %d", row, r, lo, hi)
		}
		if object, a := s.ObjectAt(row); object != r.Object || a != r.Access {
			t.Errorf("row %d is %s %v, want %v", row, object, a, r)
		}
		if got := s.RuleAt(row); got != r {
			t.Errorf("row %d is %v, want %v", row, got, r)
		}
		row++
	}
	for _, subject := range []string{"_", "none", ""} {
		if lo, hi := s.SubjectRows(subject); lo != hi {
			t.Errorf("%q has rows %d to %d", subject, lo, hi)
		}
	}
	live := s.Live()
	if n := s.Dead(); n != 3 || live.Dead() != 0 || live.Len() != s.Len() {
		t.Errorf("%d dead rules of %d, then %d of %d", n, s.Len(), live.Dead(), live.Len())
	}
	for r := range s.All() {
		if a, ok := live.Lookup(r.Subject, r.Object); !ok || r.Dead() != (a != r.Access) || r.Dead() && a != 0 {
			t.Errorf("%v became %s", r, a)
		}
	}
	if lo, hi := (&Set{}).SubjectRows("A"); lo != 0 || hi != 0 {
		t.Error("an empty set has rows")
	}
}
