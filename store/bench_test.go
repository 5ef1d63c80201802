package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

func benchStore(b *testing.B, o Options) *Store {
	b.Helper()
	s, err := Open(filepath.Join(b.TempDir(), "policyd.db"), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkApply: one caller, so one commit each. commits/op tells.
func BenchmarkApply(b *testing.B) {
	s := benchStore(b, Options{})
	before := s.commits.Load()
	i := 0
	for b.Loop() {
		i++
		mustApply(b, s, policy("web", fmt.Sprint(i)))
	}
	b.ReportMetric(float64(s.commits.Load()-before)/float64(b.N), "commits/op")
}

// BenchmarkApplyConcurrent: 64 callers share commits.
func BenchmarkApplyConcurrent(b *testing.B) {
	s := benchStore(b, Options{})
	before := s.commits.Load()
	var caller atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		name := fmt.Sprint("p", caller.Add(1))
		for i := 0; pb.Next(); i++ {
			if _, err := s.Apply(context.Background(), alice, []Put{policy(name, fmt.Sprint(i))}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(s.commits.Load()-before)/float64(b.N), "commits/op")
}

// BenchmarkSync is one write and fdatasync of a page, to compare with.
func BenchmarkSync(b *testing.B) {
	page := make([]byte, 4096)
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if _, err := f.WriteAt(page, 0); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b, Options{NoSync: true})
	for i := range 1000 {
		mustApply(b, s, policy(fmt.Sprint("p", i%100), fmt.Sprint(i)))
	}
	i := 0
	for b.Loop() {
		i++
		if _, err := s.Get(KindLandlockPolicy, fmt.Sprint("p", i%100)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkList10000(b *testing.B) {
	s := benchStore(b, Options{NoSync: true})
	for i := range 100 {
		var puts []Put
		for j := range 100 {
			puts = append(puts, labelled(policy(fmt.Sprint("p", i, "-", j), "one"), map[string]string{"n": fmt.Sprint(j)}))
		}
		mustApply(b, s, puts...)
	}
	for b.Loop() {
		list, _, err := s.List(KindLandlockPolicy, Filter{})
		if err != nil || len(list) != 10000 {
			b.Fatal(len(list), err)
		}
	}
}
