package policy

import (
	"fmt"
	"strings"
	"testing"
)

// manyRules is a policy of n path rules, spread over layers; with each, every
// layer has one rule on n paths instead.
func manyRules(n, layers int, each bool) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: web}\nspec:\n  abi: 7\n  layers:\n")
	for l := range layers {
		b.WriteString("    - paths:\n")
		if each {
			fmt.Fprintf(&b, "        - {allow: [read, execute], at: [%s]}\n", numbered("/usr/lib/x/%d, ", n))
			continue
		}
		for i := range n {
			if i%layers == l {
				fmt.Fprintf(&b, "        - {allow: [read, execute], at: [/usr/lib/x/%d]}\n", i)
			}
		}
	}
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		src := manyRules(n, 1, false)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("x.yaml", src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompile compiles from the message: "spread" has each rule in one
// layer, "each" has every path in all of them.
func BenchmarkCompile(b *testing.B) {
	for _, c := range []struct {
		rules, layers int
		each          bool
	}{{1000, 16, false}, {10_000, 16, false}, {100_000, 16, false}, {1000, 16, true}, {2000, 16, true}, {10_000, 16, true}} {
		docs, err := Parse("x.yaml", manyRules(c.rules, c.layers, c.each))
		if err != nil {
			b.Fatal(err)
		}
		name := "spread"
		if c.each {
			name = "each"
		}
		b.Run(fmt.Sprintf("%s/%dx%d", name, c.rules, c.layers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(docs[0].Resource.GetLandlockPolicy(), CompileOptions{Document: docs[0]}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
