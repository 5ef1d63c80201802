package profile

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestBuilderUnitesAndSorts(t *testing.T) {
	b := NewBuilder([]Layer{{Name: "a", FS: rw, QuietFS: ro}, {Name: "b", FS: ro}})
	b.AddPath(0, "/usr", FSReadFile, false, Skip)
	b.AddPath(1, "/etc", FSReadDir, false, Skip)
	b.AddPath(0, "/usr", FSReadDir, true, Skip)
	b.AddPath(1, "/usr", FSReadFile, false, Fail)
	p := mustBuild(t, b)
	want := []PathRow{
		{Path: "/etc", Missing: Skip, Access: []Access{0, FSReadDir}},
		{Path: "/usr", Missing: Fail, Access: []Access{ro | QuietRule, FSReadFile}},
	}
	if !reflect.DeepEqual(p.Paths, want) {
		t.Errorf("rows %v, want %v", p.Paths, want)
	}
	if p.ABI != 10 {
		t.Errorf("abi %d: quiet needs 10", p.ABI)
	}
}

// A row at once is its rules one by one.
func TestBuilderPathRow(t *testing.T) {
	layers := []Layer{{Name: "a", FS: rw, QuietFS: ro}, {Name: "b", FS: ro}}
	one, row := NewBuilder(layers), NewBuilder(layers)
	row.Grow(2)
	one.AddPath(0, "/usr", FSReadFile, true, Fail)
	one.AddPath(0, "/etc", FSReadDir, false, Skip)
	one.AddPath(1, "/etc", FSReadFile, false, Skip)
	row.AddPathRow("/usr", []Access{FSReadFile | QuietRule, 0}, Fail)
	row.AddPathRow("/etc", []Access{FSReadDir, 0}, Skip)
	row.AddPathRow("/etc", []Access{0, FSReadFile}, Skip)
	row.AddPathRow("/none", []Access{0, 0}, Fail)
	if got, want := mustBuild(t, row), mustBuild(t, one); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestBuilderPorts(t *testing.T) {
	const bind, connect = NetBindTCP, NetConnectTCP
	type r struct {
		layer       int
		first, last uint16
		access      Access
	}
	tests := []struct {
		name  string
		rules []r
		want  []PortRow
	}{
		{"single", []r{{0, 80, 80, bind}}, []PortRow{{80, 80, []Access{bind, 0}}}},
		{"all", []r{{0, 0, 65535, bind}}, []PortRow{{0, 65535, []Access{bind, 0}}}},
		{"touching become one", []r{{0, 10, 19, bind}, {0, 20, 29, bind}}, []PortRow{{10, 29, []Access{bind, 0}}}},
		{"inner is split off", []r{{0, 1, 100, bind}, {1, 50, 50, connect}}, []PortRow{
			{1, 49, []Access{bind, 0}}, {50, 50, []Access{bind, connect}}, {51, 100, []Access{bind, 0}},
		}},
		{"overlap ors", []r{{0, 1, 10, bind}, {0, 5, 15, connect}, {0, 8, 9, bind}}, []PortRow{
			{1, 4, []Access{bind, 0}}, {5, 10, []Access{bind | connect, 0}}, {11, 15, []Access{connect, 0}},
		}},
		{"gap and the last port", []r{{1, 65535, 65535, bind}, {0, 0, 0, bind}}, []PortRow{
			{0, 0, []Access{bind, 0}}, {65535, 65535, []Access{0, bind}},
		}},
		{"twice the same", []r{{0, 7, 7, bind}, {0, 7, 7, bind}}, []PortRow{{7, 7, []Access{bind, 0}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBuilder([]Layer{{Name: "a", Net: bind | connect}, {Name: "b", Net: bind | connect}})
			for _, r := range tt.rules {
				b.AddPorts(r.layer, r.first, r.last, r.access, false)
			}
			if p := mustBuild(t, b); !reflect.DeepEqual(p.Ports, tt.want) {
				t.Errorf("rows %v, want %v", p.Ports, tt.want)
			}
		})
	}
}

// Ports built by the sweep must grant what the rules grant port by port.
func TestBuilderPortsProperty(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		const layers, ports = 3, 40
		var want [ports][layers]Access
		b := NewBuilder([]Layer{{Name: "a", Net: 15, QuietNet: 1}, {Name: "b", Net: 15, QuietNet: 1}, {Name: "c", Net: 15, QuietNet: 1}})
		for range r.IntN(12) {
			l, first, quiet := r.IntN(layers), r.IntN(ports), r.IntN(2) == 0
			last := first + r.IntN(ports-first)
			access := Access(1 + r.IntN(15))
			b.AddPorts(l, uint16(first), uint16(last), access, quiet)
			if quiet {
				access |= QuietRule
			}
			for p := first; p <= last; p++ {
				want[p][l] |= access
			}
		}
		p := mustBuild(t, b)
		for port := range want {
			var got [layers]Access
			if i := p.findPort(uint16(port)); i >= 0 {
				got = [layers]Access(p.Ports[i].Access)
			}
			if got != want[port] {
				t.Fatalf("seed %d: port %d grants %v, want %v", seed, port, got, want[port])
			}
		}
	}
}

func TestBuilderRefuses(t *testing.T) {
	layers := []Layer{{Name: "a", FS: rw, Net: NetBindTCP}}
	long := "/" + strings.Repeat("x", 255)
	tests := []struct {
		name string
		add  func(b *Builder) error
		want error
	}{
		{"relative", func(b *Builder) error { return b.AddPath(0, "usr", ro, false, Fail) }, ErrInvalid},
		{"empty", func(b *Builder) error { return b.AddPath(0, "", ro, false, Fail) }, ErrInvalid},
		{"dot", func(b *Builder) error { return b.AddPath(0, "/./usr", ro, false, Fail) }, ErrInvalid},
		{"dot dot", func(b *Builder) error { return b.AddPath(0, "/usr/..", ro, false, Fail) }, ErrInvalid},
		{"two slashes", func(b *Builder) error { return b.AddPath(0, "/usr//lib", ro, false, Fail) }, ErrInvalid},
		{"slash at the end", func(b *Builder) error { return b.AddPath(0, "/usr/", ro, false, Fail) }, ErrInvalid},
		{"nul", func(b *Builder) error { return b.AddPath(0, "/usr\x00", ro, false, Fail) }, ErrInvalid},
		{"1 MB", func(b *Builder) error { return b.AddPath(0, strings.Repeat(long, 4096), ro, false, Fail) }, ErrLimit},
		{"4096 bytes", func(b *Builder) error { return b.AddPath(0, strings.Repeat(long, 16), ro, false, Fail) }, ErrLimit},
		{"long component", func(b *Builder) error { return b.AddPath(0, long+"x", ro, false, Fail) }, ErrLimit},
		{"not handled", func(b *Builder) error { return b.AddPath(0, "/usr", FSExecute, false, Fail) }, ErrInvalid},
		{"quiet bit as right", func(b *Builder) error { return b.AddPath(0, "/usr", QuietRule, false, Fail) }, ErrInvalid},
		{"grants nothing", func(b *Builder) error { return b.AddPath(0, "/usr", 0, false, Fail) }, ErrInvalid},
		{"no layer", func(b *Builder) error { return b.AddPath(1, "/usr", ro, false, Fail) }, ErrInvalid},
		{"layer -1", func(b *Builder) error { return b.AddPath(-1, "/usr", ro, false, Fail) }, ErrInvalid},
		{"row of relative", func(b *Builder) error { return b.AddPathRow("usr", []Access{ro}, Fail) }, ErrInvalid},
		{"row not handled", func(b *Builder) error { return b.AddPathRow("/usr", []Access{FSExecute}, Fail) }, ErrInvalid},
		{"row for more layers", func(b *Builder) error { return b.AddPathRow("/usr", []Access{ro, ro}, Fail) }, ErrInvalid},
		{"port range backwards", func(b *Builder) error { return b.AddPorts(0, 2, 1, NetBindTCP, false) }, ErrInvalid},
		{"port right not handled", func(b *Builder) error { return b.AddPorts(0, 1, 1, NetConnectTCP, false) }, ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBuilder(layers)
			if err := tt.add(b); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			b.AddPath(0, "/ok", ro, false, Fail)
			if p, err := b.Build(); p != nil || !errors.Is(err, tt.want) {
				t.Errorf("built %v, %v in spite of it", p, err)
			}
		})
	}
	b := NewBuilder(layers)
	b.AddPath(0, "/usr", ro, true, Fail)
	if _, err := b.Build(); !errors.Is(err, ErrInvalid) {
		t.Errorf("quiet rule in a layer without quiet mask: %v", err)
	}
}

