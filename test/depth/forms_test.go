package depth

import (
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"syscall"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

// input makes a profile and questions out of bytes; those that are missing are 0.
type input []byte

func (in *input) next() int {
	if len(*in) == 0 {
		return 0
	}
	b := (*in)[0]
	*in = (*in)[1:]
	return int(b)
}

func (in *input) below(n int) int { return in.next() % n }

// mask gives rights of a kind: often all, often few.
func (in *input) mask(k profile.Kind) profile.Access {
	all := profile.Handled(k, profile.MaxABI)
	switch in.below(4) {
	case 0:
		return all
	case 1:
		one, other := in.below(17), in.below(17)
		return all & (1<<one | 1<<other)
	}
	return all & profile.Access(in.next()|in.next()<<8|in.next()<<16)
}

// path gives one of few, often one above another. "a-" sorts between "a" and
// what is in it.
func (in *input) path() string {
	p := "/"
	for range in.below(6) {
		p = path.Join(p, [...]string{"a", "b", "a-"}[in.below(3)])
	}
	return p
}

func (in *input) profile() (*profile.Profile, error) {
	layers := make([]profile.Layer, 1+in.below(profile.MaxKernelLayers+3))
	for i := range layers {
		l := &layers[i]
		l.Name = fmt.Sprint(i)
		l.FS, l.Net, l.Scope = in.mask(profile.FS), in.mask(profile.Net), in.mask(profile.Scope)
		if l.FS|l.Net|l.Scope == 0 {
			l.FS = profile.FSReadFile
		}
		if in.below(4) == 0 {
			l.QuietFS, l.QuietNet = l.FS&in.mask(profile.FS), l.Net&in.mask(profile.Net)
		}
	}
	b := profile.NewBuilder(layers)
	for range in.below(64) {
		i := in.below(len(layers))
		l, quiet := &layers[i], in.below(4) == 0
		if in.below(4) == 0 {
			if a := l.Net & in.mask(profile.Net); a != 0 {
				first := uint16(in.below(8))
				b.AddPorts(i, first, first+uint16(in.below(4)), a, quiet && l.QuietNet != 0)
			}
			continue
		}
		if a := l.FS & in.mask(profile.FS); a != 0 {
			b.AddPath(i, in.path(), a, quiet && l.QuietFS != 0, profile.Fail)
		}
	}
	return b.Build()
}

func (in *input) operation() (profile.Operation, profile.Facts) {
	op := profile.Operation{
		Kind: profile.OpKind(in.below(int(profile.OpSetAttributes) + 1)), Path: in.path(), NewPath: in.path(),
		Open: profile.OpenFlags(in.below(64)), Make: profile.FileType(in.below(8)), Port: uint16(in.below(10)),
	}
	bits := in.next()
	return op, profile.Facts{
		Type: profile.FileType(in.below(8)), NewType: profile.FileType(in.below(8)),
		Mounted: bits&1 != 0, SameProcess: bits&2 != 0, Bound: bits&4 != 0,
	}
}

// forms are a profile in all of them, grown along the paths that are asked for.
type forms struct {
	p       *profile.Profile
	index   *profile.Index
	flat    *profile.Flat
	rules   map[string][]profile.Access
	tree    *profile.Tree
	places  map[string]profile.Place
	matrix  *matrix
	objects map[string]int32
}

func newForms(p *profile.Profile, flat *profile.Flat) *forms {
	f := &forms{
		p: p, index: profile.NewIndex(p), flat: flat, rules: map[string][]profile.Access{}, tree: profile.NewTree(p),
		places: map[string]profile.Place{}, matrix: newMatrix(p), objects: map[string]int32{},
	}
	for i := range p.Paths {
		f.rules[p.Paths[i].Path] = p.Paths[i].Access
	}
	return f
}

// at puts a path into the tree and the matrix.
func (f *forms) at(t *testing.T, name string) (place profile.Place, object int32) {
	if place, ok := f.places[name]; ok {
		return place, f.objects[name]
	}
	up, above := profile.Nowhere, int32(-1)
	if name != "/" {
		up, above = f.at(t, path.Dir(name))
	}
	var rules [][]profile.Access
	if masks := f.rules[name]; masks != nil {
		rules = append(rules, masks)
	}
	place, err := f.tree.Add(up, profile.Directory, rules...)
	if err != nil {
		t.Fatal(err)
	}
	f.places[name], f.objects[name] = place, f.matrix.add(above, f.rules[name])
	return place, f.objects[name]
}

func union(m profile.Masks) (a profile.Access) {
	for l := range m.Len() {
		a |= m.At(l)
	}
	return a
}

// rights asks all forms for rights on a path.
func (f *forms) rights(t *testing.T, name string, req profile.Access) {
	want := f.p.DecidePath(name, req)
	place, object := f.at(t, name)
	located, _ := f.index.Locate(name)
	for form, got := range map[string]profile.Decision{
		"index": f.index.DecidePath(name, req), "located": f.index.DecideAt(located, req),
		"tree": f.tree.DecideAt(place, req), "walked tree": f.tree.WalkAt(place, req),
	} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: %s %+v, walk %+v", name, profile.FS.Format(req), form, got, want)
		}
	}
	if f.index.AllowedAt(located, req) != want.Allowed || f.tree.AllowedAt(place, req) != want.Allowed {
		t.Errorf("%s %s: the verdict alone is not %v", name, profile.FS.Format(req), want.Allowed)
	}
	if got := f.flat.Profile.DecidePath(name, req); got.Allowed != want.Allowed || union(got.Unfulfilled) != union(want.Unfulfilled) {
		t.Errorf("%s %s: flat %+v, walk %+v", name, profile.FS.Format(req), got, want)
	}
	if len(f.p.Layers) > profile.MaxKernelLayers {
		return
	}
	req &= 1<<matrixRights - 1
	want = f.p.DecidePath(name, req)
	left, allowed := f.matrix.walk(object, req)
	for l := range f.p.Layers {
		if allowed != want.Allowed || left.layer(l) != want.Unfulfilled.At(l) {
			t.Errorf("%s %s: the matrix leaves %v in layer %d, walk %+v", name, profile.FS.Format(req), left.layer(l), l, want)
		}
	}
}

