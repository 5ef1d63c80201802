package host

import (
	"fmt"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/store/storetest"
)

// BenchmarkPrepare compiles a bundle of 20 policies for this host, for the first time and once more.
func BenchmarkPrepare(b *testing.B) {
	texts := []string{dataFragment}
	for i := range 20 {
		texts = append(texts, strings.Replace(web("one"), "name: web", fmt.Sprint("name: web-", i), 1))
	}
	bundle, _ := bundle(b, nil, texts...)
	h := newBench(b)
	for _, again := range []bool{false, true} {
		b.Run(map[bool]string{false: "new", true: "known"}[again], func(b *testing.B) {
			for b.Loop() {
				if !again {
					h.known = nil
				}
				if _, err := h.prepare(bundle); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func newBench(b *testing.B) *Host {
	return New(Config{Store: storetest.Open(b), Support: landlock.Support{State: landlock.Available, ABI: 7}})
}
