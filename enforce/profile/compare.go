package profile

import (
	"fmt"
	"slices"
	"strings"
)

// Comparison is what a second profile allows that a first does not, and the
// reverse. It is made from what is allowed in the end, a right that no layer
// handles being allowed, and not from rows: profiles of other layers and rows
// that allow the same have no difference.
//
// Paths are compared as text, as [Profile.DecidePath] decides them. On a host
// rules bind to inodes: where one inode is reached along two paths (a bind
// mount, a hard link), or where a path of a rule leads through a symbolic link,
// the difference holds for the paths that the rules lead to. Whether a path
// names a file or a directory is not known here, so rights that mean nothing on
// a file are told on every path.
type Comparison struct {
	ABI int // of the kernel that both were compared for

	// Paths are the places where the difference changes, in order of bytes,
	// "/" first. One holds for the path and all beneath, down to the next. Where
	// both masks are 0 the difference of a folder above ends.
	Paths []PathChange
	Ports []PortChange // in order, disjoint, only where there is a difference
	Scope Change       // rights to reach past a scope: gained when the second no longer has it
	// Mount is the right to change the mounts (mount, umount, pivot_root,
	// move_mount), which any handled fs right takes away.
	Mount Toggle
	Moves Moves // what Paths does not tell of moves between directories

	// No rights, and so not part of Gains and Loses.
	Log      []LogChange
	Settings []Setting

	a, b   *side
	places *places
}

// Change is a difference of rights of one kind.
type Change struct{ Gained, Lost Access }

// None tells whether there is no difference.
func (c Change) None() bool { return c.Gained|c.Lost == 0 }

// PathChange is the difference on a path and beneath.
type PathChange struct {
	Path string
	Change
}

// PortChange is the difference on the ports First to Last, both included.
type PortChange struct {
	First, Last uint16
	Change
}

// Toggle is a difference of something that is there or not.
type Toggle int8

// The values of a Toggle.
const (
	Lost      Toggle = -1
	Unchanged Toggle = 0
	Gained    Toggle = 1
)

func toggle(before, after bool) Toggle {
	switch {
	case before == after:
		return Unchanged
	case after:
		return Gained
	}
	return Lost
}

// Setting is a difference of what else a profile says: what may keep a program
// from starting, and what the policy accepts. Path is empty where the setting
// is of the whole profile.
type Setting struct{ Name, Path, First, Second string }

// Compare compares two valid profiles as a kernel of this ABI enforces them: what
// it does not know is not refused. 0 stands for the newest ABI of the two, which
// knows all that both use. Like that kernel it takes a profile of more layers
// than fit, or one that asks for it, as flattened; that matters for Moves and
// Log alone. Time and memory are linear in the number of rows, times layers.
func Compare(a, b *Profile, abi int) (*Comparison, error) {
	if abi == 0 {
		abi = max(a.ABI, b.ABI)
	}
	if abi < 1 || abi > MaxABI {
		return nil, fmt.Errorf("%w: no ABI %d to compare for", ErrInvalid, abi)
	}
	c := &Comparison{ABI: abi, places: newPlaces(a, b)}
	c.a, c.b = newSide(a, c.places, abi), newSide(b, c.places, abi)
	c.Paths = c.comparePaths()
	c.Ports = comparePorts(c.a, c.b)
	c.Scope = change(c.a.allowedScope(), c.b.allowedScope())
	c.Mount = toggle(!c.a.anyFS, !c.b.anyFS)
	first, err := c.a.enforced(c.places)
	if err != nil {
		return nil, err
	}
	second, err := c.b.enforced(c.places)
	if err != nil {
		return nil, err
	}
	c.Moves = compareMoves(first, second, c.places)
	c.Log = compareLog(first, second, c.places)
	c.Settings = compareSettings(first, second, a, b)
	return c, nil
}

// Gains tells whether the second profile allows anything that the first does not.
func (c *Comparison) Gains() bool {
	return c.any(func(c Change) bool { return c.Gained != 0 }, Gained)
}

// Loses tells whether the first allows anything that the second does not.
func (c *Comparison) Loses() bool {
	return c.any(func(c Change) bool { return c.Lost != 0 }, Lost)
}

// Equal tells whether there is no difference at all, of rights or otherwise.
func (c *Comparison) Equal() bool {
	return !c.Gains() && !c.Loses() && len(c.Log) == 0 && len(c.Settings) == 0
}

