// Package depth measures the forms of a profile on deep trees, against one
// another and against the kernel's own decision on the same tree under the same
// rules, and holds that all forms answer the same. It imports enforce/profile
// and what it needs to ask the kernel.
package depth

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// handled is what each layer handles: the fs rights of ABI 5.
// granted is what the rule on each folder grants in each layer.
// asked is what opening a file for reading asks for (hook_file_open): the right
// to read, that none grants, and the optional one to truncate.
const (
	handled = profile.Access(1<<matrixRights - 1)
	granted = handled &^ profile.FSReadFile
	asked   = profile.FSReadFile | profile.FSTruncate
)

// stack is a tree of nested folders under a number of layers in all forms.
type stack struct {
	p      *profile.Profile // its layers, and its rows where they can be named
	tree   *profile.Tree
	place  profile.Place // of the deepest folder: the file has no rule
	matrix *matrix
	object int32 // the same in matrix

	index *profile.Index // nil where no path is long enough for the file's
	file  string
	at    profile.Place // of the file in index
}

func newStack(t testing.TB, dir string, depth, layers int) *stack {
	var of []profile.Layer
	for l := range layers {
		of = append(of, profile.Layer{Name: fmt.Sprint("layer-", l), FS: handled})
	}
	b := profile.NewBuilder(of)
	s := &stack{file: dir + strings.Repeat("/"+dirName, depth) + "/" + fileName}
	rule := slices.Repeat([]profile.Access{granted}, layers)
	if len(s.file) <= profile.MaxPath {
		for i := range depth {
			b.AddPathRow(s.file[:len(dir)+2*(i+1)], rule, profile.Fail)
		}
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	s.p, s.tree, s.matrix = p, profile.NewTree(p), newMatrix(p)
	s.object = s.matrix.add(-1, nil)
	if s.place, err = s.tree.Add(profile.Nowhere, profile.Directory); err != nil {
		t.Fatal(err)
	}
	for range depth {
		s.object = s.matrix.add(s.object, rule)
		if s.place, err = s.tree.Add(s.place, profile.Directory, rule); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.Paths) > 0 {
		s.index = profile.NewIndex(p)
		s.at, _ = s.index.Locate(s.file)
	}
	return s
}

// The seed measurement: in nested folders with one rule each, the file in the
// deepest is opened to read and refused, which every layer does. All ways go by
// turns in one process, and what is given of each are medians:
//
//	ns/matrix, ns/walk   from folder to folder, in the older layout and the transposed one
//	ns/verdict           on the located object, yes or no ([profile.Tree.AllowedAt])
//	ns/united            the same with who refuses what ([profile.Tree.DecideAt])
//	ns/located, ns/path  the same by [profile.Index], on a located path and on the text of it
//	ns/open              the whole operation by [profile.Index.Decide], on the text
//	ns/kernel            openat(2) of the file from its folder, refused by the same rules
//	ns/bare              openat(2) and close(2) of it on a thread without Landlock
//	verdict/1layer, united/1layer   over the same on the same tree under one layer
func BenchmarkDepth(b *testing.B) {
	for _, depth := range []int{10, 2_000, 10_000} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			n, dir := newNested(b, depth)
			for _, layers := range []int{1, 4, 16} {
				b.Run(fmt.Sprintf("layers=%d", layers), func(b *testing.B) {
					benchDepth(b, n, newStack(b, dir, depth, layers), newStack(b, dir, depth, 1))
				})
			}
		})
	}
}

