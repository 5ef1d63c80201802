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
	if n, live := s.Dead(), s.Live().Len(); n != 3 || live != s.Len()-n {
		t.Errorf("%d dead rules of %d, %d live", n, s.Len(), live)
	}
	if lo, hi := (&Set{}).SubjectRows("A"); lo != 0 || hi != 0 {
		t.Error("an empty set has rows")
	}
}
