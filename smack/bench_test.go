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
