package smack

import (
	"testing"

	"policyd.dev/policyd/smack/smacktest"
)

// Parsing and compiling, the measures of the project: B/op is an upper bound of
// the memory needed beside the text.
func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name  string
		shape smacktest.Shape
	}{
		{"17k-500", smacktest.Platform},
		{"50k-200-a-subject", smacktest.Wide},
		{"100k-200-a-subject", smacktest.Shape{Rules: 100000, Labels: 1000, PerSubject: 200, Seed: 3}},
	} {
		b.Run(c.name, func(b *testing.B) {
			text := c.shape.Text()
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := ParseRules("rules", text); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.shape.Rules), "ns/rule")
		})
	}
}

func BenchmarkPlatform(b *testing.B) {
	set, _, err := ParseRules("rules", smacktest.Platform.Text())
	if err != nil {
		b.Fatal(err)
	}
	builder := NewBuilder("platform")
	if err := builder.Layer("rules", AllAccess).Text("rules", smacktest.Platform.Text()); err != nil {
		b.Fatal(err)
	}
	p, _, err := builder.Build()
	if err != nil {
		b.Fatal(err)
	}
	encoded := p.Encode()
	one := NewSetBuilder()
	var queries []Query
	for r := range set.All() {
		one.Set(r.Subject, r.Object, r.Access)
		queries = append(queries, Query{r.Subject, r.Object, Read | Write})
	}
	one.Set(queries[0].Subject, queries[0].Object, Bringup)
	changed, err := one.Build()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decide", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			set.Decide(queries[i%len(queries)], Kernel{})
		}
	})
	b.Run("difference-none", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !set.Difference(set).Empty() {
				b.Fatal("a set differs from itself")
			}
		}
	})
	b.Run("difference-one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if changed.Difference(set).Len() != 1 {
				b.Fatal("not one change")
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		for b.Loop() {
			p.Encode()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}
