package policy

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// FragmentSource finds fragments by name. An unknown name is errs.ErrNotFound.
type FragmentSource interface {
	Fragment(name string) (*apiv1.Fragment, error)
}

// documentSource is a source that also knows where a fragment is written.
type documentSource interface {
	document(name string) (*Document, bool)
}

//go:embed std/*.yaml
var stdFiles embed.FS

var (
	stdOnce sync.Once
	stdDocs []*Document
)

// loadStd gives the shipped fragments, parsed once; a test holds that they are correct.
func loadStd() []*Document {
	stdOnce.Do(func() {
		var err error
		if stdDocs, err = parseStd(); err != nil {
			panic(fmt.Sprintf("shipped fragments: %v", err))
		}
	})
	return stdDocs
}

func parseStd() ([]*Document, error) {
	names, err := fs.Glob(stdFiles, "std/*.yaml")
	if err != nil {
		return nil, err
	}
	var docs []*Document
	for _, name := range names {
		src, err := stdFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parsed, err := parse(path.Join("policyd", name), src, true)
		if err != nil {
			return nil, err
		}
		docs = append(docs, parsed...)
	}
	slices.SortFunc(docs, func(a, b *Document) int { return strings.Compare(a.Name, b.Name) })
	return docs, nil
}

// StdFragments returns the shipped fragments, sorted by name.
func StdFragments() []*Document { return slices.Clone(loadStd()) }

// Std is the source of the shipped fragments, std/*.
func Std() FragmentSource { return documents{docs: loadStd(), next: nothing{}} }

// WithStd puts the shipped fragments before another source, which is not asked
// for names that are reserved for them.
func WithStd(next FragmentSource) FragmentSource { return documents{docs: loadStd(), next: next} }

// WithDocuments puts the fragments among docs before another source: those of
// a file being checked before those that are stored.
func WithDocuments(docs []*Document, next FragmentSource) FragmentSource {
	return documents{docs: docs, next: next}
}

type documents struct {
	docs []*Document
	next FragmentSource
}

func (d documents) document(name string) (*Document, bool) {
	for _, doc := range d.docs {
		if doc.Kind == KindFragment && doc.Name == name {
			return doc, true
		}
	}
	if next, ok := d.next.(documentSource); ok {
		return next.document(name)
	}
	return nil, false
}

func (d documents) Fragment(name string) (*apiv1.Fragment, error) {
	for _, doc := range d.docs {
		if doc.Kind == KindFragment && doc.Name == name {
			return doc.Resource.GetFragment(), nil
		}
	}
	return d.next.Fragment(name)
}

type nothing struct{}

func (nothing) Fragment(name string) (*apiv1.Fragment, error) {
	return nil, fmt.Errorf("fragment %q: %w", name, errs.ErrNotFound)
}

// IsReserved tells that a name belongs to the shipped fragments ("std/...") and
// cannot be applied by users.
func IsReserved(name string) bool { return name == "std" || strings.HasPrefix(name, "std/") }

// Pin finds every fragment a document includes, directly or through others.
// Pins are sorted by name and hold the digest of each fragment's own content
// (the includes of an include have pins of their own); the map is by digest. An
// unknown fragment or a cycle is an [*Errors].
func Pin(d *Document, src FragmentSource) ([]*apiv1.Pin, map[string]*apiv1.Fragment, error) {
	r := reporter{d.origin, &Errors{}}
	v := newResolver(src)
	var all []*included
	seen := make(map[string]bool)
	p := (*place)(nil).key("spec")
	switch k := d.Resource.GetKind().(type) {
	case *apiv1.Resource_LandlockPolicy:
		layers := p.key("layers")
		for i, l := range k.LandlockPolicy.GetSpec().GetLayers() {
			at := layers.at(i)
			all = v.include(&r, l.GetInclude(), &at, seen, all)
		}
	case *apiv1.Resource_Fragment:
		v.stack = append(v.stack, d.Name)
		all = v.include(&r, k.Fragment.GetSpec().GetInclude(), &p, seen, all)
	}
	if v.err != nil {
		return nil, nil, v.err
	}
	if err := r.errors.err(); err != nil {
		return nil, nil, err
	}
	var pins []*apiv1.Pin
	contents := make(map[string]*apiv1.Fragment, len(all))
	for _, in := range all {
		digest := ContentDigest(&apiv1.Resource{Kind: &apiv1.Resource_Fragment{Fragment: in.fragment}}, nil)
		pins = append(pins, &apiv1.Pin{Name: in.name, Digest: digest})
		contents[digest] = in.fragment
	}
	slices.SortFunc(pins, func(a, b *apiv1.Pin) int { return strings.Compare(a.GetName(), b.GetName()) })
	return pins, contents, nil
}

