package profile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

const moveRights = FSRefer | FSMakeReg | FSMakeDir | FSMakeSym | FSRemoveFile | FSRemoveDir | FSReadFile | FSExecute | FSReadDir

// referProfile is a random profile in which much can be moved.
func referProfile(r *rand.Rand) *Profile {
	layers := make([]Layer, 1+r.IntN(3))
	for i := range layers {
		layers[i] = Layer{Name: fmt.Sprint("l", i), FS: Access(r.Uint32()) & moveRights}
		if r.IntN(4) == 0 {
			layers[i].FS = FSRefer
		}
		if layers[i].FS == 0 {
			layers[i].Scope = ScopeSignal
		}
	}
	b := NewBuilder(layers)
	for range 1 + r.IntN(8) {
		path := randomPath(r)
		for i := range layers {
			if r.IntN(4) == 0 {
				continue
			}
			a := Access(r.Uint32())
			if r.IntN(3) > 0 {
				a |= FSRefer | FSMakeReg | FSMakeDir | FSRemoveDir
			}
			if a &= layers[i].FS; a != 0 {
				b.AddPath(i, path, a, false, Skip)
			}
		}
	}
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	p.Flatten = r.IntN(4) == 0
	return p
}

// holds reads a group as its documentation says.
func (g *MoveGroup) holds(path string) bool {
	if slices.Contains(g.Itself, path) || slices.Contains(g.NotItself, path) {
		return slices.Contains(g.Itself, path)
	}
	for path = parent(path); path != ""; path = parent(path) {
		if slices.Contains(g.In, path) {
			return true
		}
		if slices.Contains(g.Except, path) {
			return false
		}
	}
	return false
}

// listedMove gives what the list says of moves from a path to another.
func listedMove(c *Comparison, mv Move) (d Change) {
	for _, m := range c.Moves.Changes {
		if c.Moves.Groups[m.From].holds(mv.Old) && c.Moves.Groups[m.To].holds(mv.New) {
			one := m.Change
			if mv.Mounted {
				one = m.Mounted
			}
			d.Gained |= one.Gained
			d.Lost |= one.Lost
		}
	}
	return d
}

// Moves differ exactly where Paths or Moves say so.
func TestCompareMoves(t *testing.T) {
	types := []FileType{RegularFile, Directory, Symlink}
	counted := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		a := referProfile(r)
		b := referProfile(r)
		if r.IntN(3) > 0 {
			b = changed(r, a)
		}
		abi := []int{0, 0, 0, 1, 2}[r.IntN(5)]
		c := mustCompare(t, a, b, abi)
		if c.Moves.Unknown {
			t.Fatal("few groups, and unknown")
		}
		p, q := asEnforced(t, a, c.ABI), asEnforced(t, b, c.ABI)
		for range 60 {
			mv := Move{
				Op: MoveOp(r.IntN(3)), Old: randomPath(r) + "/a", New: randomPath(r) + "/b",
				OldType: types[r.IntN(3)], NewType: types[r.IntN(3)], Mounted: r.IntN(3) == 0,
			}
			if mv.Old[:2] == "//" || mv.New[:2] == "//" {
				continue
			}
			if mv.Op != Exchange && r.IntN(2) == 0 {
				mv.NewType = NoFile
			}
			if mv.Op == Link && mv.OldType == Directory {
				mv.Op = Rename // no kernel links directories
			}
			before, after := p.DecideMove(mv), q.DecideMove(mv)
			listed, asked := moveListed(c, mv)
			if !asked && before.Allowed != after.Allowed && !listed {
				t.Errorf("seed %d: %+v: allowed %v, then %v, and not listed", seed, mv, before.Allowed, after.Allowed)
			}
			// What Moves lists is a difference by itself: link, or rename a
			// directory, to a free name.
			free := mv
			free.Op, free.NewType = Link, NoFile
			if mv.OldType == Directory {
				free.Op = Rename
			}
			if parent(free.Old) == parent(free.New) {
				continue
			}
			d := listedMove(c, free)
			before, after = p.DecideMove(free), q.DecideMove(free)
			right := free.OldType.makeRight()
			if d.Gained&right != 0 && (before.Allowed || !after.Allowed) || d.Lost&right != 0 && (!before.Allowed || after.Allowed) {
				t.Errorf("seed %d: %+v: listed %+v, but allowed %v, then %v", seed, free, d, before.Allowed, after.Allowed)
			}
			if !d.None() {
				counted++
			}
		}
		if t.Failed() {
			t.Fatalf("layers %+v paths %+v\nand %+v %+v\nABI %d\n%+v", p.Layers, p.Paths, q.Layers, q.Paths, c.ABI, c.Moves)
		}
	}
	if counted < 100 {
		t.Errorf("only %d moves that differ: the test tests nothing", counted)
	}
}