func benchDepth(b *testing.B, n *nested, s, one *stack) {
	const short = 2_000           // repetitions of what takes nanoseconds
	long := max(1, 2_000/n.depth) // and of what depends on the depth
	file := profile.Facts{Type: profile.RegularFile}
	thread := n.confine(b, s.p)
	times := map[string]samples{}
	measure := func(name string, repeat int, allowed func() bool) {
		start := time.Now()
		for range repeat {
			if allowed() {
				b.Fatalf("%s: allowed", name)
			}
		}
		times[name] = append(times[name], float64(time.Since(start).Nanoseconds())/float64(repeat))
	}
	ways := map[string]func() bool{
		"matrix":  func() bool { _, ok := s.matrix.walk(s.object, asked); return ok },
		"walk":    func() bool { return s.tree.WalkAt(s.place, asked).Allowed },
		"verdict": func() bool { return s.tree.AllowedAt(s.place, asked) },
		"united":  func() bool { return s.tree.DecideAt(s.place, asked).Allowed },
	}
	if s.index != nil {
		ways["located"] = func() bool { return s.index.DecideAt(s.at, asked).Allowed }
		open := profile.Operation{Kind: profile.OpOpen, Path: s.file, Open: profile.OpenRead}
		ways["open"] = func() bool { return s.index.Decide(open, file).Verdict != profile.Deny }
		ways["path"] = func() bool { return s.index.DecidePath(s.file, asked).Allowed }
	}
	for name, way := range ways {
		if allocs := testing.AllocsPerRun(3, func() { way() }); allocs != 0 {
			b.Errorf("%s: %v allocations", name, allocs)
		}
	}
	for b.Loop() {
		for name, way := range ways {
			repeat := short
			if name == "matrix" || name == "walk" {
				repeat = long
			}
			measure(name, repeat, way)
		}
		measure("united one", short, func() bool { return one.tree.DecideAt(one.place, asked).Allowed })
		measure("verdict one", short, func() bool { return one.tree.AllowedAt(one.place, asked) })
		kernel, err := n.refused(thread, long)
		if err != nil {
			b.Fatalf("not refused: %v", err)
		}
		bare, err := n.opened(short / 10)
		if err != nil {
			b.Fatal(err)
		}
		times["kernel"], times["bare"] = append(times["kernel"], float64(kernel)), append(times["bare"], float64(bare))
	}
	b.ReportMetric(0, "ns/op")
	for name, all := range times {
		if !strings.HasSuffix(name, " one") {
			b.ReportMetric(all.median(), "ns/"+name)
		}
	}
	b.ReportMetric(times["matrix"].median()/times["walk"].median(), "matrix/walk")
	b.ReportMetric(times["kernel"].median()/times["united"].median(), "kernel/united")
	b.ReportMetric(times["kernel"].median()/times["verdict"].median(), "kernel/verdict")
	b.ReportMetric(times["united"].median()/times["united one"].median(), "united/1layer")
	b.ReportMetric(times["verdict"].median()/times["verdict one"].median(), "verdict/1layer")
}

// samples are the times that one way of deciding took.
type samples []float64

func (s samples) median() float64 {
	slices.Sort(s)
	return s[len(s)/2]
}

// All forms refuse at the deepest and say the same of who does, and so does the
// kernel, down to where no path's text reaches.
func TestDepthAgrees(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, depthAgrees)
}

func depthAgrees(t *testing.T) {
	const depth, layers = 2_100, 4
	n, dir := newNested(t, depth)
	s := newStack(t, dir, depth, layers)
	left, ok := s.matrix.walk(s.object, asked)
	for how, d := range map[string]profile.Decision{"walk": s.tree.WalkAt(s.place, asked), "united": s.tree.DecideAt(s.place, asked)} {
		for l := range layers {
			if got := d.Unfulfilled.At(l); ok || d.Allowed || got != profile.FSReadFile || left.layer(l) != got {
				t.Errorf("layer %d: %s leaves %v, the matrix %v", l, how, got, left.layer(l))
			}
		}
	}
	if _, err := n.refused(n.confine(t, s.p), 1); err != nil {
		t.Errorf("the kernel does not refuse: %v", err)
	}
	if _, err := n.opened(1); err != nil {
		t.Errorf("without Landlock: %v", err)
	}
}
