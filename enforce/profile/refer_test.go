package profile

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

func randomMove(r *rand.Rand) Move {
	mv := Move{Op: MoveOp(r.IntN(3)), OldType: FileType(r.IntN(8)), NewType: FileType(r.IntN(8))}
	mv.Old, mv.New = randomPath(r), randomPath(r)
	if r.IntN(2) == 0 {
		mv.NewType = NoFile
	}
	mv.Mounted = r.IntN(4) == 0
	return mv
}

// The cases of fs_test.c on rename and link.
func TestKernelCasesMoves(t *testing.T) {
	const (
		s1d1, s2d1 = "/tmp/s1d1", "/tmp/s2d1"
		s1d2, s2d2 = s1d1 + "/s1d2", s2d1 + "/s2d2"
		s1d3, s2d3 = s1d2 + "/s1d3", s2d2 + "/s2d3"
		f, d, no   = RegularFile, Directory, NoFile
		ok         = syscall.Errno(0)
		acces, xdv = syscall.EACCES, syscall.EXDEV
		reg, refer = FSMakeReg, FSRefer
	)
	link := build(t, []Access{reg}, rule{1, s1d2, reg})
	reparent := build(t, []Access{refer}, rule{1, s1d2, refer}, rule{1, s2d2, refer})
	both := []rule{{1, s1d2, reg}, {1, s1d3, refer}, {1, s2d2, refer}, {1, s2d3, reg}}
	mix := build(t, []Access{reg | refer}, both...)
	mixBelow := build(t, []Access{reg | refer, FSReadFile}, append(both, rule{2, "/", FSReadFile})...)
	netLayers := NewBuilder([]Layer{{Name: "fs", FS: refer}, {Name: "net", Net: NetBindTCP}})
	netLayers.AddPath(0, "/", refer, false, Fail)
	netAbove := mustBuild(t, netLayers)
	netOnly := mustBuild(t, NewBuilder([]Layer{{Name: "net", Net: NetBindTCP}}))
	gain := build(t, []Access{refer | FSReadFile | FSReadDir},
		rule{1, "/", refer}, rule{1, "/pub", ro}, rule{1, "/dir", FSReadDir}, rule{1, "/x/own", FSReadFile})
	remove := build(t, []Access{refer | FSRemoveFile | FSRemoveDir | reg}, rule{1, "/a", refer | reg}, rule{1, "/b", refer | reg | FSRemoveFile})

	// The kernel compares what may be gained before it looks at each rule on
	// the way from the mount's root to "/", so never after that of "/".
	onRoot := build(t, []Access{refer | FSWriteFile | FSMakeSym}, rule{1, "/", refer | FSWriteFile}, rule{1, "/m/d", FSWriteFile})
	onMount := build(t, []Access{refer | FSWriteFile | FSMakeSym}, rule{1, "/m", refer | FSWriteFile}, rule{1, "/m/d", FSWriteFile})
	whole := build(t, []Access{refer | FSWriteFile}, rule{1, "/", refer | FSWriteFile}, rule{1, "/m/d", FSWriteFile})
	mounted := func(mv Move) Move { mv.Mounted = true; return mv }

	tests := []struct {
		name string
		p    *Profile
		mv   Move
		want syscall.Errno
	}{
		{"a rule on / in the same mount", onRoot, Move{Rename, "/m/f", "/m/d/f", f, no, false}, ok},
		{"a rule on / is not compared", onRoot, mounted(Move{Rename, "/m/f", "/m/d/f", f, no, false}), xdv},
		{"a rule on / is not compared backwards", onRoot, mounted(Move{Exchange, "/m/d/f", "/m/f", f, f, false}), xdv},
		{"nor missed when the object has its own", onRoot, mounted(Move{Rename, "/m/d/f", "/m/f", f, no, false}), ok},
		{"a rule on the mount is compared", onMount, mounted(Move{Rename, "/m/f", "/m/d/f", f, no, false}), ok},
		{"nothing is refused on either side", whole, mounted(Move{Rename, "/m/f", "/m/d/f", f, no, false}), ok},

		{"link s1d1/f2 s1d1/f1", link, Move{Link, s1d1 + "/f2", s1d1 + "/f1", f, no, false}, acces},
		{"link s2d1/f1 s1d2/f1", link, Move{Link, s2d1 + "/f1", s1d2 + "/f1", f, no, false}, xdv},
		{"link s1d2/f2 s1d3/f1", link, Move{Link, s1d2 + "/f2", s1d3 + "/f1", f, no, false}, xdv},
		{"link s1d2/f2 s1d2/f1", link, Move{Link, s1d2 + "/f2", s1d2 + "/f1", f, no, false}, ok},

		{"reparent s1d2 s2d1", reparent, Move{Rename, s1d2, s2d1, d, d, false}, xdv},
		{"reparent s1d2 s2d2", reparent, Move{Rename, s1d2, s2d2, d, d, false}, xdv},
		{"reparent s1d2 s2d3", reparent, Move{Rename, s1d2, s2d3, d, d, false}, xdv},
		{"reparent s1d3 s2d1", reparent, Move{Rename, s1d3, s2d1, d, d, false}, xdv},
		{"reparent s1d3 s2d2", reparent, Move{Rename, s1d3, s2d2, d, d, false}, xdv},
		{"reparent s1d3 s2d3", reparent, Move{Rename, s1d3, s2d3, d, d, false}, ok},

		{"mix s2d1/f1 s1d2/f1", mix, Move{Rename, s2d1 + "/f1", s1d2 + "/f1", f, no, false}, xdv},
		{"mix s2d1/f1 s1d3/f1", mix, Move{Rename, s2d1 + "/f1", s1d3 + "/f1", f, no, false}, xdv},
		{"mix s2d2/f1 s1d1/f1", mix, Move{Rename, s2d2 + "/f1", s1d1 + "/f1", f, no, false}, acces},
		{"mix s2d2/f1 s1d2/f1", mix, Move{Rename, s2d2 + "/f1", s1d2 + "/f1", f, no, false}, xdv},
		{"mix s2d2/f1 s1d3/f1", mix, Move{Rename, s2d2 + "/f1", s1d3 + "/f1", f, no, false}, ok},
		{"mix link s2d2/f1 s1d3/f1", mix, Move{Link, s2d2 + "/f1", s1d3 + "/f1", f, no, false}, ok},
		{"mix reverse", mix, Move{Rename, s1d3 + "/f1", s2d2 + "/f1", f, no, false}, acces},
		{"mix exchange across", mix, Move{Exchange, s2d1 + "/f1", s1d1 + "/f2", f, f, false}, acces},
		{"mix exchange in s1d1", mix, Move{Exchange, s1d1 + "/f1", s1d1 + "/f1", f, f, false}, acces},
		{"mix directory s2d3", mix, Move{Rename, s2d3, s1d3 + "/f1", d, no, false}, ok},
		{"implicit refer of a second layer", mixBelow, Move{Rename, s2d2 + "/f1", s1d3 + "/f1", f, no, false}, xdv},

		{"net layer above fs layer", netAbove, Move{Rename, "/a/f", "/b/f", f, no, false}, xdv},
		{"net layer above, same directory", netAbove, Move{Rename, "/a/f", "/a/g", f, no, false}, ok},
		{"net layer alone", netOnly, Move{Rename, "/a/f", "/b/f", f, no, false}, ok},

		{"gain read_file", gain, Move{Rename, "/x/f", "/pub/f", f, no, false}, xdv},
		{"lose read_file", gain, Move{Rename, "/pub/f", "/x/f", f, no, false}, ok},
		{"file does not gain read_dir", gain, Move{Rename, "/x/f", "/dir/f", f, no, false}, ok},
		{"directory gains read_dir", gain, Move{Rename, "/x/d", "/dir/d", d, no, false}, xdv},
		{"own rule counts", gain, Move{Rename, "/x/own", "/pub/own", f, no, false}, ok},
		{"exchange gains backwards", gain, Move{Exchange, "/pub/f", "/x/f", f, f, false}, xdv},
		{"link gains", gain, Move{Link, "/x/f", "/pub/f", f, no, false}, xdv},

		{"remove is asked of the source", remove, Move{Rename, "/a/f", "/b/f", f, no, false}, acces},
		{"remove is there, and none gained", remove, Move{Rename, "/b/f", "/a/f", f, no, false}, ok},
		{"replaced file asks remove", remove, Move{Rename, "/b/f", "/a/f", f, f, false}, acces},
		{"link removes nothing", remove, Move{Link, "/a/f", "/b/f", f, no, false}, ok},
		{"make is by type", remove, Move{Link, "/b/f", "/a/f", Symlink, no, false}, ok},

		{"nothing to move", mix, Move{Rename, "/a", "/b", no, no, false}, syscall.ENOENT},
		{"nothing to exchange", mix, Move{Exchange, "/a", "/b", f, no, false}, syscall.ENOENT},
		{"root", mix, Move{Rename, "/", "/b", d, no, false}, syscall.EINVAL},
		{"relative", mix, Move{Rename, "/a", "b", f, no, false}, syscall.EINVAL},
		{"unknown operation", mix, Move{3, "/a", "/b", f, no, false}, syscall.EINVAL},
	}
	for _, tt := range tests {
		for _, decide := range []func(Move) MoveDecision{tt.p.DecideMove, NewIndex(tt.p).DecideMove} {
			if d := decide(tt.mv); d.Errno != tt.want || d.Allowed != (tt.want == 0) {
				t.Errorf("%s: %+v, want %v", tt.name, d, tt.want)
			}
		}
	}
}

