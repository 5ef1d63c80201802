package policy

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkSmack(b *testing.B) {
	for _, n := range []int{17_000, 50_000} {
		var text strings.Builder
		text.WriteString(smackHead + "  layers:\n    - rules: |\n")
		for i := range n {
			fmt.Fprintf(&text, "        Subject::Label::%d Object::%d rwxa\n", i%500, i/500)
		}
		src := []byte(text.String())
		docs, err := Parse("p.yaml", src)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("parse/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("p.yaml", src); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("compile/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := CompileSmack(docs[0].Resource.GetSmackPolicy(), docs[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("format/%d", n), func(b *testing.B) {
			for b.Loop() {
				if out, err := Format(src); err != nil || len(out) != len(src) {
					b.Fatal(err, len(out), len(src))
				}
			}
		})
		b.Run(fmt.Sprintf("lint/%d", n), func(b *testing.B) {
			for b.Loop() {
				Lint(docs[0], nil)
			}
		})
	}
}

func BenchmarkSmackTemplate(b *testing.B) {
	var members []string
	for i := range 500 {
		members = append(members, fmt.Sprint("m", i))
	}
	list := strings.Join(members, ", ")
	docs, err := Parse("p.yaml", []byte(smackHead+"  variables: {a: ["+list+"], b: ["+list+"]}\n  layers: [{templates: [{rules: \"A.${a} B.${b} rw\"}]}]\n"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CompileSmack(docs[0].Resource.GetSmackPolicy(), docs[0]); err != nil {
			b.Fatal(err)
		}
	}
}