func (c *Comparison) any(is func(Change) bool, t Toggle) bool {
	return is(c.Scope) || c.Mount == t || c.Moves.Unknown ||
		slices.ContainsFunc(c.Paths, func(p PathChange) bool { return is(p.Change) }) ||
		slices.ContainsFunc(c.Ports, func(p PortChange) bool { return is(p.Change) }) ||
		slices.ContainsFunc(c.Moves.Changes, func(m MoveChange) bool { return is(m.Change) || is(m.Mounted) })
}

// Path gives the difference on an absolute, clean path.
func (c *Comparison) Path(path string) Change {
	i := c.places.deepest(path)
	return change(c.a.allowed[i], c.b.allowed[i])
}

// Port gives the difference on a port.
func (c *Comparison) Port(port uint16) Change {
	for i := range c.Ports {
		if r := &c.Ports[i]; r.First <= port && port <= r.Last {
			return r.Change
		}
	}
	return Change{}
}

func change(before, after Access) Change { return Change{after &^ before, before &^ after} }

// places are all paths that two profiles have rows on, and "/".
type places struct {
	paths []PathRow // sorted, Path alone is set
	up    []int32   // the nearest above; -1 for "/", which is the first
}

func newPlaces(a, b *Profile) *places {
	rows := make([]PathRow, 1, 1+max(len(a.Paths), len(b.Paths)))
	rows[0].Path = "/"
	for i, j := 0, 0; i < len(a.Paths) || j < len(b.Paths); {
		var next string
		switch {
		case j == len(b.Paths) || i < len(a.Paths) && a.Paths[i].Path < b.Paths[j].Path:
			next = a.Paths[i].Path
			i++
		case i == len(a.Paths) || b.Paths[j].Path < a.Paths[i].Path:
			next = b.Paths[j].Path
			j++
		default:
			next = a.Paths[i].Path
			i, j = i+1, j+1
		}
		if next != "/" {
			rows = append(rows, PathRow{Path: next})
		}
	}
	return &places{paths: rows, up: (&Profile{Paths: rows}).rowsAbove()}
}

// find gives the place on exactly this path, or -1.
func (pl *places) find(path string) int {
	i, _ := (&Profile{Paths: pl.paths}).findPath(path, len(pl.paths))
	return i
}

// deepest gives the place that a path is on or beneath.
func (pl *places) deepest(path string) int {
	i, _, _ := (&Profile{Paths: pl.paths}).above(path, len(pl.paths))
	return max(i, 0)
}

// side is one of the profiles, as a kernel of some ABI takes it.
type side struct {
	p       *Profile
	abi     int
	layers  int
	anyFS   bool     // any layer handles any fs right
	handled []Access // fs, by layer, with the implied refer
	united  []Access // by place and layer: granted there and above, with QuietRule
	allowed []Access // by place: what all layers allow together
}

func newSide(p *Profile, pl *places, abi int) *side {
	s := &side{p: p, abi: abi, layers: len(p.Layers), anyFS: p.HandlesFS()}
	known := Handled(FS, abi)
	if abi == 1 {
		s.anyFS = slices.ContainsFunc(p.Layers, func(l Layer) bool { return l.FS&known != 0 })
	}
	s.handled = make([]Access, s.layers)
	for l := range s.handled {
		s.handled[l] = p.Layers[l].FS & known
		if s.anyFS {
			s.handled[l] |= FSRefer // ABI 1 does not know it, and moves nothing between directories
		}
	}
	s.united = make([]Access, len(pl.paths)*s.layers)
	s.allowed = make([]Access, len(pl.paths))
	row := 0
	for i := range pl.paths {
		masks := s.at(i)
		if up := pl.up[i]; up >= 0 {
			copy(masks, s.at(int(up)))
		}
		if row < len(p.Paths) && p.Paths[row].Path == pl.paths[i].Path {
			for l, a := range p.Paths[row].Access {
				masks[l] |= a & (known | QuietRule)
			}
			row++
		}
		s.allowed[i] = known | FSRefer
		for l, a := range masks {
			s.allowed[i] &= a | ^s.handled[l]
		}
	}
	return s
}

// at gives what is granted at a place, by layer.
func (s *side) at(place int) []Access {
	return s.united[place*s.layers : (place+1)*s.layers]
}

// enforced is the side as it is enforced: flattened if need be.
func (s *side) enforced(pl *places) (*side, error) {
	if s.layers < 2 || !s.p.Flatten && s.layers <= MaxKernelLayers {
		return s, nil
	}
	q, _ := s.p.Reduce(s.abi)
	if len(q.Layers) < 2 {
		return newSide(q, pl, s.abi), nil
	}
	flat, err := Flatten(q)
	if err != nil {
		return nil, err
	}
	return newSide(flat.Profile, pl, s.abi), nil
}

