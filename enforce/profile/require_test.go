package profile

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func needNames(needs []Need) []string {
	var out []string
	for _, n := range needs {
		out = append(out, n.LayerName+" "+n.Kind.String()+" "+n.Name)
	}
	return out
}

func TestRequired(t *testing.T) {
	got := docExample().Required()
	want := []string{
		"host fs execute", "host fs read_file", "host fs read_dir", "host net bind_tcp", "host scope signal",
		"host fs new_exec_on", "app fs read_file", "app fs make_reg", "app fs quiet",
	}
	if names := needNames(got); !slices.Equal(names, want) {
		t.Errorf("needs %v, want %v", names, want)
	}
	for _, n := range got {
		if n.Confines() != (n.Name != "new_exec_on" && n.Name != "quiet") {
			t.Errorf("%s: confines %v", n, n.Confines())
		}
	}
	for i, want := range map[int]string{
		3: `layer "host": net right bind_tcp needs ABI 4 (linux 6.7)`,
		4: `layer "host": scope signal needs ABI 6 (linux 6.12)`,
		5: `layer "host": log flag new_exec_on needs ABI 7 (linux 6.15)`,
		8: `layer "app": fs flag quiet needs ABI 10 (linux 7.2)`,
	} {
		if got[i].String() != want {
			t.Errorf("%s, want %s", got[i], want)
		}
	}
}

func TestReduce(t *testing.T) {
	layers := []Layer{
		{Name: "fs", FS: ro | FSRefer | FSIoctlDev, QuietFS: ro},
		{Name: "net", Net: NetBindTCP | NetBindUDP, Log: LogNewExecOn},
		{Name: "dev", FS: FSIoctlDev, Scope: ScopeSignal},
	}
	b := NewBuilder(layers)
	b.AddPath(0, "/", FSRefer, false, Fail)
	b.AddPath(0, "/quiet", 0, true, Fail)
	b.AddPath(2, "/dev", FSIoctlDev, false, Fail)
	b.AddPath(0, "/usr", ro, true, Skip)
	b.AddPorts(1, 1, 5, NetBindTCP, false)
	b.AddPorts(1, 3, 9, NetBindUDP, false)
	p := mustBuild(t, b)

	tests := []struct {
		abi    int
		lost   []string
		layers []Layer
		paths  int
		ports  []PortRow
	}{
		{11, nil, layers, 4, p.Ports},
		{10, nil, layers, 4, p.Ports},
		{
			9,
			[]string{"fs fs quiet", "net net bind_udp"},
			[]Layer{{Name: "fs", FS: ro | FSRefer | FSIoctlDev}, {Name: "net", Net: NetBindTCP, Log: LogNewExecOn}, layers[2]},
			3,
			[]PortRow{{1, 5, []Access{0, NetBindTCP, 0}}},
		},
		{
			5,
			[]string{"fs fs quiet", "net net bind_udp", "net fs new_exec_on", "dev scope signal"},
			[]Layer{{Name: "fs", FS: ro | FSRefer | FSIoctlDev}, {Name: "net", Net: NetBindTCP}, {Name: "dev", FS: FSIoctlDev}},
			3,
			[]PortRow{{1, 5, []Access{0, NetBindTCP, 0}}},
		},
		// The layers left with nothing still deny refer, as they implied.
		{
			3,
			[]string{"fs fs ioctl_dev", "fs fs quiet", "net net bind_tcp", "net net bind_udp", "net fs new_exec_on", "dev fs ioctl_dev", "dev scope signal"},
			[]Layer{{Name: "fs", FS: ro | FSRefer}, {Name: "net", FS: FSRefer}, {Name: "dev", FS: FSRefer}},
			2, nil,
		},
		// At ABI 1 the kernel always denies it while any fs right is handled.
		{
			1,
			[]string{"fs fs refer", "fs fs ioctl_dev", "fs fs quiet", "net net bind_tcp", "net net bind_udp", "net fs new_exec_on", "dev fs ioctl_dev", "dev scope signal"},
			[]Layer{{Name: "fs", FS: ro}},
			1, nil,
		},
		{0, append([]string{
			"fs fs read_file", "fs fs read_dir", "fs fs refer", "fs fs ioctl_dev", "fs fs quiet", "net net bind_tcp", "net net bind_udp",
			"net fs new_exec_on", "dev fs ioctl_dev", "dev scope signal",
		}, "net fs refer", "dev fs refer"), nil, 0, nil},
	}
	for _, tt := range tests {
		q, lost := p.Reduce(tt.abi)
		if got := needNames(lost); !slices.Equal(got, tt.lost) {
			t.Errorf("abi %d: lost %v, want %v", tt.abi, got, tt.lost)
		}
		if !slices.Equal(q.Layers, tt.layers) || len(q.Paths) != tt.paths || !slices.EqualFunc(q.Ports, tt.ports, func(a, b PortRow) bool {
			return a.First == b.First && a.Last == b.Last && slices.Equal(a.Access, b.Access)
		}) {
			t.Errorf("abi %d: %+v", tt.abi, q)
		}
		if (q == p) != (tt.lost == nil) {
			t.Errorf("abi %d: profile is the same: %v", tt.abi, q == p)
		}
	}
}

