package profile

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ask is one question on a path and whether it is allowed.
type ask struct {
	path string
	req  Access
	ok   bool
}

// The cases of the kernel's own tests (selftests/landlock/fs_test.c, layout1)
// that are decided by paths alone. Opening a file for reading asks read_file,
// for writing write_file, a directory read_dir.
func TestKernelCasesPaths(t *testing.T) {
	const (
		R, W, D = FSReadFile, FSWriteFile, FSReadDir
		s1d1    = "/tmp/s1d1"
		s1d2    = s1d1 + "/s1d2"
		s1d3    = s1d2 + "/s1d3"
		s2d2    = "/tmp/s2d1/s2d2"
		s3d1    = "/tmp/s3d1"
		s3d2    = s3d1 + "/s3d2"
		s3d3    = s3d2 + "/s3d3"
	)
	unions := []rule{{1, s1d2, R}, {1, s1d3, W}, {2, s1d2, R | W}, {3, s1d2, W}}
	tests := []struct {
		name    string
		handled []Access
		rules   []rule
		asks    []ask
	}{
		{"effective_access", []Access{rw}, []rule{{1, s1d2, ro}, {1, s2d2 + "/f1", R | W}}, []ask{
			{"/", D, false},
			{"/", 0, true},
			{s1d1 + "/f1", R, false},
			{s1d2, D, true},
			{s1d2 + "/f1", R, true},
			{s1d3 + "/f1", R, true},
			{s2d2, D, false},
			{s2d2 + "/f1", R | W, true},
		}},
		{"unhandled_access", []Access{ro}, []rule{{1, s1d2, ro}}, []ask{
			{s1d1 + "/f1", W, true}, {s1d1 + "/f1", R | W, false}, {s1d2 + "/f1", R | W, true},
		}},
		{"ruleset_overlap", []Access{rw}, []rule{{1, s1d2, R | W}, {1, s1d2, R | D}}, []ask{
			{s1d2 + "/f1", R | W, true}, {s1d2, D, true}, {s1d1 + "/f1", R, false}, {s1d1 + "/f1", W, false},
		}},
		{"layer_rule_unions 1", []Access{rw}, unions[:2], []ask{
			{s1d2 + "/f1", R, true}, {s1d2 + "/f1", W, false}, {s1d3 + "/f1", R | W, true},
		}},
		{"layer_rule_unions 2", []Access{rw, rw}, unions[:3], []ask{
			{s1d2 + "/f1", R, true}, {s1d2 + "/f1", W, false}, {s1d3 + "/f1", R | W, true},
		}},
		{"layer_rule_unions 3", []Access{rw, rw, rw}, unions, []ask{
			{s1d2 + "/f1", R, false}, {s1d2 + "/f1", W, false}, {s1d3 + "/f1", R, false}, {s1d3 + "/f1", W, true}, {s1d3 + "/f1", R | W, false},
		}},
		{"inherit_superset", []Access{ro, ro}, []rule{{1, s1d3, ro}, {2, s1d3, ro}, {2, s1d2, ro}}, []ask{
			{s1d2, D, false}, {s1d3, D, true},
		}},
		{"same_ruleset 1", []Access{R}, nil, []ask{{s1d1 + "/f1", R, false}, {s1d1, D, true}}},
		{"same_ruleset 2", []Access{R, D}, nil, []ask{{s1d1, D, false}}},
		{"rule_on_mountpoint", []Access{ro}, []rule{{1, s3d2, ro}}, []ask{{s3d1, D, false}, {s3d2, D, true}, {s3d3, D, true}}},
		{"rule_over_mountpoint", []Access{ro}, []rule{{1, s3d1, ro}}, []ask{{s3d2, D, true}, {s3d3, D, true}}},
		{"rule_over_root_allow_then_deny", []Access{ro, ro}, []rule{{1, "/", ro}, {2, "/", R}}, []ask{
			{"/", D, false}, {s1d1, D, false}, {s1d1 + "/f1", R, true},
		}},
		{"truncate unhandled", []Access{R | W}, nil, []ask{{s1d1 + "/f1", FSTruncate, true}}},
		{"truncate", []Access{R | W | FSTruncate}, []rule{{1, "/rw", R | W}, {1, "/rt", R | FSTruncate}, {1, "/t", FSTruncate}}, []ask{
			{"/rw", FSTruncate, false}, {"/rw", W | FSTruncate, false}, {"/rt", R | FSTruncate, true}, {"/t", FSTruncate, true}, {"/t", R, false},
		}},
		{"names that begin alike", []Access{ro}, []rule{{1, "/usr/lib", ro}}, []ask{
			{"/usr/lib64", D, false}, {"/usr/lib-x/f", R, false}, {"/usr/lib/x", R, true}, {"/usr", D, false},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := build(t, tt.handled, tt.rules...)
			ix := NewIndex(p)
			for _, a := range tt.asks {
				d := p.DecidePath(a.path, a.req)
				want := syscall.Errno(0)
				if !a.ok {
					want = syscall.EACCES
				}
				if d.Allowed != a.ok || d.Errno != want || d.Unfulfilled.Empty() != a.ok {
					t.Errorf("%s %s: %+v, want allowed %v", a.path, FS.Names(a.req), d, a.ok)
				}
				if got := ix.DecidePath(a.path, a.req); !reflect.DeepEqual(got, d) {
					t.Errorf("%s %s: the index says %+v, the walk %+v", a.path, FS.Names(a.req), got, d)
				}
			}
		})
	}
}