func (s *side) allowedScope() Access {
	known := Handled(Scope, s.abi)
	allowed := known
	for i := range s.p.Layers {
		allowed &^= s.p.Layers[i].Scope
	}
	return allowed
}

func (c *Comparison) comparePaths() []PathChange {
	var out []PathChange
	for i := range c.places.paths {
		here, above := change(c.a.allowed[i], c.b.allowed[i]), Change{}
		if up := c.places.up[i]; up >= 0 {
			above = change(c.a.allowed[up], c.b.allowed[up])
		}
		if here != above {
			out = append(out, PathChange{c.places.paths[i].Path, here})
		}
	}
	return out
}

// eachPorts visits all ports in ranges where both tables have one row, or none,
// with the masks of those rows.
func eachPorts(a, b *Profile, visit func(first, last uint16, inA, inB []Access)) {
	rowA, rowB := 0, 0
	for port := 0; port <= 0xffff; {
		inA, endA := a.portRow(port, &rowA)
		inB, endB := b.portRow(port, &rowB)
		end := min(endA, endB)
		visit(uint16(port), uint16(end), inA, inB)
		port = end + 1
	}
}

// portRow gives the masks of a port's row and up to where they hold; next is the
// first row that may hold the port.
func (p *Profile) portRow(port int, next *int) (masks []Access, end int) {
	for *next < len(p.Ports) && int(p.Ports[*next].Last) < port {
		*next++
	}
	if *next == len(p.Ports) {
		return nil, 0xffff
	}
	r := &p.Ports[*next]
	if int(r.First) > port {
		return nil, int(r.First) - 1
	}
	return r.Access, int(r.Last)
}

func (s *side) allowedPort(masks []Access) Access {
	allowed := Handled(Net, s.abi)
	for l := range s.p.Layers {
		refused := s.p.Layers[l].Net
		if masks != nil {
			refused &^= masks[l]
		}
		allowed &^= refused
	}
	return allowed
}

func comparePorts(a, b *side) []PortChange {
	var out []PortChange
	eachPorts(a.p, b.p, func(first, last uint16, inA, inB []Access) {
		d := change(a.allowedPort(inA), b.allowedPort(inB))
		if d.None() {
			return
		}
		if k := len(out) - 1; k >= 0 && out[k].Last+1 == first && out[k].Change == d {
			out[k].Last = last
			return
		}
		out = append(out, PortChange{first, last, d})
	})
	return out
}

// subdomainsOff tells whether denials of domains that programs make beneath are
// never logged.
func (s *side) subdomainsOff() bool {
	return slices.ContainsFunc(s.p.Layers, func(l Layer) bool {
		return l.Log&logFlagsKnown(s.abi)&LogSubdomainsOff != 0
	})
}

// compareSettings tells what is said otherwise of rows that both have, and of
// the profiles. A row that only one has is no difference by itself.
func compareSettings(first, second *side, a, b *Profile) []Setting {
	var out []Setting
	add := func(name, path, first, second string) {
		if first != second {
			out = append(out, Setting{name, path, first, second})
		}
	}
	mode := map[bool]string{false: "required", true: "degrade"}
	add("enforcement", "", mode[a.Degrade], mode[b.Degrade])
	yes := map[bool]string{false: "no", true: "yes"}
	add("flatten", "", yes[a.Flatten], yes[b.Flatten])
	add("accept shared inodes", "", yes[a.AcceptSharedInode], yes[b.AcceptSharedInode])
	add("accept flattened refer", "", yes[a.AcceptReferFlatten], yes[b.AcceptReferFlatten])
	add("subdomains_off", "", yes[first.subdomainsOff()], yes[second.subdomainsOff()])
	n := len(b.Paths)
	for i := len(a.Paths) - 1; i >= 0; i-- {
		row, below := b.findPath(a.Paths[i].Path, n)
		if n = below; row < 0 {
			continue
		}
		first, second := &a.Paths[i], &b.Paths[row]
		add("missing", first.Path, first.Missing.String(), second.Missing.String())
		add("within", first.Path, first.Path[:first.Within], second.Path[:second.Within])
	}
	slices.SortStableFunc(out, func(x, y Setting) int { return strings.Compare(x.Path, y.Path) })
	return out
}
