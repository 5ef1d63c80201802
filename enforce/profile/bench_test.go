package profile

import (
	"fmt"
	"runtime"
	"testing"
)

// benchLayers is as many as a kernel takes.
const benchLayers = MaxKernelLayers

// benchPaths gives n paths, some beneath others, in no order.
func benchPaths(n int) []string {
	paths := make([]string, n)
	for i := range paths {
		k := (i * 7919) % n
		paths[i] = fmt.Sprintf("/srv/app-%03d/data/%05d", k%300, k/3)
		if k%3 == 0 {
			paths[i] += "/cache"
		}
	}
	return paths
}

// benchBuilder has rows rows and a rule for each in every layer.
func benchBuilder(paths []string) *Builder {
	layers := make([]Layer, benchLayers)
	for i := range layers {
		layers[i] = Layer{Name: fmt.Sprint("layer-", i), FS: Handled(FS, 9), Net: Handled(Net, 9)}
	}
	b := NewBuilder(layers)
	for i, path := range paths {
		for l := range layers {
			b.AddPath(l, path, 1<<uint((i+l)%15)|FSReadFile, false, Skip)
		}
	}
	for i := range benchLayers {
		b.AddPorts(i, uint16(1000*i), uint16(1000*i+1500), NetBindTCP, false)
	}
	return b
}

func benchProfile(b *testing.B, rows int) *Profile {
	return mustBuild(b, benchBuilder(benchPaths(rows)))
}

var benchSizes = []int{1_000, 10_000, 100_000}

// BenchmarkBuild is all of it: 16 rules a row, united, sorted and validated.
func BenchmarkBuild(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			paths := benchPaths(rows)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := benchBuilder(paths).Build(); err != nil {
					b.Fatal(err)
				}
			}
			perRow(b, rows)
		})
	}
}

func perRow(b *testing.B, rows int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
}

func BenchmarkEncode(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			p := benchProfile(b, rows)
			b.ReportAllocs()
			for b.Loop() {
				b.SetBytes(int64(len(p.Encode())))
			}
			perRow(b, rows)
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			enc := benchProfile(b, rows).Encode()
			b.SetBytes(int64(len(enc)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(enc); err != nil {
					b.Fatal(err)
				}
			}
			perRow(b, rows)
		})
	}
}

// BenchmarkIndex is the cost of a rule in the indexed form, of time and memory,
// besides the profile itself (profile-B/rule): each rule has a row of its own.
func BenchmarkIndex(b *testing.B) {
	for _, layers := range []int{1, benchLayers} {
		for _, rules := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("layers=%d/rules=%d", layers, rules), func(b *testing.B) {
				before := heap()
				p := spreadProfile(b, layers, rules)
				between := heap()
				ix := NewIndex(p)
				after := heap()
				for b.Loop() {
					NewIndex(p)
				}
				each := float64(rules)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/each, "ns/rule")
				b.ReportMetric((after-between)/each, "B/rule")
				b.ReportMetric((between-before)/each, "profile-B/rule")
				runtime.KeepAlive(ix)
			})
		}
	}
}

// spreadProfile has rules spread over the layers, each on its own path.
func spreadProfile(b *testing.B, layers, rules int) *Profile {
	of := make([]Layer, layers)
	for i := range of {
		of[i] = Layer{Name: fmt.Sprint("layer-", i), FS: Handled(FS, 9)}
	}
	builder := NewBuilder(of)
	builder.Grow(rules)
	for i, path := range benchPaths(rules) {
		builder.AddPath(i%layers, path, FSReadFile|FSReadDir, false, Skip)
	}
	p, err := Decode(mustBuild(b, builder).Encode()) // as it comes to whoever decides
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// heap gives the bytes in use.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func BenchmarkFlatten(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			p := benchProfile(b, rows)
			for b.Loop() {
				if _, err := Flatten(p); err != nil {
					b.Fatal(err)
				}
			}
			perRow(b, rows)
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	p := benchProfile(b, 10_000)
	ix := NewIndex(p)
	questions := map[string]string{
		"hit":  p.Paths[5_000].Path,
		"deep": p.Paths[5_000].Path + "/a/b/c/d/e/f.txt",
		"miss": "/usr/lib/x86_64-linux-gnu/libc.so.6",
	}
	for _, name := range []string{"hit", "deep", "miss"} {
		path := questions[name]
		for how, decide := range map[string]func(string, Access) Decision{"walk": p.DecidePath, "index": ix.DecidePath} {
			b.Run(name+"/"+how, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					decide(path, FSReadFile|FSExecute)
				}
			})
		}
	}
}