// selftests/landlock/net_test.c: tcp_layers.ruleset_overlap, ruleset_expand.
func TestKernelCasesPorts(t *testing.T) {
	const both = NetBindTCP | NetConnectTCP
	type portRule struct {
		layer  int
		port   uint16
		access Access
	}
	make := func(handled []Access, rules ...portRule) *Profile {
		var layers []Layer
		for i, h := range handled {
			layers = append(layers, Layer{Name: fmt.Sprint("l", i), Net: h})
		}
		b := NewBuilder(layers)
		for _, r := range rules {
			b.AddPorts(r.layer-1, r.port, r.port, r.access, false)
		}
		return mustBuild(t, b)
	}
	overlap := []portRule{{1, 80, NetBindTCP}, {1, 80, both}, {2, 80, NetBindTCP}, {3, 80, both}}
	expand := []portRule{{1, 80, NetBindTCP}, {2, 80, both}, {2, 81, NetBindTCP}, {3, 80, NetBindTCP}}
	tests := []struct {
		name string
		p    *Profile
		port uint16
		req  Access
		ok   bool
	}{
		{"overlap 1", make([]Access{both}, overlap[:2]...), 80, both, true},
		{"overlap 2 bind", make([]Access{both, both}, overlap[:3]...), 80, NetBindTCP, true},
		{"overlap 2 connect", make([]Access{both, both}, overlap[:3]...), 80, NetConnectTCP, false},
		{"overlap 3 connect", make([]Access{both, both, both}, overlap...), 80, NetConnectTCP, false},
		{"expand 1 bind 80", make([]Access{NetBindTCP}, expand[:1]...), 80, NetBindTCP, true},
		{"expand 1 bind 81", make([]Access{NetBindTCP}, expand[:1]...), 81, NetBindTCP, false},
		{"expand 1 connect 81", make([]Access{NetBindTCP}, expand[:1]...), 81, NetConnectTCP, true},
		{"expand 2 connect 80", make([]Access{NetBindTCP, both}, expand[:3]...), 80, NetConnectTCP, true},
		{"expand 2 connect 81", make([]Access{NetBindTCP, both}, expand[:3]...), 81, NetConnectTCP, false},
		{"expand 3 connect 80", make([]Access{NetBindTCP, both, both}, expand...), 80, NetConnectTCP, false},
		{"port 0 is no wildcard", make([]Access{both}, portRule{1, 0, both}), 80, NetBindTCP, false},
		{"port 0", make([]Access{both}, portRule{1, 0, both}), 0, NetBindTCP, true},
		{"the last port", make([]Access{both}, portRule{1, 65535, both}), 65535, NetBindTCP, true},
		{"udp is not tcp", make([]Access{both}), 53, NetConnectSendUDP, true},
	}
	for _, tt := range tests {
		if d := tt.p.DecidePort(tt.port, tt.req); d.Allowed != tt.ok || (d.Errno == syscall.EACCES) == tt.ok {
			t.Errorf("%s: %+v, want allowed %v", tt.name, d, tt.ok)
		}
	}
	var met []uint16
	d := tests[3].p.ExplainPort(80, both, func(r *PortRow, cleared []Access) {
		met = append(met, r.First)
		if !slices.Equal(cleared, []Access{both, NetBindTCP, both}) {
			t.Errorf("cleared %v", cleared)
		}
	})
	if !slices.Equal(met, []uint16{80}) || !slices.Equal(d.Unfulfilled.Slice(), []Access{0, NetConnectTCP, 0}) {
		t.Errorf("met %v, left %v", met, d.Unfulfilled.Slice())
	}
}

