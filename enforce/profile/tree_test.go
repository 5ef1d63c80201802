package profile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// grower grows a tree along paths, with the rows of a profile as rules.
type grower struct {
	t      testing.TB
	p      *Profile
	tree   *Tree
	places map[string]Place
}

func newGrower(t testing.TB, p *Profile) *grower {
	return &grower{t, p, NewTree(p), map[string]Place{"": Nowhere}}
}

// at gives the place of a directory.
func (g *grower) at(path string) Place {
	if at, ok := g.places[path]; ok {
		return at
	}
	var rules [][]Access
	if row, _ := g.p.findPath(path, len(g.p.Paths)); row >= 0 {
		rules = append(rules, g.p.Paths[row].Access)
	}
	g.places[path] = add(g.t, g.tree, g.at(parent(path)), Directory, rules...)
	return g.places[path]
}

func (g *grower) where(op *Operation) (at Where) {
	at.Object, at.NewObject = g.at(op.Path), g.at(op.NewPath)
	at.Parent, at.NewParent = g.tree.Up(at.Object), g.tree.Up(at.NewObject)
	return at
}

func add(t testing.TB, tree *Tree, up Place, ft FileType, rules ...[]Access) Place {
	t.Helper()
	at, err := tree.Add(up, ft, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// On a tree of directories where every path is an object of its own, a tree
// answers as the profile, walked or united, rights or operations.
func TestTreeAgreesWithTheProfile(t *testing.T) {
	rounds(t, 1500, func(t *testing.T, r *rand.Rand, p *Profile) {
		g := newGrower(t, p)
		for range 20 {
			path, req := randomPath(r), randomMask(r, FS)
			want, at := p.DecidePath(path, req), g.at(path)
			if got := g.tree.DecideAt(at, req); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: united %+v, want %+v", path, got, want)
			}
			if got := g.tree.WalkAt(at, req); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: walked %+v, want %+v", path, got, want)
			}
			if g.tree.AllowedAt(at, req) != want.Allowed {
				t.Errorf("%s: verdict %v, want %+v", path, !want.Allowed, want)
			}
			var met, wantMet []string
			p.ExplainPath(path, req, func(row *PathRow, cleared []Access) { wantMet = append(wantMet, fmt.Sprint(g.at(row.Path), cleared)) })
			got := g.tree.ExplainAt(at, req, func(at Place, cleared []Access) { met = append(met, fmt.Sprint(at, cleared)) })
			if !reflect.DeepEqual(got, want) || !slices.Equal(met, wantMet) {
				t.Errorf("%s: explained %+v by %v, want %+v by %v", path, got, met, want, wantMet)
			}
			op, f := randomOperation(r)
			if got, want := g.tree.Decide(op, f, g.where(&op)), p.Decide(op, f); !reflect.DeepEqual(got, want) {
				t.Errorf("%v %+v %+v: tree %+v, want %+v", op.Kind, op, f, got, want)
			}
		}
	})
}

// An object without rules of its own need not be in the tree, nor may its
// parent's rules be taken for its own when it moves.
func TestTreeOfRulesAlone(t *testing.T) {
	rounds(t, 1000, func(t *testing.T, r *rand.Rand, p *Profile) {
		g := newGrower(t, p)
		for range 20 {
			op, f := randomOperation(r)
			at := g.where(&op)
			if row, _ := p.findPath(op.Path, len(p.Paths)); row < 0 {
				at.Object = Nowhere
			}
			if row, _ := p.findPath(op.NewPath, len(p.Paths)); row < 0 {
				at.NewObject = Nowhere
			}
			got, want := g.tree.Decide(op, f, at), p.Decide(op, f)
			// A root without rules and its parent would both be nowhere.
			if op.Path != "/" && op.NewPath != "/" && !reflect.DeepEqual(got, want) {
				t.Errorf("%v %+v %+v: tree %+v, want %+v", op.Kind, op, f, got, want)
			}
		}
	})
}

// All rules of an inode count, whatever paths they were given by; of an object
// that is no directory, the rights of files alone.
func TestTreeSeveralRulesOfOneObject(t *testing.T) {
	p := build(t, []Access{rw, rw | FSMakeReg})
	tree := NewTree(p)
	root := add(t, tree, Nowhere, Directory)
	a := add(t, tree, root, Directory, []Access{FSReadFile, 0}, []Access{FSWriteFile, FSReadFile}, []Access{0, FSReadFile | FSMakeReg})
	file := add(t, tree, root, RegularFile, []Access{ro, rw})
	link := add(t, tree, a, RegularFile, []Access{ro, rw}) // the same inode along another path
	empty := add(t, tree, a, Symlink, []Access{0, FSMakeReg})
	for _, tt := range []struct {
		at   Place
		want []Access
	}{
		{root, []Access{rw, rw | FSMakeReg}},
		{a, []Access{FSReadDir, FSReadDir | FSWriteFile}},
		{file, []Access{FSReadDir | FSWriteFile, FSReadDir | FSMakeReg}},
		{link, []Access{FSReadDir, FSReadDir}},
		{empty, []Access{FSReadDir, FSReadDir | FSWriteFile}},
	} {
		for how, d := range map[string]Decision{"united": tree.DecideAt(tt.at, rw|FSMakeReg), "walked": tree.WalkAt(tt.at, rw|FSMakeReg)} {
			if !slices.Equal(d.Unfulfilled.Slice(), tt.want) || d.Errno != syscall.EACCES {
				t.Errorf("place %d %s: %v %v left, want %v", tt.at, how, d.Errno, d.Unfulfilled.Slice(), tt.want)
			}
		}
	}
	if tree.Len() != 5 || tree.Up(link) != a || tree.Up(root) != Nowhere || tree.Up(99) != Nowhere {
		t.Errorf("%d objects, %d above link", tree.Len(), tree.Up(link))
	}
}

