package profile

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func mustCompare(t testing.TB, a, b *Profile, abi int) *Comparison {
	t.Helper()
	c, err := Compare(a, b, abi)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// asEnforced is what Compare promises to compare, made the long way.
func asEnforced(t *testing.T, p *Profile, abi int) *Profile {
	t.Helper()
	p, _ = p.Reduce(abi)
	if len(p.Layers) > 1 && (p.Flatten || len(p.Layers) > MaxKernelLayers) {
		f, err := Flatten(p)
		if err != nil {
			t.Fatal(err)
		}
		return f.Profile
	}
	return p
}

// changed gives a profile near p: some rules and layers otherwise.
func changed(r *rand.Rand, p *Profile) *Profile {
	layers := slices.Clone(p.Layers)
	if r.IntN(3) == 0 {
		l := &layers[r.IntN(len(layers))]
		l.FS, l.QuietFS = l.FS|randomMask(r, FS), 0
	}
	order := r.Perm(len(layers))
	b := NewBuilder(pick(layers, order))
	for _, row := range p.Paths {
		masks := pick(row.Access, order)
		for l := range masks {
			if layers[order[l]].QuietFS == 0 {
				masks[l] &^= QuietRule
			}
		}
		if r.IntN(4) > 0 {
			b.AddPathRow(row.Path, masks, row.Missing)
		}
	}
	for i := range b.layers {
		if a := b.layers[i].FS & randomMask(r, FS); a != 0 && r.IntN(3) == 0 {
			b.AddPath(i, randomPath(r), a, false, Skip)
		}
	}
	for _, row := range p.Ports {
		for l, a := range pick(row.Access, order) {
			if a &^= QuietRule; a != 0 && r.IntN(4) > 0 {
				b.AddPorts(l, row.First, row.Last, a, false)
			}
		}
	}
	q, err := b.Build()
	if err != nil {
		panic(err)
	}
	return q
}

func pick[T any](from []T, order []int) []T {
	out := make([]T, len(from))
	for i, o := range order {
		out[i] = from[o]
	}
	return out
}

// listedPath reads the list as its documentation says.
func listedPath(c *Comparison, path string) Change {
	for ; path != ""; path = parent(path) {
		for i := range c.Paths {
			if c.Paths[i].Path == path {
				return c.Paths[i].Change
			}
		}
	}
	return Change{}
}

func listedPort(c *Comparison, port uint16) Change {
	for _, r := range c.Ports {
		if r.First <= port && port <= r.Last {
			return r.Change
		}
	}
	return Change{}
}

// decided compares decisions on every single right.
func decided(k Kind, a, b func(Access) Decision) (d Change) {
	for _, right := range rights {
		if right.Kind != k {
			continue
		}
		first, second := a(right.Bit).Allowed, b(right.Bit).Allowed
		if second && !first {
			d.Gained |= right.Bit
		}
		if first && !second {
			d.Lost |= right.Bit
		}
	}
	return d
}

// Decisions differ exactly where the comparison says so, right by right.
func TestCompareDecisions(t *testing.T) {
	rounds(t, 1500, func(t *testing.T, r *rand.Rand, a *Profile) {
		b := randomProfile(r)
		if r.IntN(2) == 0 {
			b = changed(r, a)
		}
		abi := 1 + r.IntN(MaxABI)
		c := mustCompare(t, a, b, abi)
		p, q := asEnforced(t, a, abi), asEnforced(t, b, abi)
		paths := []string{"/"}
		for range 20 {
			paths = append(paths, randomPath(r))
		}
		for _, path := range paths {
			want := decided(FS, func(x Access) Decision { return p.DecidePath(path, x) }, func(x Access) Decision { return q.DecidePath(path, x) })
			if got := listedPath(c, path); got != want {
				t.Errorf("ABI %d, path %s: listed %+v, decided %+v", abi, path, got, want)
			}
			if got := c.Path(path); got != want {
				t.Errorf("ABI %d: Path(%s) = %+v, decided %+v", abi, path, got, want)
			}
			compareLogging(t, c, p, q, path)
		}
		for _, port := range []uint16{0, uint16(r.IntN(30)), uint16(r.IntN(30)), uint16(r.IntN(1 << 16)), 65535} {
			want := decided(Net, func(x Access) Decision { return p.DecidePort(port, x) }, func(x Access) Decision { return q.DecidePort(port, x) })
			if got := listedPort(c, port); got != want || c.Port(port) != want {
				t.Errorf("ABI %d, port %d: listed %+v, decided %+v", abi, port, got, want)
			}
		}
		want := decided(Scope, func(x Access) Decision { return p.DecideScope(x, 0) }, func(x Access) Decision { return q.DecideScope(x, 0) })
		if c.Scope != want {
			t.Errorf("ABI %d, scope: listed %+v, decided %+v", abi, c.Scope, want)
		}
		mount := Operation{Kind: OpMount}
		if want := toggle(p.Decide(mount, Facts{}).Verdict != Deny, q.Decide(mount, Facts{}).Verdict != Deny); c.Mount != want {
			t.Errorf("ABI %d, mount: %d, decided %d", abi, c.Mount, want)
		}
		minimal(t, c)
		back := mustCompare(t, b, a, abi)
		if c.Gains() != back.Loses() || c.Loses() != back.Gains() || c.Equal() != back.Equal() || len(c.Paths) != len(back.Paths) {
			t.Error("the comparison the other way round is not the reverse")
		}
	})
}

// minimal: nothing is listed that is so already further up.
func minimal(t *testing.T, c *Comparison) {
	t.Helper()
	for _, p := range c.Paths {
		if above := parent(p.Path); p.Change == listedPath(c, above) {
			t.Errorf("%s is listed though nothing changes there", p.Path)
		}
	}
	for i := 1; i < len(c.Ports); i++ {
		if x, y := c.Ports[i-1], c.Ports[i]; x.Last >= y.First || x.Last+1 == y.First && x.Change == y.Change {
			t.Errorf("ports %d-%d and %d-%d should be one", x.First, x.Last, y.First, y.Last)
		}
	}
}

// compareLogging holds the list of log differences against single decisions.
func compareLogging(t *testing.T, c *Comparison, p, q *Profile, path string) {
	t.Helper()
	var listed LogChange
	for at := path; at != "" && listed.Path == ""; at = parent(at) {
		for _, l := range c.Log {
			if l.Kind == FS && l.Path == at {
				listed = l
			}
		}
	}
	logs := func(p *Profile, right Access) (denied bool, state [3]bool) {
		d := p.DecidePath(path, right)
		if d.Allowed {
			return false, state
		}
		layers := d.Unfulfilled.Layers()
		l := layers[len(layers)-1]
		silent := d.Quiet || slices.ContainsFunc(p.Layers[:l], func(l Layer) bool { return l.Log&LogSubdomainsOff != 0 })
		log := p.Layers[l].Log
		return true, [3]bool{silent, !silent && log&LogSameExecOff != 0, !silent && log&LogNewExecOn != 0}
	}
	for _, right := range rights {
		if right.Kind != FS {
			continue
		}
		deniedA, stateA := logs(p, right.Bit)
		deniedB, stateB := logs(q, right.Bit)
		want := deniedA && deniedB && stateA != stateB
		if got := listed.Rights&right.Bit != 0; got != want {
			t.Errorf("log of %s at %s: listed %v, decided %v", right.Name, path, got, want)
		}
		if want && (listed.Before.Silent&right.Bit != 0) != stateA[0] {
			t.Errorf("log of %s at %s: before silent %v, decided %v", right.Name, path, !stateA[0], stateA[0])
		}
	}
}

// Other words for the same make no difference.
func TestCompareSameMeaning(t *testing.T) {
	rounds(t, 400, func(t *testing.T, r *rand.Rand, p *Profile) {
		for i := range p.Layers {
			l := &p.Layers[i]
			l.QuietFS, l.QuietNet, l.QuietScope, l.Log = 0, 0, 0, 0
		}
		for _, row := range p.Paths {
			for l := range row.Access {
				row.Access[l] &^= QuietRule
			}
		}
		p.Paths = slices.DeleteFunc(p.Paths, func(r PathRow) bool { return allZero(r.Access) })
		var ports []PortRow
		for _, row := range p.Ports {
			for l := range row.Access {
				row.Access[l] &^= QuietRule
			}
			if !allZero(row.Access) {
				ports = appendPort(ports, row)
			}
		}
		p.Ports = ports
		order := r.Perm(len(p.Layers))
		layers := pick(p.Layers, order)
		for i := range layers {
			layers[i].Name = fmt.Sprintf("other-%d", i)
		}
		twice := len(layers) < MaxKernelLayers
		if twice {
			again := layers[0]
			again.Name = "twice"
			layers = append(layers, again)
		}
		b := NewBuilder(layers)
		add := func(l int, path string, a Access, m Missing) {
			b.AddPath(l, path, a, false, m)
			if l == 0 && twice {
				b.AddPath(len(layers)-1, path, a, false, m)
			}
		}
		for _, row := range slices.Backward(p.Paths) {
			for l, a := range pick(row.Access, order) {
				if a != 0 {
					add(l, row.Path, a, row.Missing)
					if row.Path != "/" { // in a mount below "/" a rule that repeats one on "/" is another
						add(l, row.Path+"/below", a, Fail)
					}
				}
			}
			b.KeepWithin(row.Path, row.Within)
		}
		for _, row := range p.Ports {
			for l, a := range pick(row.Access, order) {
				for port := int(row.First); port <= int(row.Last) && a != 0; port++ {
					b.AddPorts(l, uint16(port), uint16(port), a, false)
					if l == 0 && twice {
						b.AddPorts(len(layers)-1, uint16(port), uint16(port), a, false)
					}
				}
			}
		}
		q, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		q.Degrade, q.Flatten = p.Degrade, p.Flatten
		if c := mustCompare(t, p, q, 0); !c.Equal() {
			t.Errorf("different: %+v", *c)
		}
	})
}

func TestCompareSplitLayer(t *testing.T) {
	one := build(t, []Access{rw | FSExecute}, rule{1, "/usr", ro | FSExecute}, rule{1, "/tmp", rw})
	two := build(t, []Access{ro, FSWriteFile | FSExecute},
		rule{1, "/usr", ro}, rule{1, "/tmp", ro}, rule{2, "/usr", FSExecute}, rule{2, "/tmp", FSWriteFile}, rule{2, "/tmp/x", FSWriteFile})
	if c := mustCompare(t, one, two, 0); !c.Equal() {
		t.Errorf("a split layer differs: %+v", *c)
	}
}

func TestComparePlaces(t *testing.T) {
	for _, tc := range []struct {
		name   string
		a, b   *Profile
		abi    int
		want   []PathChange
		mount  Toggle
		reason string
	}{
		{
			"granted further down before: equal again from there",
			build(t, []Access{ro}, rule{1, "/usr", ro}), build(t, []Access{ro}, rule{1, "/", ro}), 0,
			[]PathChange{{"/", Change{Gained: ro}}, {"/usr", Change{}}},
			Unchanged, "[{false refuses 0 -1 read_file|read_dir} {true grants 0 0 read_file|read_dir}]",
		},
		{
			"a folder once, not what is beneath",
			build(t, []Access{rw}, rule{1, "/a/b", ro}, rule{1, "/a/c", ro}), build(t, []Access{rw}, rule{1, "/a", FSWriteFile}, rule{1, "/a/b", ro}, rule{1, "/a/c", ro}), 0,
			[]PathChange{{"/a", Change{Gained: FSWriteFile}}},
			Unchanged, "[{false refuses 0 -1 write_file} {true grants 0 0 write_file}]",
		},
		{
			"one layer more",
			build(t, []Access{ro}, rule{1, "/a", ro}), build(t, []Access{ro, ro}, rule{1, "/a", ro}, rule{2, "/a", FSReadFile}), 0,
			[]PathChange{{"/a", Change{Lost: FSReadDir}}},
			Unchanged, "[{false grants 0 0 read_dir} {true refuses 1 -1 read_dir}]",
		},
		{
			"a right handled no more, on an ABI that knows it",
			build(t, []Access{ro | FSTruncate}, rule{1, "/a", ro}), build(t, []Access{ro}, rule{1, "/a", ro}), 3,
			[]PathChange{{"/", Change{Gained: FSTruncate}}},
			Unchanged, "[{false refuses 0 -1 truncate} {true unhandled -1 -1 truncate}]",
		},
		{
			"and on one that does not",
			build(t, []Access{ro | FSTruncate}, rule{1, "/a", ro}), build(t, []Access{ro}, rule{1, "/a", ro}), 2,
			nil, Unchanged, "",
		},
		{
			"nothing handled on this ABI: refer and mounts are free",
			build(t, []Access{FSExecute}), mustBuild(t, NewBuilder([]Layer{{Name: "net", Net: NetBindTCP}})), 4,
			[]PathChange{{"/", Change{Gained: FSExecute | FSRefer}}},
			Gained, "[{false refuses 0 -1 execute|refer} {true unhandled -1 -1 execute|refer}]",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := mustCompare(t, tc.a, tc.b, tc.abi)
			if !reflect.DeepEqual(c.Paths, tc.want) || c.Mount != tc.mount {
				t.Errorf("got %+v, mount %d", c.Paths, c.Mount)
			}
			if len(tc.want) == 0 {
				return
			}
			var text []string
			for _, r := range c.PathReasons(0) {
				text = append(text, fmt.Sprintf("{%v %v %d %d %s}", r.Second, r.Effect, r.Layer, r.Row, FS.Format(r.Rights)))
			}
			if got := fmt.Sprint(text); got != tc.reason {
				t.Errorf("reasons %s\nwant    %s", got, tc.reason)
			}
		})
	}
}

// Of several layers only the one whose namesake refuses is the reason.
func TestCompareReasonsNamesake(t *testing.T) {
	a := build(t, []Access{ro, ro}, rule{1, "/", ro}, rule{2, "/a", FSReadFile})
	b := build(t, []Access{ro, ro}, rule{1, "/", ro}, rule{2, "/a", ro})
	c := mustCompare(t, a, b, 0)
	want := []Reason{{false, Refuses, 1, -1, FSReadDir}, {true, Grants, 1, 1, FSReadDir}}
	if got := c.PathReasons(0); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
