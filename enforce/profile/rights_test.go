package profile

import (
	"math/bits"
	"slices"
	"testing"
)

func TestRightsTable(t *testing.T) {
	want := map[Kind]int{FS: 17, Net: 4, Scope: 2}
	next := map[Kind]Access{FS: 1, Net: 1, Scope: 1}
	for i, r := range rights {
		if r.Bit != next[r.Kind] {
			t.Errorf("%s: bit %#x, want %#x: the table has gaps or is out of order", r.Name, r.Bit, next[r.Kind])
		}
		next[r.Kind] <<= 1
		want[r.Kind]--
		if i > 0 && rights[i-1].Kind > r.Kind {
			t.Errorf("%s: kinds out of order", r.Name)
		}
		if r.ABI < 1 || r.ABI > MaxABI || r.Doc == "" {
			t.Errorf("%s: abi %d, doc %q", r.Name, r.ABI, r.Doc)
		}
		if got, ok := RightByName(r.Kind, r.Name); !ok || got != r {
			t.Errorf("RightByName(%s, %s) = %v, %v", r.Kind, r.Name, got, ok)
		}
		if _, ok := RightByName((r.Kind+1)%3, r.Name); ok {
			t.Errorf("%s is found in two kinds", r.Name)
		}
	}
	for k, left := range want {
		if left != 0 {
			t.Errorf("%s: %d rights too few", k, left)
		}
	}
}

func TestHandledByABI(t *testing.T) {
	tests := []struct {
		abi                  int
		fs, net, scope, file Access
	}{
		{0, 0, 0, 0, 0},
		{1, 0x1fff, 0, 0, 0x7},
		{2, 0x3fff, 0, 0, 0x7},
		{3, 0x7fff, 0, 0, 0x4007},
		{4, 0x7fff, 0x3, 0, 0x4007},
		{5, 0xffff, 0x3, 0, 0xc007},
		{6, 0xffff, 0x3, 0x3, 0xc007},
		{8, 0xffff, 0x3, 0x3, 0xc007},
		{9, 0x1ffff, 0x3, 0x3, 0x1c007},
		{10, 0x1ffff, 0xf, 0x3, 0x1c007},
		{11, 0x1ffff, 0xf, 0x3, 0x1c007},
		{99, 0x1ffff, 0xf, 0x3, 0x1c007},
	}
	for _, tt := range tests {
		if got := [...]Access{Handled(FS, tt.abi), Handled(Net, tt.abi), Handled(Scope, tt.abi), FileRights(tt.abi)}; got != [...]Access{tt.fs, tt.net, tt.scope, tt.file} {
			t.Errorf("abi %d: %#x", tt.abi, got)
		}
	}
}

func TestGroups(t *testing.T) {
	tests := []struct {
		kind  Kind
		name  string
		abi   int
		names []string
	}{
		{FS, "read", 1, []string{"read_file", "read_dir"}},
		{FS, "write", 1, []string{"write_file"}},
		{FS, "write", 3, []string{"write_file", "truncate"}},
		{FS, "create", 11, []string{"make_dir", "make_reg", "make_sock", "make_fifo", "make_sym"}},
		{FS, "create_devices", 1, []string{"make_char", "make_block"}},
		{FS, "remove", 1, []string{"remove_dir", "remove_file"}},
		{FS, "modify", 2, []string{"write_file", "remove_dir", "remove_file", "make_dir", "make_reg", "make_sock", "make_fifo", "make_sym", "refer"}},
		{Net, "bind", 4, []string{"bind_tcp"}},
		{Net, "connect", 10, []string{"connect_tcp", "connect_send_udp"}},
		{Net, "tcp", 3, nil},
		{Net, "udp", 10, []string{"bind_udp", "connect_send_udp"}},
		{Scope, "all", 6, []string{"abstract_unix_socket", "signal"}},
	}
	for _, tt := range tests {
		a, ok := ExpandGroup(tt.kind, tt.name, tt.abi)
		if got := tt.kind.Names(a); !ok || !slices.Equal(got, tt.names) {
			t.Errorf("%s %s at %d = %v, %v, want %v", tt.kind, tt.name, tt.abi, got, ok, tt.names)
		}
	}
	for abi := range MaxABI + 1 {
		for _, k := range []Kind{FS, Net, Scope} {
			if a, ok := ExpandGroup(k, "all", abi); !ok || a != Handled(k, abi) {
				t.Errorf("all of %s at %d = %#x, %v", k, abi, a, ok)
			}
		}
	}
	for _, g := range Groups() {
		if _, ok := RightByName(g.Kind, g.Name); ok {
			t.Errorf("%s %s is a right and a group", g.Kind, g.Name)
		}
		if g.Name != "all" && bits.OnesCount32(uint32(g.Access)) < 2 {
			t.Errorf("group %s %s has fewer than two rights", g.Kind, g.Name)
		}
	}
	for _, name := range []string{"execute", "READ", "", "tcp"} {
		if _, ok := ExpandGroup(FS, name, MaxABI); ok {
			t.Errorf("fs has a group %q", name)
		}
	}
}

func TestNames(t *testing.T) {
	if got := FS.Names(FSRefer | FSExecute | QuietRule | 1<<20); !slices.Equal(got, []string{"execute", "refer", "0x100000"}) {
		t.Errorf("names %v", got)
	}
	if got := Net.Format(0); got != "none" {
		t.Errorf("names of nothing %q", got)
	}
	if got := (LogNewExecOn | LogSameExecOff).Names(); !slices.Equal(got, []string{"same_exec_off", "new_exec_on"}) {
		t.Errorf("log flags %v", got)
	}
	for _, f := range Flags() {
		if bit, ok := LogFlagByName(f.Name); ok != f.Log || ok && uint32(bit) != f.Bit {
			t.Errorf("flag %s: %v, %v", f.Name, bit, ok)
		}
	}
}

func TestABILevels(t *testing.T) {
	levels := ABILevels()
	if len(levels) != MaxABI {
		t.Fatalf("%d levels, want %d", len(levels), MaxABI)
	}
	for i, l := range levels {
		if l.ABI != i+1 || l.Kernel == "" || l.New == "" || KernelOf(l.ABI) != l.Kernel {
			t.Errorf("level %d: %+v", i+1, l)
		}
	}
	if KernelOf(0) != "" || KernelOf(MaxABI+1) != "" {
		t.Error("levels beyond the table")
	}
}

func TestTablesAreCopied(t *testing.T) {
	Rights()[0].Bit, Groups()[0].Access, Flags()[0].ABI, ABILevels()[0].ABI = 0, 0, 0, 0
	if rights[0].Bit != FSExecute || groups[0].Access == 0 || flags[0].ABI == 0 || abiLevels[0].ABI != 1 {
		t.Error("a caller can change a table")
	}
}

func TestWords(t *testing.T) {
	got := []string{FS.String(), Net.String(), Scope.String(), Kind(9).String(), Fail.String(), Skip.String()}
	if want := []string{"fs", "net", "scope", "kind(9)", "fail", "skip"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