func TestMoveDecisionTellsWhy(t *testing.T) {
	p := build(t, []Access{FSRefer | FSMakeReg | FSReadFile, FSRefer}, rule{1, "/", FSRefer}, rule{2, "/a", FSRefer}, rule{1, "/b", FSReadFile})
	d := p.DecideMove(Move{Rename, "/a/f", "/b/f", RegularFile, NoFile, false})
	got := fmt.Sprint(d.OldParent.Slice(), d.NewParent.Slice(), d.Gain.Slice(), d.GainBack.Slice())
	want := fmt.Sprint([]Access{0, 0}, []Access{FSMakeReg, FSRefer}, []Access{FSReadFile, 0}, []Access{0, 0})
	if got != want || d.Errno != syscall.EACCES {
		t.Errorf("%v %s, want %s", d.Errno, got, want)
	}
}

func TestFileTypeRights(t *testing.T) {
	var made Access
	for ft := NoFile; ft <= Socket; ft++ {
		m := ft.makeRight()
		if (m == 0) != (ft == NoFile) || made&m != 0 {
			t.Errorf("type %d makes %v", ft, FS.Names(m))
		}
		made |= m
	}
	if all, _ := ExpandGroup(FS, "create", MaxABI); made != all|FSMakeChar|FSMakeBlock {
		t.Errorf("all types make %v", FS.Names(made))
	}
}