func TestValidateRefuses(t *testing.T) {
	good := func() *Profile {
		return &Profile{
			Name: "web", ABI: 10,
			Layers: []Layer{{Name: "a", FS: rw, Net: NetBindTCP}, {Name: "b", FS: ro, QuietFS: ro}},
			Paths:  []PathRow{{Path: "/a", Missing: Fail, Access: []Access{rw, 0}}, {Path: "/b", Missing: Skip, Access: []Access{0, ro | QuietRule}}},
			Ports:  []PortRow{{1, 2, []Access{NetBindTCP, 0}}, {4, 5, []Access{NetBindTCP, 0}}},
		}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		bad  func(p *Profile)
		want error
	}{
		{"abi 0", func(p *Profile) { p.ABI = 0 }, ErrInvalid},
		{"abi too new", func(p *Profile) { p.ABI = MaxABI + 1 }, ErrInvalid},
		{"abi below its net right", func(p *Profile) { p.ABI = 3 }, ErrInvalid},
		{"abi below its quiet", func(p *Profile) { p.ABI = 9 }, ErrInvalid},
		{"abi below its log flag", func(p *Profile) { p.ABI = 6; p.Layers[1].QuietFS = 0; p.Paths = nil; p.Layers[0].Log = LogNewExecOn }, ErrInvalid},
		{"no layers", func(p *Profile) { p.Layers = nil }, ErrInvalid},
		{"too many layers", func(p *Profile) { p.Layers = make([]Layer, MaxLayers+1) }, ErrLimit},
		{"too many masks", func(p *Profile) { p.Layers = make([]Layer, MaxLayers); p.Paths = make([]PathRow, MaxPathRows) }, ErrLimit},
		{"too many ports", func(p *Profile) { p.Ports = make([]PortRow, MaxPortRows+1) }, ErrLimit},
		{"too many paths", func(p *Profile) { p.Paths = make([]PathRow, MaxPathRows+1) }, ErrLimit},
		{"layer names twice", func(p *Profile) { p.Layers[1].Name = "a" }, ErrInvalid},
		{"layer without name", func(p *Profile) { p.Layers[1].Name = "" }, ErrInvalid},
		{"control character", func(p *Profile) { p.Layers[1].Name = "a\nb" }, ErrInvalid},
		{"long name", func(p *Profile) { p.Name = strings.Repeat("n", 256) }, ErrLimit},
		{"layer handles nothing", func(p *Profile) { p.Layers[1] = Layer{Name: "b"}; p.Paths = p.Paths[:1] }, ErrInvalid},
		{"unknown right", func(p *Profile) { p.Layers[0].FS |= 1 << 17 }, ErrInvalid},
		{"quiet beyond handled", func(p *Profile) { p.Layers[0].QuietNet = NetConnectTCP }, ErrInvalid},
		{"unknown log flag", func(p *Profile) { p.Layers[0].Log = 8 }, ErrInvalid},
		{"paths out of order", func(p *Profile) { p.Paths[0], p.Paths[1] = p.Paths[1], p.Paths[0] }, ErrInvalid},
		{"path twice", func(p *Profile) { p.Paths[1].Path = "/a" }, ErrInvalid},
		{"path not clean", func(p *Profile) { p.Paths[1].Path = "/b/../c" }, ErrInvalid},
		{"missing 2", func(p *Profile) { p.Paths[1].Missing = 2 }, ErrInvalid},
		{"masks too few", func(p *Profile) { p.Paths[1].Access = []Access{0} }, ErrInvalid},
		{"mask beyond handled", func(p *Profile) { p.Paths[1].Access = []Access{0, FSWriteFile} }, ErrInvalid},
		{"row grants nothing", func(p *Profile) { p.Paths[1].Access = []Access{0, 0} }, ErrInvalid},
		{"quiet row without quiet mask", func(p *Profile) { p.Paths[1].Access = []Access{QuietRule, 0} }, ErrInvalid},
		{"ports overlap", func(p *Profile) { p.Ports[1].First = 2 }, ErrInvalid},
		{"ports backwards", func(p *Profile) { p.Ports[1].Last = 3 }, ErrInvalid},
		{"ports that are one row", func(p *Profile) { p.Ports[1].First = 3 }, ErrInvalid},
		{"port mask beyond handled", func(p *Profile) { p.Ports[1].Access = []Access{0, NetBindTCP} }, ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := good()
			tt.bad(p)
			if err := p.Validate(); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}
