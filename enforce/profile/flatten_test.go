package profile

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A flat profile decides as the layers on every path, port and scope.
func TestFlattenAgreesWithTheLayers(t *testing.T) {
	rounds(t, 4000, func(t *testing.T, r *rand.Rand, p *Profile) {
		f, err := Flatten(p)
		if err != nil {
			t.Fatal(err)
		}
		flat := f.Profile
		if len(flat.Layers) != 1 || flat.Name != p.Name || flat.Flatten != p.Flatten || flat.Degrade != p.Degrade {
			t.Fatalf("flat is %+v", flat)
		}
		for range 20 {
			path, req := randomPath(r), randomMask(r, FS)
			if x, y := p.DecidePath(path, req), flat.DecidePath(path, req); x.Allowed != y.Allowed || x.Errno != y.Errno || union(&x.Unfulfilled) != union(&y.Unfulfilled) {
				t.Errorf("%s %v: layers %+v, flat %+v", path, FS.Names(req), x, y)
			}
			port, req := uint16(r.IntN(30)), randomMask(r, Net)
			if x, y := p.DecidePort(port, req), flat.DecidePort(port, req); x.Allowed != y.Allowed || union(&x.Unfulfilled) != union(&y.Unfulfilled) {
				t.Errorf("port %d %v: layers %+v, flat %+v", port, Net.Names(req), x, y)
			}
			req = randomMask(r, Scope)
			if x, y := p.DecideScope(req, 0), flat.DecideScope(req, 0); x.Allowed != y.Allowed {
				t.Errorf("scope %v: layers %+v, flat %+v", Scope.Names(req), x, y)
			}
		}
	})
}

// For moves: what the layers allow stays allowed; what flat allows beyond that
// was EXDEV for a gain in some layer, and happens only where Flat.Refer says so.
func TestFlattenMoves(t *testing.T) {
	weaker, allowed := 0, 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := moveProfile(r)
		f, err := Flatten(p)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			mv := randomMove(r)
			x, y := p.DecideMove(mv), f.Profile.DecideMove(mv)
			if x.Allowed {
				allowed++
			}
			if x.Errno == y.Errno {
				continue
			}
			weaker++
			if x.Errno != syscall.EXDEV || !y.Allowed || union(&x.Gain)|union(&x.GainBack) == 0 {
				t.Fatalf("seed %d: %+v: layers %+v, flat %+v", seed, mv, x, y)
			}
			for _, name := range []string{mv.Old, mv.New} {
				if !slices.ContainsFunc(f.Refer, func(at string) bool { return under(parent(name), at) }) {
					t.Fatalf("seed %d: %+v: differs, but Refer %v does not tell", seed, mv, f.Refer)
				}
			}
		}
	}
	if weaker == 0 || allowed == 0 {
		t.Errorf("%d moves allowed, %d of them when flat alone: the test does not reach what it is about", allowed, weaker)
	}
}