func TestDecideScope(t *testing.T) {
	p := mustBuild(t, NewBuilder([]Layer{{Name: "a", Scope: ScopeSignal}, {Name: "b", FS: ro}, {Name: "c", Scope: ScopeSignal | ScopeAbstractUnixSocket}}))
	tests := []struct {
		req    Access
		shared int
		denied []int
	}{
		{ScopeSignal, 0, []int{0, 2}},
		{ScopeSignal, 1, []int{2}},
		{ScopeSignal, 2, []int{2}},
		{ScopeSignal, 3, nil},
		{ScopeAbstractUnixSocket, 0, []int{2}},
		{ScopeAbstractUnixSocket, 3, nil},
	}
	for _, tt := range tests {
		d := p.DecideScope(tt.req, tt.shared)
		if !slices.Equal(d.Unfulfilled.Layers(), tt.denied) || d.Allowed != (tt.denied == nil) || (d.Errno == syscall.EPERM) == d.Allowed {
			t.Errorf("%v with %d shared: %+v, want denied by %v", Scope.Names(tt.req), tt.shared, d, tt.denied)
		}
	}
}

func TestDecideImplicitRefer(t *testing.T) {
	p := mustBuild(t, NewBuilder([]Layer{{Name: "net", Net: NetBindTCP}}))
	if d := p.DecidePath("/a", FSRefer|FSMakeReg); !d.Allowed || p.HandlesFS() {
		t.Errorf("a domain without fs rights denies %+v", d)
	}
	b := NewBuilder([]Layer{{Name: "fs", FS: FSRefer}, {Name: "net", Net: NetBindTCP}})
	b.AddPath(0, "/", FSRefer, false, Fail)
	d := mustBuild(t, b).DecidePath("/a", FSRefer)
	if !slices.Equal(d.Unfulfilled.Slice(), []Access{0, FSRefer}) {
		t.Errorf("unfulfilled %v: the net layer must deny refer", d.Unfulfilled.Slice())
	}
}

func TestDecideQuiet(t *testing.T) {
	b := NewBuilder([]Layer{{Name: "a", FS: rw, QuietFS: FSReadFile, Scope: ScopeSignal}, {Name: "b", FS: FSWriteFile, QuietScope: ScopeSignal, Scope: ScopeSignal}})
	b.AddPath(0, "/q", 0, true, Fail)
	p := mustBuild(t, b)
	tests := []struct {
		path  string
		req   Access
		quiet bool
	}{
		{"/q/f", FSReadFile, true},
		{"/other", FSReadFile, false},             // no quiet rule met
		{"/q/f", FSReadFile | FSReadDir, false},   // read_dir is not quiet
		{"/q/f", FSReadFile | FSWriteFile, false}, // the innermost that denies is b
		{"/q/f", FSExecute, false},                // allowed
	}
	for _, tt := range tests {
		if d := p.DecidePath(tt.path, tt.req); d.Quiet != tt.quiet {
			t.Errorf("%s %v: quiet %v", tt.path, FS.Names(tt.req), d.Quiet)
		}
	}
	if d := p.DecideScope(ScopeSignal, 0); !d.Quiet || d.Allowed {
		t.Errorf("scope: %+v", d)
	}
}

func TestDecideBadPath(t *testing.T) {
	p := build(t, []Access{rw}, rule{1, "/", rw})
	for _, path := range []string{"", "etc", "/etc/", "//etc", "/etc/../usr", "/.", "/a\x00b", "/" + strings.Repeat("a/", 3000) + "a"} {
		d := p.DecidePath(path, FSReadFile)
		e := p.ExplainPath(path, FSReadFile, func(*PathRow, []Access) { t.Error("a row was met") })
		i := NewIndex(p).DecidePath(path, FSReadFile)
		if d.Allowed || d.Errno != syscall.EINVAL || !reflect.DeepEqual(d, e) || !reflect.DeepEqual(d, i) {
			t.Errorf("%.20q: %+v, %+v, %+v", path, d, e, i)
		}
		if at, ok := NewIndex(p).Locate(path); ok || at != Nowhere {
			t.Errorf("%.20q is located at %d", path, at)
		}
	}
}