// A quiet rule on a file is quiet though it grants nothing there.
func TestTreeQuietFile(t *testing.T) {
	p := mustBuild(t, NewBuilder([]Layer{{Name: "a", FS: rw, QuietFS: rw}}))
	tree := NewTree(p)
	file := add(t, tree, add(t, tree, Nowhere, Directory), RegularFile, []Access{FSReadDir | QuietRule})
	if d := tree.DecideAt(file, FSReadDir); d.Allowed || !d.Quiet {
		t.Errorf("%+v", d)
	}
}

// selftests/landlock/fs_test.c, layout1_bind and layout4_disconnected_leafs: a
// directory moved out of the bind mount it is reached by meets the rules up to
// its file system's root, then those from the mount on.
func TestTreeDisconnected(t *testing.T) {
	p := build(t, []Access{rw | FSRefer})
	tree := NewTree(p)
	rule := func(a Access) []Access { return []Access{a} }
	top := add(t, tree, Nowhere, Directory, rule(FSReadDir)) // "/"
	mount := add(t, tree, top, Directory, rule(FSWriteFile)) // the root of the bind mount, under the mount point's parent
	disk := add(t, tree, mount, Directory, rule(FSReadFile)) // the root of the file system, met as disconnected
	moved := add(t, tree, disk, Directory)                   // what was moved out
	faulty := add(t, tree, Nowhere, Directory, rule(ro))     // the same root for a kernel without erratum 3
	for _, tt := range []struct {
		name string
		at   Place
		left Access
	}{
		{"erratum 3 mended", moved, FSRefer},
		{"erratum 3", faulty, FSWriteFile | FSRefer},
	} {
		if d := tree.DecideAt(tt.at, rw|FSRefer); d.Unfulfilled.At(0) != tt.left {
			t.Errorf("%s: %s left, want %s", tt.name, FS.Format(d.Unfulfilled.At(0)), FS.Format(tt.left))
		}
	}
	if e := Errata()[2]; e.Number != 3 || !strings.Contains(e.Facts, "Nowhere") {
		t.Errorf("erratum 3 is %+v", e)
	}
}

func TestTreeRefuses(t *testing.T) {
	p := build(t, []Access{rw, rw})
	tree := NewTree(p)
	root := add(t, tree, Nowhere, Directory, []Access{rw, rw})
	for _, up := range []Place{-1, root + 1} {
		if at, err := tree.Add(up, Directory); !errors.Is(err, ErrInvalid) || at != Nowhere {
			t.Errorf("added under %d: %d, %v", up, at, err)
		}
		if tree.AllowedAt(up, 0) {
			t.Errorf("allowed at %d", up)
		}
		for how, d := range map[string]Decision{"decided": tree.DecideAt(up, ro), "walked": tree.WalkAt(up, ro), "explained": tree.ExplainAt(up, ro, nil)} {
			if d.Allowed || d.Errno != syscall.EINVAL {
				t.Errorf("%s at %d: %+v", how, up, d)
			}
		}
	}
	if _, err := tree.Add(root, Directory, []Access{rw}); !errors.Is(err, ErrInvalid) {
		t.Errorf("one mask for two layers: %v", err)
	}
	for _, op := range []Operation{
		{Kind: OpOpen, Path: "/f", Open: OpenRead}, {Kind: OpMkdir, Path: "/f"}, {Kind: OpRename, Path: "/f", NewPath: "/g"}, {Kind: OpConnectUnix, Path: "/f"},
	} {
		if a := tree.Decide(op, Facts{Type: RegularFile}, Where{}); a.Verdict != Deny || a.Errno != syscall.EINVAL {
			t.Errorf("%v of nowhere: %v %v", op.Kind, a.Verdict, a.Errno)
		}
	}
	if a := tree.Decide(Operation{Kind: OpMkdir}, Facts{}, Where{Object: root}); a.Errno != syscall.EINVAL {
		t.Errorf("the root made: %v", a.Errno)
	}
}