// In another mount than that of "/" the kernel does not compare what the rule
// on "/" grants. Where the layers let a rename through, so must the flat one:
// it keeps what a row repeats of "/".
func TestFlattenRepeatsRoot(t *testing.T) {
	const refer = FSRefer
	p := build(t, []Access{refer, refer | FSMakeSym}, rule{1, "/", refer}, rule{1, "/m/a", refer}, rule{1, "/m/b", refer},
		rule{2, "/", refer}, rule{2, "/m", refer}, rule{2, "/m/a", refer})
	f, err := Flatten(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, mv := range []Move{
		{Op: Exchange, Old: "/m/a/d", New: "/m/b/d", OldType: Directory, NewType: Directory, Mounted: true},
		{Op: Rename, Old: "/m/b/d", New: "/m/a/d", OldType: Directory, Mounted: true},
	} {
		if x, y := p.DecideMove(mv), f.Profile.DecideMove(mv); !x.Allowed || !y.Allowed {
			t.Errorf("%+v: layers %v, flat %v", mv, x.Errno, y.Errno)
		}
	}
}

// moveProfile makes layers that often let objects move.
func moveProfile(r *rand.Rand) *Profile {
	const rights = FSRefer | FSReadFile | FSReadDir | FSMakeReg | FSRemoveFile
	layers := make([]Layer, 2+r.IntN(2))
	for i := range layers {
		layers[i] = Layer{Name: string(rune('a' + i)), FS: FSRefer | Access(r.Uint32())&rights}
	}
	b := NewBuilder(layers)
	for i := range layers {
		if r.IntN(4) > 0 {
			b.AddPath(i, "/", layers[i].FS&^ro, false, Fail)
		}
		for range 1 + r.IntN(3) {
			b.AddPath(i, randomPath(r), layers[i].FS&(FSRefer|Access(r.Uint32())), false, Fail)
		}
	}
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return p
}

func under(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// Where PathBound names no row, rules may be met along any path: seeing only
// the row itself and nothing above it, layers and flat agree too.
func TestFlattenPathBound(t *testing.T) {
	free := 0
	rounds(t, 4000, func(t *testing.T, r *rand.Rand, p *Profile) {
		f, err := Flatten(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Paths {
			row := &p.Paths[i]
			if slices.Contains(f.PathBound, row.Path) {
				continue
			}
			free++
			// What this inode's rules grant to who comes along a path without
			// any other rule.
			if len(p.Layers) == 1 {
				continue // Flatten leaves it as it is
			}
			alone := *p
			alone.Paths = []PathRow{*row}
			alone.Paths[0].Path = "/elsewhere"
			want := alone.DecidePath("/elsewhere", Handled(FS, MaxABI))
			moved := *f.Profile
			moved.Paths = nil
			if j, _ := f.Profile.findPath(row.Path, len(f.Profile.Paths)); j >= 0 {
				moved.Paths = []PathRow{f.Profile.Paths[j]}
				moved.Paths[0].Path = "/elsewhere"
			}
			got := moved.DecidePath("/elsewhere", Handled(FS, MaxABI))
			if union(&got.Unfulfilled) != union(&want.Unfulfilled) {
				t.Errorf("%s: alone %+v, flat %+v", row.Path, want, got)
			}
		}
	})
	if free == 0 {
		t.Error("every row was bound to its path")
	}
}

// Rows that PathBound does not name may stand on any object, several on one, in
// any tree: layers and flat agree. That is what hard links and bind mounts do.
func TestFlattenOnObjects(t *testing.T) {
	bound := 0
	rounds(t, 2000, func(t *testing.T, r *rand.Rand, p *Profile) {
		f, err := Flatten(p)
		if err != nil {
			t.Fatal(err)
		}
		layers, flat := NewTree(p), NewTree(f.Profile)
		for range 1 + r.IntN(12) {
			up, ft := Place(r.IntN(layers.Len()+1)), FileType(1+r.IntN(2))
			var rules, flatRules [][]Access
			for i := range p.Paths {
				if row := &p.Paths[i]; r.IntN(4) == 0 && !slices.Contains(f.PathBound, row.Path) {
					rules = append(rules, row.Access)
					if j, _ := f.Profile.findPath(row.Path, len(f.Profile.Paths)); j >= 0 {
						flatRules = append(flatRules, f.Profile.Paths[j].Access)
					}
					bound++
				}
			}
			at, req := add(t, layers, up, ft, rules...), randomMask(r, FS)
			if add(t, flat, up, ft, flatRules...) != at {
				t.Fatal("the trees differ")
			}
			if x, y := layers.DecideAt(at, req), flat.DecideAt(at, req); x.Allowed != y.Allowed || union(&x.Unfulfilled) != union(&y.Unfulfilled) {
				t.Errorf("place %d, %s: layers %+v, flat %+v", at, FS.Format(req), x, y)
			}
		}
	})
	if bound == 0 {
		t.Error("no row was free of its path")
	}
}

func TestFlattenLimits(t *testing.T) {
	p := build(t, []Access{FSRefer | ro, FSRefer | ro},
		rule{1, "/", FSRefer}, rule{2, "/data", FSRefer}, rule{1, "/data/a", ro}, rule{2, "/data/a", ro}, rule{1, "/data/b", FSReadFile})
	f, err := Flatten(p)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/data"}; !slices.Equal(f.Refer, want) {
		t.Errorf("refer %v, want %v", f.Refer, want)
	}
	if want := []string{"/", "/data", "/data/b"}; !slices.Equal(f.PathBound, want) {
		t.Errorf("path bound %v, want %v", f.PathBound, want)
	}
	want := []PathRow{{Path: "/data", Access: []Access{FSRefer}}, {Path: "/data/a", Access: []Access{ro}}}
	if !reflect.DeepEqual(f.Profile.Paths, want) {
		t.Errorf("rows %v, want %v", f.Profile.Paths, want)
	}
	if err := f.CheckRefer(); !errors.Is(err, ErrFlattenRefer) || !strings.Contains(err.Error(), "/data") {
		t.Errorf("not refused: %v", err)
	}
	p.AcceptReferFlatten = true
	if f, err = Flatten(p); err != nil || f.CheckRefer() != nil {
		t.Errorf("refused though accepted: %v", err)
	}
	if got := abridged([]string{"/a", "/b", "/c", "/d", "/e"}); got != "/a, /b, /c and 2 more" {
		t.Errorf("abridged to %q", got)
	}
}

func TestFlattenOneLayer(t *testing.T) {
	p := docExample()
	p.Layers = p.Layers[:1]
	for i := range p.Paths {
		p.Paths[i].Access = p.Paths[i].Access[:1]
	}
	p.Ports[0].Access = p.Ports[0].Access[:1]
	f, err := Flatten(p)
	if err != nil || f.Profile != p || f.Refer != nil || f.PathBound != nil || f.LogLost != nil {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := Flatten(&Profile{ABI: 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an invalid profile: %v", err)
	}
}

func TestFlattenLog(t *testing.T) {
	b := NewBuilder([]Layer{
		{Name: "a", FS: ro, QuietFS: ro, Log: LogSameExecOff | LogSubdomainsOff},
		{Name: "b", FS: ro, Log: LogSameExecOff | LogNewExecOn},
	})
	b.AddPath(0, "/q", ro, true, Fail)
	f, err := Flatten(mustBuild(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if l := f.Profile.Layers[0]; l.Log != LogSameExecOff|LogNewExecOn || l.QuietFS != 0 || l.Name != FlatLayer {
		t.Errorf("layer %+v", l)
	}
	if want := []string{`layer "a": quiet`, `layer "a": subdomains_off`}; !slices.Equal(f.LogLost, want) {
		t.Errorf("lost %v, want %v", f.LogLost, want)
	}
}