func TestDecideNowhere(t *testing.T) {
	ix := NewIndex(build(t, []Access{rw}, rule{1, "/a", rw}))
	at, ok := ix.Locate("/b")
	if d := ix.DecideAt(at, rw); !ok || at != Nowhere || d.Errno != syscall.EACCES || d.Unfulfilled.At(0) != rw {
		t.Errorf("no row above: %d, %+v", at, d)
	}
	for _, at := range []Place{-1, 2} {
		if d := ix.DecideAt(at, rw); d.Allowed || d.Errno != syscall.EINVAL || ix.AllowedAt(at, 0) {
			t.Errorf("place %d: %+v", at, d)
		}
	}
}

func TestExplainPath(t *testing.T) {
	p := build(t, []Access{rw, ro}, rule{1, "/", FSReadDir}, rule{1, "/a", ro}, rule{2, "/a", FSReadFile}, rule{1, "/a/b", FSReadFile}, rule{1, "/c", rw})
	var got []string
	d := p.ExplainPath("/a/b/f", FSReadFile|FSWriteFile, func(r *PathRow, cleared []Access) {
		got = append(got, fmt.Sprint(r.Path, " ", FS.Format(cleared[0]), " ", FS.Format(cleared[1])))
	})
	want := []string{"/a/b read_file none", "/a none read_file", "/ none none"}
	if !slices.Equal(got, want) {
		t.Errorf("met %v, want %v", got, want)
	}
	if !slices.Equal(d.Unfulfilled.Slice(), []Access{FSWriteFile, 0}) || !slices.Equal(d.Unfulfilled.Layers(), []int{0}) || d.Unfulfilled.At(0) != FSWriteFile {
		t.Errorf("left %v", d.Unfulfilled.Slice())
	}
}

// The index, the explanation and a walk written naively agree with the walk.
func TestEvaluatorsAgree(t *testing.T) {
	rounds(t, 2000, func(t *testing.T, r *rand.Rand, p *Profile) {
		ix := NewIndex(p)
		for range 30 {
			path, req := randomPath(r), randomMask(r, FS)
			walk := p.DecidePath(path, req)
			if got := ix.DecidePath(path, req); !reflect.DeepEqual(got, walk) {
				t.Errorf("%s: index %+v, walk %+v", path, got, walk)
			}
			if row, ok := ix.Locate(path); !ok || !reflect.DeepEqual(ix.DecideAt(row, req), walk) || ix.AllowedAt(row, req) != walk.Allowed {
				t.Errorf("%s: located %+v, walk %+v", path, ix.DecideAt(row, req), walk)
			}
			if got := p.ExplainPath(path, req, func(*PathRow, []Access) {}); !reflect.DeepEqual(got, walk) {
				t.Errorf("%s: explained %+v, walk %+v", path, got, walk)
			}
			if got := naive(p, path, req); !slices.Equal(got, walk.Unfulfilled.Slice()) {
				t.Errorf("%s: naive %v, walk %+v", path, got, walk)
			}
			port, shared := uint16(r.IntN(30)), r.IntN(4)
			if x, y := p.DecidePort(port, req), ix.DecidePort(port, req); !reflect.DeepEqual(x, y) {
				t.Errorf("port %d: walk %+v, index %+v", port, x, y)
			}
			if x, y := p.DecideScope(req, shared), ix.DecideScope(req, shared); !reflect.DeepEqual(x, y) {
				t.Errorf("%d shared: walk %+v, index %+v", shared, x, y)
			}
			mv := randomMove(r)
			if x, y := p.DecideMove(mv), ix.DecideMove(mv); !reflect.DeepEqual(x, y) {
				t.Errorf("%+v: walk %+v, index %+v", mv, x, y)
			}
		}
	})
}

// naive looks at every row, whatever the order.
func naive(p *Profile, path string, req Access) []Access {
	out := make([]Access, len(p.Layers))
	for l := range out {
		h := p.Layers[l].FS
		if p.HandlesFS() {
			h |= FSRefer
		}
		out[l] = req & h
		for _, row := range p.Paths {
			if row.Path == "/" || row.Path == path || strings.HasPrefix(path, row.Path+"/") {
				out[l] &^= row.Access[l]
			}
		}
	}
	return out
}