func TestReduceNamesImplicitRefer(t *testing.T) {
	p := build(t, []Access{FSIoctlDev, ro})
	_, lost := p.Reduce(1)
	if got := needNames(lost); !slices.Equal(got, []string{"l1 fs ioctl_dev"}) {
		t.Errorf("lost %v: the kernel still denies refer", got)
	}
	p = build(t, []Access{FSIoctlDev})
	_, lost = p.Reduce(1)
	if len(lost) != 2 || lost[1].Use != UseImplicit || !lost[1].Confines() || !strings.Contains(lost[1].String(), "implied denial of refer") {
		t.Errorf("lost %v", lost)
	}
	q, _ := p.Reduce(4)
	if len(q.Layers) != 1 || q.Layers[0].FS != FSRefer {
		t.Errorf("at abi 4 %+v", q.Layers)
	}
}

// What is left is valid, needs no more than the ABI, and denies all that was
// denied but for the rights named as lost. (At ABI 1 refer is denied whenever
// any fs right is handled, by the kernel and by the profile left.)
func TestReduceProperty(t *testing.T) {
	rounds(t, 1500, func(t *testing.T, r *rand.Rand, p *Profile) {
		abi := r.IntN(MaxABI + 1)
		q, lost := p.Reduce(abi)
		if len(q.Layers) == 0 {
			if len(lost) == 0 {
				t.Error("nothing is left and nothing was lost")
			}
			return
		}
		if err := q.Validate(); err != nil {
			t.Fatalf("abi %d: %v", abi, err)
		}
		if _, again := q.Reduce(abi); len(again) != 0 {
			t.Errorf("abi %d: still lost %v", abi, again)
		}
		lostOf := map[Kind]Access{}
		for _, n := range lost {
			if right, ok := RightByName(n.Kind, n.Name); ok && n.Confines() {
				lostOf[n.Kind] |= right.Bit
			}
		}
		for range 20 {
			path, port := randomPath(r), uint16(r.IntN(30))
			for k, d := range map[Kind][2]Decision{
				FS:    {p.DecidePath(path, Handled(FS, MaxABI)), q.DecidePath(path, Handled(FS, MaxABI))},
				Net:   {p.DecidePort(port, Handled(Net, MaxABI)), q.DecidePort(port, Handled(Net, MaxABI))},
				Scope: {p.DecideScope(Handled(Scope, MaxABI), 0), q.DecideScope(Handled(Scope, MaxABI), 0)},
			} {
				before, after := union(&d[0].Unfulfilled), union(&d[1].Unfulfilled)
				if gone := before &^ after &^ lostOf[k]; gone != 0 {
					t.Errorf("abi %d %s: no longer denied, not named: %v", abi, path, k.Names(gone))
				}
				if more := after &^ before; more != 0 && !(k == FS && more == FSRefer && abi < 2) {
					t.Errorf("abi %d %s: denied all of a sudden: %v", abi, path, k.Names(more))
				}
			}
		}
	})
}
