package smackfs

import (
	"testing"

	"policyd.dev/policyd/smack"
)

// BenchmarkLoad is the part of a load that is not the kernel's: on the model, with 17000 rules of 500 labels.
func BenchmarkLoad(b *testing.B) {
	set := generated(b, 1)
	rules := 0
	one := smack.NewSetBuilder()
	for r := range set.All() {
		if rules == 5000 {
			r.Access ^= smack.Bringup
		}
		one.Set(r.Subject, r.Object, r.Access)
		rules++
	}
	other, err := one.Build()
	if err != nil {
		b.Fatal(err)
	}
	for _, bc := range []struct {
		name     string
		from, to *smack.Set
	}{
		{"compare", set, set}, // what an unchanged load does
		{"one rule", set, other},
		{"all", &smack.Set{}, set},
		{"none", set, &smack.Set{}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			m := newModel()
			for b.Loop() {
				b.StopTimer()
				if _, err := Load(b.Context(), m, bc.from, set, Options{Adopt: true}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if _, err := Load(b.Context(), m, bc.to, bc.from, Options{Adopt: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a load costs that reads nothing, beside the kernel.
func BenchmarkLoadKnown(b *testing.B) {
	fs := newModel().As(Root)
	want := generated(b, 1)
	m, err := NewMemory(fs)
	if err != nil {
		b.Fatal(err)
	}
	r, err := Load(b.Context(), fs, want, nil, Options{Memory: m})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r, err = Load(b.Context(), fs, want, r.Owned, Options{Memory: m}); err != nil || r.Writes > 0 {
			b.Fatal(r.Writes, err)
		}
	}
}