// operation asks all forms that know operations. Flat is judged by its verdict:
// it may let an EXDEV through where Flat.Refer says so.
func (f *forms) operation(t *testing.T, op profile.Operation, facts profile.Facts, inside bool) {
	flatFacts := facts
	if inside {
		facts.Shared, flatFacts.Shared = len(f.p.Layers), len(f.flat.Profile.Layers)
	}
	want := f.p.Decide(op, facts)
	var at profile.Where
	at.Object, _ = f.at(t, op.Path)
	at.NewObject, _ = f.at(t, op.NewPath)
	at.Parent, at.NewParent = f.tree.Up(at.Object), f.tree.Up(at.NewObject)
	for form, got := range map[string]profile.Answer{"index": f.index.Decide(op, facts), "tree": f.tree.Decide(op, facts, at)} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v %+v: %s %+v, walk %+v", op, facts, form, got, want)
		}
	}
	got := f.flat.Profile.Decide(op, flatFacts)
	told := want.Errno == syscall.EXDEV && got.Verdict == profile.Allow && len(f.flat.Refer) > 0
	if !told && (got.Verdict != want.Verdict || got.Errno != want.Errno || got.Created != want.Created || got.Optional != want.Optional) {
		t.Errorf("%+v %+v: flat %v %v, walk %v %v", op, facts, got.Verdict, got.Errno, want.Verdict, want.Errno)
	}
}

// FuzzFormsAgree: the walk, the index, the tree of objects, the flat profile
// and the older layout of kernels give one answer.
func FuzzFormsAgree(f *testing.F) {
	for seed := range uint64(64) {
		r := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, 50+r.IntN(1000))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := input(data)
		p, err := in.profile()
		if err != nil {
			t.Fatal(err)
		}
		flat, err := profile.Flatten(p)
		if err != nil {
			t.Fatal(err)
		}
		all := newForms(p, flat)
		for range 12 {
			all.rights(t, in.path(), in.mask(profile.FS))
			op, facts := in.operation()
			all.operation(t, op, facts, in.below(2) == 0)
		}
	})
}