// Decisions are taken for every request of a check: they allocate nothing.
func TestDecisionsAllocateNothing(t *testing.T) {
	var layers []Layer
	for i := range MaxKernelLayers {
		layers = append(layers, Layer{Name: fmt.Sprint(i), FS: Handled(FS, 11), Net: Handled(Net, 11), Scope: 3})
	}
	b := NewBuilder(layers)
	for i := range layers {
		b.AddPath(i, fmt.Sprint("/a/b/", i), ro, false, Fail)
		b.AddPath(i, "/a", FSExecute, false, Fail)
		b.AddPorts(i, 80, 90, NetBindTCP, false)
	}
	p := mustBuild(t, b)
	ix := NewIndex(p)
	path := "/a/b/3/c/d/e"
	g := newGrower(t, p)
	at := g.at(path)
	row, _ := ix.Locate(path)
	mv := Move{Rename, "/a/b/3/x", "/a/b/4/y", RegularFile, NoFile, false}
	for name, f := range map[string]func() bool{
		"walk":       func() bool { return p.DecidePath(path, rw).Allowed },
		"index":      func() bool { return ix.DecidePath(path, rw).Allowed },
		"located":    func() bool { _, ok := ix.Locate(path); return !ok || ix.DecideAt(row, rw).Allowed },
		"tree":       func() bool { return g.tree.DecideAt(at, rw).Allowed },
		"verdict":    func() bool { return ix.AllowedAt(row, rw) || g.tree.AllowedAt(at, rw) },
		"tree walk":  func() bool { return g.tree.WalkAt(at, rw).Allowed },
		"walk move":  func() bool { return p.DecideMove(mv).Allowed },
		"index move": func() bool { return ix.DecideMove(mv).Allowed },
		"port":       func() bool { return p.DecidePort(99, NetBindTCP).Allowed },
		"scope":      func() bool { return p.DecideScope(ScopeSignal, 3).Allowed },
		"who denied": func() bool { d := p.DecidePath(path, rw); return d.Unfulfilled.At(0) == 0 },
		"not a path": func() bool { return p.DecidePath("x", rw).Allowed },
		"not a move": func() bool { return p.DecideMove(Move{Old: "/"}).Allowed },
	} {
		if f() {
			t.Errorf("%s: allowed", name)
		}
		if n := testing.AllocsPerRun(100, func() { f() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// The nearest row above, found in one pass, is the one found by looking up each
// parent in turn.
func TestRowsAbove(t *testing.T) {
	found := 0
	rounds(t, 1000, func(t *testing.T, r *rand.Rand, p *Profile) {
		for i, up := range p.rowsAbove() {
			want, _, _ := p.above(parent(p.Paths[i].Path), len(p.Paths))
			if int(up) != want {
				t.Errorf("above %s: row %d, want %d", p.Paths[i].Path, up, want)
			}
			if up >= 0 {
				found++
			}
		}
	})
	if found == 0 {
		t.Error("no row was above another")
	}
}

// Profiles, indexes and trees are shared by all who ask: run with -race.
func TestDecisionsAreConcurrent(t *testing.T) {
	p := randomProfile(rand.New(rand.NewPCG(7, 1)))
	ix, g := NewIndex(p), newGrower(t, p)
	// What each asks for: made before, as a tree must not grow meanwhile.
	type question struct {
		op Operation
		f  Facts
		at Where
	}
	var questions []question
	for r := rand.New(rand.NewPCG(7, 4)); len(questions) < 500; {
		op, f := randomOperation(r)
		questions = append(questions, question{op, f, g.where(&op)})
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range questions {
				q := &questions[i]
				walk, index, tree := p.Decide(q.op, q.f), ix.Decide(q.op, q.f), g.tree.Decide(q.op, q.f, q.at)
				if walk.Errno != index.Errno || walk.Errno != tree.Errno {
					t.Errorf("%+v: %v, %v, %v", q.op, walk.Errno, index.Errno, tree.Errno)
				}
				p.ExplainPath(q.op.Path, ro, func(*PathRow, []Access) {})
				p.Encode()
				p.Required()
			}
		})
	}
	wg.Wait()
}