// Pinned is the source that resolves a stored document's pins: byDigest finds a
// fragment of that content.
func Pinned(pins []*apiv1.Pin, byDigest func(digest string) (*apiv1.Fragment, error)) FragmentSource {
	return pinned{pins, byDigest}
}

type pinned struct {
	pins     []*apiv1.Pin
	byDigest func(digest string) (*apiv1.Fragment, error)
}

func (s pinned) Fragment(name string) (*apiv1.Fragment, error) {
	for _, pin := range s.pins {
		if pin.GetName() == name {
			f, err := s.byDigest(pin.GetDigest())
			if err != nil {
				return nil, fmt.Errorf("pinned fragment %s: %w", name, err)
			}
			return f, nil
		}
	}
	return nothing{}.Fragment(name)
}

// included is a fragment found for a document.
type included struct {
	name     string
	fragment *apiv1.Fragment
	reporter reporter
	values   map[string][]string
}

// resolver finds fragments once each.
type resolver struct {
	src   FragmentSource
	cache map[string]*included
	stack []string // the names being included, outermost first
	err   error    // of the source itself, not of the document
}

func newResolver(src FragmentSource) *resolver {
	if src == nil {
		src = Std()
	}
	return &resolver{src: src, cache: make(map[string]*included)}
}

// include appends the fragments of these names and all that they include,
// those not yet seen, inner ones first. p is the place of the including layer
// or fragment; problems deeper inside are told there as well.
func (v *resolver) include(r *reporter, names []string, p *place, seen map[string]bool, into []*included) []*included {
	list := p.key("include")
	for i, name := range names {
		at := list.at(i)
		into = v.one(r, name, &at, seen, into)
	}
	return into
}

func (v *resolver) one(r *reporter, name string, p *place, seen map[string]bool, into []*included) []*included {
	if slices.Contains(v.stack, name) {
		r.addf(codeIncludeCycle, p, "fragments include one another: %s -> %s", strings.Join(v.stack, " -> "), name)
		return into
	}
	if seen[name] || v.err != nil {
		return into
	}
	seen[name] = true
	in := v.find(r, name, p)
	if in == nil {
		return into
	}
	v.stack = append(v.stack, name)
	for _, inner := range in.fragment.GetSpec().GetInclude() {
		into = v.one(r, inner, p, seen, into)
	}
	v.stack = v.stack[:len(v.stack)-1]
	return append(into, in)
}

// find gives a checked fragment, or reports why there is none.
func (v *resolver) find(r *reporter, name string, p *place) *included {
	if in, ok := v.cache[name]; ok {
		return in
	}
	v.cache[name] = nil
	if len(v.cache) > MaxIncludes {
		if len(v.cache) == MaxIncludes+1 {
			r.addf(codeTooLarge, p, "more than %d fragments", MaxIncludes)
		}
		return nil
	}
	f, err := v.src.Fragment(name)
	if err != nil {
		if !errors.Is(err, errs.ErrNotFound) {
			v.err = err
			return nil
		}
		by := ""
		if n := len(v.stack); n > 0 {
			by = fmt.Sprintf(" (included by %s)", v.stack[n-1])
		}
		r.addf(codeUnknownFragment, p, "there is no fragment %q%s%s", clip(name), by, suggestStd(name))
		return nil
	}
	in := &included{name: name, fragment: f, reporter: reporter{errors: &Errors{}}}
	if ds, ok := v.src.(documentSource); ok {
		if d, ok := ds.document(name); ok {
			in.reporter.origin = d.origin
		}
	}
	in.reporter.resource(&apiv1.Resource{Kind: &apiv1.Resource_Fragment{Fragment: f}})
	if bad := in.reporter.errors.findings; len(bad) > 0 {
		r.addf(bad[0].GetCode(), p, "fragment %s: %s", name, bad[0].GetMessage())
		return nil
	}
	spec := (*place)(nil).key("spec")
	in.values = in.reporter.variables(f.GetSpec().GetVariables(), nil, &spec)
	v.cache[name] = in
	return in
}

func suggestStd(name string) string {
	var known []string
	for _, d := range loadStd() {
		known = append(known, d.Name)
	}
	return suggest(name, known)
}
