package profile

import (
	"fmt"
	"slices"
	"strings"
)

// FlatLayer is the name of the layer that Flatten makes.
const FlatLayer = "flattened"

// Flat is a profile as a single layer, and where that is not the same.
type Flat struct {
	Profile *Profile

	// Refer holds the paths where refer is granted beneath after flattening.
	// If there are any, a rename or link among them that would gain a right in
	// one layer, and that another layer refuses in both places, is EXDEV under
	// the layers but allowed when flat. What a process may do altogether is
	// never widened by it.
	Refer []string

	// PathBound holds the paths whose flat rule is right only for who comes
	// along that path: some layer grants a right on the path itself, another
	// only above it or not at all. A kernel's rule binds to the inode. So when
	// one of these is reached along a second path (a bind mount, a hard link),
	// or is moved, the layers and the flat rule may differ, in either
	// direction. Where none is, flattening is exact but for Refer.
	PathBound []string

	// LogLost names what the flat layer does not keep of quiet masks and
	// rules and of log flags. More is logged than asked for, never less.
	LogLost []string
}

// Flatten makes one layer of all: what each node grants is the AND over the
// layers of what that layer grants there, where a right that a layer does not
// handle counts as granted. Down the tree that only grows, so it is a layer.
// All that any layer handles is handled, and all scopes are kept.
//
// The paths must be real: a row whose path leads through a symbolic link stands
// elsewhere in the tree than its text says, so resolve first, then flatten.
// Rows on which nothing is granted that is not granted above are left out, so
// check before that every path with [Fail] is there.
//
// A profile of one layer comes back as it is.
func Flatten(p *Profile) (*Flat, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("flatten: %w", err)
	}
	if len(p.Layers) == 1 {
		return &Flat{Profile: p}, nil
	}
	f := &flattener{p: p, ix: NewIndex(p), anyFS: p.HandlesFS()}
	out := *p
	out.Layers = []Layer{f.layer()}
	out.Paths = f.paths()
	out.Ports = f.ports()
	f.flat.Profile = &out
	if err := out.Validate(); err != nil {
		return nil, fmt.Errorf("flatten: %w", err)
	}
	return &f.flat, nil
}

// CheckRefer refuses a flattening that weakens the test of renames, unless the
// policy accepts that by name. (Whether two paths name one inode is for who
// sees the host: see PathBound.)
func (f *Flat) CheckRefer() error {
	if len(f.Refer) == 0 || f.Profile.AcceptReferFlatten {
		return nil
	}
	return fmt.Errorf("%w: refer stays granted on %s", ErrFlattenRefer, abridged(f.Refer))
}

func abridged(paths []string) string {
	const show = 3
	if len(paths) <= show {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:show], ", "), len(paths)-show)
}

type flattener struct {
	p     *Profile
	ix    *Index
	anyFS bool
	flat  Flat
}

// layer unites what the layers handle. Quiet goes (a flat denial cannot be told
// by layer any more); flags that take from the log stay when all layers have
// them, the one that adds stays when any has it.
func (f *flattener) layer() Layer {
	flat := Layer{Name: FlatLayer, Log: LogSameExecOff | LogSubdomainsOff}
	for i := range f.p.Layers {
		l := &f.p.Layers[i]
		flat.FS |= l.FS
		flat.Net |= l.Net
		flat.Scope |= l.Scope
		flat.Log &= l.Log | LogNewExecOn
		flat.Log |= l.Log & LogNewExecOn
	}
	for _, n := range f.p.Required() {
		l := &f.p.Layers[n.Layer]
		if n.Use == UseLog && (n.Name == flagQuiet || !slices.Contains((l.Log&flat.Log).Names(), n.Name)) {
			f.flat.LogLost = append(f.flat.LogLost, fmt.Sprintf("layer %q: %s", n.LayerName, n.Name))
		}
	}
	return flat
}

// and gives what all layers grant where each grants masks.
func (f *flattener) and(kind Kind, masks []Access) Access {
	all := ^QuietRule
	var handled Access
	for l, granted := range masks {
		h := f.p.handled(l, kind, f.anyFS)
		handled |= h
		all &= granted | ^h
	}
	return all & handled
}

func (f *flattener) paths() []PathRow {
	var rows []PathRow
	granted := make([]Access, len(f.p.Paths)) // flat, by row of p
	var fromRoot Access
	if root, _ := f.p.findPath("/", len(f.p.Paths)); root >= 0 {
		fromRoot = f.and(FS, f.p.Paths[root].Access)
	}
	for i := range f.p.Paths {
		r := &f.p.Paths[i]
		granted[i] = f.and(FS, f.ix.united.row(int32(i)))
		var any Access
		for _, a := range r.Access {
			any |= a
		}
		own := f.and(FS, r.Access)
		if any&^QuietRule&^own != 0 {
			f.flat.PathBound = append(f.flat.PathBound, r.Path)
		}
		var above Access
		if up := f.ix.up[i]; up >= 0 {
			above = granted[up]
		}
		// Not all that is granted here: a rule that repeats what those above
		// it grant would carry that along to another path of the same inode.
		// But what all layers grant right here holds on every path.
		// And what "/" grants holds on every path too. Repeating it is for the
		// renames in another mount, which do not see the rule on "/"
		// (Move.Mounted): where some layer repeats it, so must the flat one.
		mask := own | granted[i]&^above | any&fromRoot
		if mask == 0 {
			continue
		}
		if granted[i]&^above&FSRefer != 0 {
			f.flat.Refer = append(f.flat.Refer, r.Path)
		}
		rows = append(rows, PathRow{Path: r.Path, Missing: r.Missing, Access: []Access{mask}, Within: r.Within})
	}
	return rows
}

func (f *flattener) ports() []PortRow {
	var rows []PortRow
	for i := range f.p.Ports {
		r := &f.p.Ports[i]
		if granted := f.and(Net, r.Access); granted != 0 {
			rows = appendPort(rows, PortRow{First: r.First, Last: r.Last, Access: []Access{granted}})
		}
	}
	return rows
}
