package profile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// What each operation asks, of which path or port: the kernel's hooks. That the
// kernel does ask so is what test/differential holds.
func TestOperationsAsk(t *testing.T) {
	p := build(t, []Access{FSRefer}) // answers do not matter here
	const f, d, dev, no = RegularFile, Directory, CharDevice, NoFile
	tests := []struct {
		op    Operation
		facts Facts
		want  string
	}{
		{Operation{Kind: OpOpen, Path: "/a/f", Open: OpenRead}, Facts{Type: f}, "/a/f read_file"},
		{Operation{Kind: OpOpen, Path: "/a/f", Open: OpenRead | OpenWrite}, Facts{Type: f}, "/a/f write_file|read_file"},
		{Operation{Kind: OpOpen, Path: "/a/f", Open: OpenRead | OpenTruncate}, Facts{Type: f}, "/a/f read_file|truncate"},
		{Operation{Kind: OpOpen, Path: "/a/p", Open: OpenRead | OpenTruncate}, Facts{Type: Fifo}, "/a/p read_file"},
		{Operation{Kind: OpOpen, Path: "/a/f", Open: OpenWrite | OpenCreate}, Facts{Type: f}, "/a/f write_file"},
		{Operation{Kind: OpOpen, Path: "/a/f", Open: OpenWrite | OpenCreate | OpenTruncate}, Facts{Type: no}, "/a make_reg, /a/f write_file"},
		{Operation{Kind: OpOpen, Path: "/a", Open: OpenRead | OpenDirectory}, Facts{Type: d}, "/a read_dir"},
		{Operation{Kind: OpOpen, Path: "/", Open: OpenRead}, Facts{Type: d}, "/ read_dir"},
		{Operation{Kind: OpOpen, Path: "/a/f", Open: OpenRead | OpenPath}, Facts{Type: f}, ""},
		{Operation{Kind: OpIoctlDev, Path: "/dev/tty", Open: OpenRead}, Facts{Type: dev}, "/dev/tty read_file"},
		{Operation{Kind: OpExec, Path: "/bin/true"}, Facts{Type: f}, "/bin/true execute|read_file"},
		{Operation{Kind: OpTruncate, Path: "/a/f"}, Facts{Type: f}, "/a/f truncate"},
		{Operation{Kind: OpMkdir, Path: "/a"}, Facts{}, "/ make_dir"},
		{Operation{Kind: OpMknod, Path: "/a/n", Make: Fifo}, Facts{}, "/a make_fifo"},
		{Operation{Kind: OpMknod, Path: "/a/n", Make: Socket}, Facts{}, "/a make_sock"},
		{Operation{Kind: OpMknod, Path: "/a/n", Make: BlockDevice}, Facts{}, "/a make_block"},
		{Operation{Kind: OpSymlink, Path: "/a/n"}, Facts{}, "/a make_sym"},
		{Operation{Kind: OpUnlink, Path: "/a/n"}, Facts{Type: f}, "/a remove_file"},
		{Operation{Kind: OpRmdir, Path: "/a/n"}, Facts{Type: d}, "/a remove_dir"},
		{Operation{Kind: OpConnectUnix, Path: "/a/s"}, Facts{Type: Socket}, "/a/s resolve_unix"},
		{Operation{Kind: OpBindTCP, Port: 80}, Facts{}, "80 bind_tcp"},
		{Operation{Kind: OpConnectTCP, Port: 80}, Facts{}, "80 connect_tcp"},
		{Operation{Kind: OpBindUDP, Port: 53}, Facts{}, "53 bind_udp"},
		{Operation{Kind: OpConnectUDP, Port: 53}, Facts{}, "53 connect_send_udp, 0 bind_udp"},
		{Operation{Kind: OpSendUDP, Port: 53}, Facts{}, "53 connect_send_udp, 0 bind_udp"},
		{Operation{Kind: OpSendUDP, Port: 53}, Facts{Bound: true}, "53 connect_send_udp"},
		{Operation{Kind: OpSignal}, Facts{}, "signal"},
		{Operation{Kind: OpSignal}, Facts{SameProcess: true}, ""},
		{Operation{Kind: OpAbstractUnix}, Facts{}, "abstract_unix_socket"},
		{Operation{Kind: OpStat, Path: "/a"}, Facts{Type: f}, ""},
		{Operation{Kind: OpOpen, Path: "/proc/1/fd/3", Open: OpenRead}, Facts{Type: Fifo, Internal: true}, ""},
		{Operation{Kind: OpExec, Path: "/proc/1/fd/3"}, Facts{Type: f, Internal: true}, ""},
		{Operation{Kind: OpMkdir, Path: "/proc/1/fd/3"}, Facts{Internal: true}, "/proc/1/fd make_dir"},
		{Operation{Kind: OpSetAttributes, Path: "/a"}, Facts{Type: f}, ""},
	}
	for _, tt := range tests {
		a := p.Decide(tt.op, tt.facts)
		var asked []string
		for _, q := range a.Questions[:a.Asked] {
			at := q.Path
			switch q.Kind {
			case Net:
				at = fmt.Sprint(q.Port)
			case Scope:
				at = ""
			}
			asked = append(asked, strings.TrimSpace(at+" "+q.Kind.Format(q.Request)))
		}
		if got := strings.Join(asked, ", "); got != tt.want || (a.Verdict == NotMediated) != (tt.want == "") || a.Verdict == Deny {
			t.Errorf("%v %+v asks %q and answers %v, want %q", tt.op.Kind, tt.op, got, a.Verdict, tt.want)
		}
	}
}