// moveListed tells whether the list has a difference for a move: of a right it
// asks for on a parent (asked), or of the rights the object would gain.
func moveListed(c *Comparison, mv Move) (listed, asked bool) {
	old, new := mv.requests()
	from, to := parent(mv.Old), parent(mv.New)
	if from == to {
		old, new = old|new, old|new
	} else {
		old, new = old|FSRefer, new|FSRefer
	}
	dOld, dNew := listedPath(c, from), listedPath(c, to)
	asked = (dOld.Gained|dOld.Lost)&old != 0 || (dNew.Gained|dNew.Lost)&new != 0
	d := listedMove(c, mv)
	listed = (d.Gained|d.Lost)&mv.OldType.makeRight() != 0
	if mv.Op == Exchange {
		back := mv
		back.Old, back.New = mv.New, mv.Old
		d = listedMove(c, back)
		listed = listed || (d.Gained|d.Lost)&mv.NewType.makeRight() != 0
	}
	return listed, asked
}

// Flattened, a file that would gain read in one layer may be moved where another
// layer refuses to read it in both places.
func TestCompareMovesFlattened(t *testing.T) {
	p := build(t, []Access{FSReadFile | FSMakeReg | FSRefer, FSReadFile | FSRefer},
		rule{1, "/from", FSMakeReg | FSRefer}, rule{1, "/to", FSReadFile | FSMakeReg | FSRefer},
		rule{2, "/from", FSRefer}, rule{2, "/to", FSRefer})
	flat := *p
	flat.Flatten = true
	c := mustCompare(t, p, &flat, 0)
	if len(c.Paths)+len(c.Ports) != 0 || !c.Gains() || c.Loses() {
		t.Errorf("want a gain of moves alone: %+v", *c)
	}
	if len(c.Moves.Changes) != 1 {
		t.Fatalf("got %+v", c.Moves)
	}
	m := c.Moves.Changes[0]
	from, to := c.Moves.Groups[m.From], c.Moves.Groups[m.To]
	if m.Gained != makeFile|FSMakeDir || m.Lost != 0 || !slices.Equal(from.In, []string{"/from"}) || !slices.Equal(to.In, []string{"/to"}) {
		t.Errorf("got %+v from %+v to %+v", m, from, to)
	}
}

// Too many groups are said to be unknown, which a gate takes for a gain, and
// equal layers are found equal all the same.
func TestCompareMovesUnknown(t *testing.T) {
	const n = 1200
	many := func(last Access) *Profile {
		layers := []Layer{{Name: "a", FS: Handled(FS, 2)}}
		b := NewBuilder(layers)
		for i := range n {
			b.AddPath(0, fmt.Sprintf("/%04d", i), Access(i)|FSRefer, false, Skip)
		}
		b.AddPath(0, "/x", last|FSRefer, false, Skip)
		return mustBuild(t, b)
	}
	a, b := many(FSMakeSym), many(FSMakeSym|FSExecute)
	if c := mustCompare(t, a, a, 0); !c.Equal() {
		t.Errorf("a profile differs from itself: %+v", c.Moves)
	}
	if c := mustCompare(t, a, b, 0); !c.Moves.Unknown || !c.Gains() || !c.Loses() {
		t.Errorf("unknown %v, %d changes", c.Moves.Unknown, len(c.Moves.Changes))
	}
}

// BenchmarkCompare is linear in the rows. Every layer grants refer and the
// second profile differs in one row.
func BenchmarkCompare(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			paths := benchPaths(rows)
			first := benchBuilder(paths)
			first.AddPath(0, "/srv", FSReadDir, false, Skip)
			for l := range benchLayers {
				first.AddPath(l, "/srv", FSRefer, false, Skip)
			}
			p := mustBuild(b, first)
			second := benchBuilder(paths)
			for l := range benchLayers {
				second.AddPath(l, "/srv", FSRefer, false, Skip)
			}
			q := mustBuild(b, second)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compare(p, q, 0); err != nil {
					b.Fatal(err)
				}
			}
			perRow(b, rows)
		})
	}
}