func TestOperationAnswers(t *testing.T) {
	b := NewBuilder([]Layer{
		{Name: "a", FS: Handled(FS, MaxABI), Net: NetBindUDP | NetConnectSendUDP},
		{Name: "b", FS: FSResolveUnix | FSIoctlDev, Scope: ScopeSignal},
	})
	b.AddPath(0, "/rw", FSReadFile|FSWriteFile, false, Fail)
	b.AddPath(0, "/new", FSMakeReg, false, Fail)
	b.AddPath(0, "/dev", FSReadFile|FSIoctlDev, false, Fail)
	b.AddPath(1, "/dev/null", FSIoctlDev, false, Fail)
	b.AddPath(0, "/run", FSResolveUnix, false, Fail)
	b.AddPorts(0, 53, 53, NetConnectSendUDP, false)
	p := mustBuild(t, b)
	tests := []struct {
		name     string
		op       Operation
		facts    Facts
		errno    syscall.Errno
		denied   []int
		created  bool
		optional Access
	}{
		{"open", Operation{Kind: OpOpen, Path: "/rw/f", Open: OpenRead | OpenWrite}, Facts{Type: RegularFile}, 0, nil, false, 0},
		{"truncated at open", Operation{Kind: OpOpen, Path: "/rw/f", Open: OpenWrite | OpenTruncate}, Facts{Type: RegularFile}, syscall.EACCES, []int{0}, false, 0},
		{"made and refused", Operation{Kind: OpOpen, Path: "/new/f", Open: OpenWrite | OpenCreate}, Facts{}, syscall.EACCES, []int{0}, true, 0},
		{"not made", Operation{Kind: OpOpen, Path: "/rw/f", Open: OpenWrite | OpenCreate}, Facts{}, syscall.EACCES, []int{0}, false, 0},
		{"device", Operation{Kind: OpIoctlDev, Path: "/dev/null", Open: OpenRead}, Facts{Type: CharDevice}, 0, nil, false, FSIoctlDev},
		{"device without ioctl", Operation{Kind: OpIoctlDev, Path: "/dev/tty", Open: OpenRead}, Facts{Type: CharDevice}, syscall.EACCES, []int{1}, false, 0},
		{"device opened", Operation{Kind: OpOpen, Path: "/dev/tty", Open: OpenRead}, Facts{Type: CharDevice}, 0, nil, false, 0},
		{"socket made outside", Operation{Kind: OpConnectUnix, Path: "/run/s"}, Facts{Type: Socket}, syscall.EACCES, []int{1}, false, 0},
		{"socket made under a", Operation{Kind: OpConnectUnix, Path: "/x/s"}, Facts{Type: Socket, Shared: 1}, syscall.EACCES, []int{1}, false, 0},
		{"socket made inside", Operation{Kind: OpConnectUnix, Path: "/x/s"}, Facts{Type: Socket, Shared: 2}, 0, nil, false, 0},
		{"datagram of an unbound socket", Operation{Kind: OpSendUDP, Port: 53}, Facts{}, syscall.EACCES, []int{0}, false, 0},
		{"datagram of a bound socket", Operation{Kind: OpSendUDP, Port: 53}, Facts{Bound: true}, 0, nil, false, 0},
		{"signal to outside", Operation{Kind: OpSignal}, Facts{Shared: 1}, syscall.EPERM, []int{1}, false, 0},
		{"signal inside", Operation{Kind: OpSignal}, Facts{Shared: 2}, 0, nil, false, 0},
		{"mount", Operation{Kind: OpMount}, Facts{}, syscall.EPERM, []int{0, 1}, false, 0},
		{"relative", Operation{Kind: OpOpen, Path: "a", Open: OpenRead}, Facts{Type: RegularFile}, syscall.EINVAL, nil, false, 0},
		{"neither read nor written", Operation{Kind: OpOpen, Path: "/rw"}, Facts{Type: RegularFile}, syscall.EINVAL, nil, false, 0},
		{"relative socket", Operation{Kind: OpConnectUnix, Path: "./s"}, Facts{Shared: 2}, syscall.EINVAL, nil, false, 0},
		{"the root is made nowhere", Operation{Kind: OpMkdir, Path: "/"}, Facts{}, syscall.EINVAL, nil, false, 0},
		{"nothing is made", Operation{Kind: OpMknod, Path: "/rw/a"}, Facts{}, syscall.EINVAL, nil, false, 0},
		{"too long", Operation{Kind: OpTruncate, Path: strings.Repeat("/a", MaxPath)}, Facts{Type: RegularFile}, syscall.EINVAL, nil, false, 0},
		{"unknown", Operation{Kind: opKinds, Path: "/a"}, Facts{}, syscall.EINVAL, nil, false, 0},
	}
	for _, tt := range tests {
		a := p.Decide(tt.op, tt.facts)
		var denied []int
		if a.Verdict == Deny && a.Asked > 0 {
			denied = a.Questions[a.Asked-1].Decision.Unfulfilled.Layers()
		}
		if a.Errno != tt.errno || (a.Verdict == Deny) != (tt.errno != 0) || !slices.Equal(denied, tt.denied) || a.Created != tt.created || a.Optional != tt.optional {
			t.Errorf("%s: %v %v, denied by %v, created %v, optional %s", tt.name, a.Verdict, a.Errno, denied, a.Created, FS.Format(a.Optional))
		}
	}
}

func randomOperation(r *rand.Rand) (Operation, Facts) {
	op := Operation{
		Kind: OpKind(r.IntN(int(opKinds))), Path: randomPath(r), NewPath: randomPath(r),
		Open: OpenFlags(r.IntN(64)), Make: FileType(r.IntN(8)), Port: uint16(r.IntN(30)),
	}
	return op, Facts{
		Type: FileType(r.IntN(8)), NewType: FileType(r.IntN(8)), Mounted: r.IntN(2) == 0,
		Shared: r.IntN(4), SameProcess: r.IntN(4) == 0, Bound: r.IntN(2) == 0, Internal: r.IntN(8) == 0,
	}
}

// Moves are those of DecideMove, and the index answers as the walk.
func TestOperationsAgree(t *testing.T) {
	rounds(t, 500, func(t *testing.T, r *rand.Rand, p *Profile) {
		ix := NewIndex(p)
		for range 40 {
			op, f := randomOperation(r)
			a, b := p.Decide(op, f), ix.Decide(op, f)
			if a.Verdict != b.Verdict || a.Errno != b.Errno || a.Optional != b.Optional || a.Created != b.Created {
				t.Errorf("%v %+v %+v: walk %v %v, index %v %v", op.Kind, op, f, a.Verdict, a.Errno, b.Verdict, b.Errno)
			}
			if (a.Verdict == Deny) != (a.Errno != 0) || a.Asked > len(a.Questions) {
				t.Errorf("%v %+v: %v with %v", op.Kind, op, a.Verdict, a.Errno)
			}
			if op.Kind == OpRename {
				if mv := p.DecideMove(Move{Rename, op.Path, op.NewPath, f.Type, f.NewType, f.Mounted}); mv.Errno != a.Errno {
					t.Errorf("%+v: %v, as a move %v", op, a.Errno, mv.Errno)
				}
			}
		}
	})
	names := map[string]bool{}
	for k := OpOpen; k <= opKinds; k++ {
		if names[k.String()] || k.String() == "" {
			t.Errorf("operation %d is called %q", k, k.String())
		}
		names[k.String()] = true
	}
}

// Of no kind, answered in no form, allowed or not.
func TestOperationsAllocateNothing(t *testing.T) {
	layers := slices.Repeat([]Access{Handled(FS, MaxABI)}, MaxKernelLayers)
	for name, p := range map[string]*Profile{
		"denied":  build(t, layers, rule{1, "/a", ro}, rule{2, "/a/b", rw}),
		"allowed": build(t, layers[:1], rule{1, "/", layers[0]}, rule{1, "/a/b", rw}),
	} {
		ix, g := NewIndex(p), newGrower(t, p)
		for k := OpOpen; k <= opKinds; k++ {
			op := Operation{Kind: k, Path: "/a/b/c", NewPath: "/a/d/e", Open: OpenRead | OpenWrite | OpenCreate, Make: Fifo, Port: 53}
			at := g.where(&op)
			for _, f := range []Facts{{Mounted: true}, {Type: RegularFile, NewType: Directory}, {Type: CharDevice, NewType: RegularFile, Mounted: true}} {
				for form, decide := range map[string]func() Answer{
					"walk":  func() Answer { return p.Decide(op, f) },
					"index": func() Answer { return ix.Decide(op, f) },
					"tree":  func() Answer { return g.tree.Decide(op, f, at) },
				} {
					if n := testing.AllocsPerRun(20, func() { decide() }); n != 0 {
						t.Errorf("%s %v %+v by %s: %v allocations", name, k, f, form, n)
					}
				}
			}
		}
	}
}
