package profile

import (
	"encoding/binary"
	"slices"
)

// Moves are the renames and links between directories that one profile allows
// and the other refuses although the rights on both parents are the same: the
// object would gain rights in a layer ([Move]). Where a right to make, remove or
// refer is gained or lost, Comparison.Paths tells that.
//
// Layers matter here one by one, so places where equal rights are refused by
// equal layers are put in groups, and the changes are between groups.
type Moves struct {
	// Unknown: there may be differences, in either direction, but there are too
	// many groups to compare each with each (see maxMovePairs).
	Unknown bool
	Groups  []MoveGroup // that Changes name
	Changes []MoveChange
}

// MoveGroup are places with equal restrictions. An object is of the group when
// its path stands in Itself or, if it does not stand in NotItself, when of the
// directories of In and Except above it the nearest is one of In. For the new
// name of an object, Itself and NotItself are empty.
type MoveGroup struct {
	In        []string // what is in these and beneath
	Except    []string // but not what is in these and beneath
	Itself    []string // what has exactly these paths
	NotItself []string // but not what has exactly these paths
}

// MoveChange is a difference of moves from a group to a directory of another.
// The masks hold the rights to make (make_reg, make_dir ...) of the types of
// objects that it is about. It holds for link(2), for directories rename(2);
// renaming others needs remove_file as well. An exchange needs both ways.
type MoveChange struct {
	From, To int    // indices in Moves.Groups
	Change          // in the mount of "/"
	Mounted  Change // in a mount below it (see Move.Mounted)
}

const (
	// maxMovePairs bounds how many pairs of groups are compared.
	maxMovePairs = 1 << 20

	makeFile = FSMakeReg | FSMakeSym | FSMakeFifo | FSMakeSock | FSMakeChar | FSMakeBlock
)

// mover compares moves between the places where both profiles allow refer.
type mover struct {
	a, b *side
	pl   *places
	// Where a row on "/" grants something, moves in mounts below "/" are
	// compared without it, so both ways count.
	belowA, belowB []Access // as side.united, without the row on "/"; nil if there is none

	classOf []int32 // by place; -1 where nothing is moved
	classes map[string]int32
	restr   [][]Access // by class: what is refused, see restrictions
	at      []int32    // by class: one of its places
	targets []MoveGroup

	groupOf map[source]int
	sources []source
	from    []MoveGroup // by source
}

// source is what matters of where an object comes from: its own restrictions
// and, of its parent, whether both profiles allow removing a directory there and
// which of them refuses nothing at all.
type source struct {
	class        int32
	rmdir        bool
	freeA, freeB bool
}

func compareMoves(a, b *side, pl *places) Moves {
	m := &mover{a: a, b: b, pl: pl, classes: map[string]int32{}, groupOf: map[source]int{}}
	if !m.any() {
		return Moves{}
	}
	if !allZero(a.at(0)) || !allZero(b.at(0)) {
		m.belowA, m.belowB = a.uniteBelowRoot(pl), b.uniteBelowRoot(pl)
	}
	if m.sameLayers() {
		return Moves{}
	}
	m.classify()
	if len(m.sources)*len(m.restr) > maxMovePairs {
		return Moves{Unknown: true}
	}
	return m.compare()
}

func (m *mover) any() bool {
	for i := range m.pl.paths {
		if m.counts(i) {
			return true
		}
	}
	return false
}

func (m *mover) counts(place int) bool {
	return m.a.allowed[place]&m.b.allowed[place]&FSRefer != 0
}

// uniteBelowRoot is united without what the row of "/" grants.
func (s *side) uniteBelowRoot(pl *places) []Access {
	united := make([]Access, len(s.united))
	row := 0
	for i := range pl.paths {
		masks := united[i*s.layers : (i+1)*s.layers]
		if up := pl.up[i]; up > 0 {
			copy(masks, united[int(up)*s.layers:])
		}
		if row < len(s.p.Paths) && s.p.Paths[row].Path == pl.paths[i].Path {
			for l, a := range s.p.Paths[row].Access {
				if i > 0 {
					masks[l] |= a
				}
			}
			row++
		}
	}
	return united
}

// restrictions gives what is refused at a place by layer: under the first
// profile, under the second, and the same without the row of "/".
func (m *mover) restrictions(place int, buf []Access) []Access {
	add := func(s *side, united []Access) {
		for l, h := range s.handled {
			buf = append(buf, h&^united[place*s.layers+l])
		}
	}
	add(m.a, m.a.united)
	add(m.b, m.b.united)
	if m.belowA != nil {
		add(m.a, m.belowA)
		add(m.b, m.belowB)
	}
	return buf
}

// sameLayers tells whether for each right the layers of both that refuse it in
// some of the places refuse it in the same places: then no move differs, however
// the layers are named, ordered, split or repeated.
func (m *mover) sameLayers() bool {
	na, nb := m.a.layers, m.b.layers
	halves := 1
	if m.belowA != nil {
		halves = 2
	}
	differ := make([]Access, halves*na*nb) // by pair of layers: rights refused in different places
	ever := make([]Access, halves*(na+nb)) // by layer: rights refused anywhere
	buf := make([]Access, 0, len(ever))
	for i := range m.pl.paths {
		if !m.counts(i) {
			continue
		}
		buf = m.restrictions(i, buf[:0])
		for l, r := range buf {
			ever[l] |= r
		}
		for h := range halves {
			first := buf[h*(na+nb):]
			for x, ra := range first[:na] {
				row := differ[(h*na+x)*nb:]
				for y, rb := range first[na : na+nb] {
					row[y] |= ra ^ rb
				}
			}
		}
	}
	for h := range halves {
		evers := ever[h*(na+nb):]
		matchedB := make([]Access, nb)
		for x := range na {
			var matched Access
			for y := range nb {
				same := ^differ[(h*na+x)*nb+y]
				matched |= same
				matchedB[y] |= same
			}
			if evers[x]&^matched != 0 {
				return false
			}
		}
		for y, matched := range matchedB {
			if evers[na+y]&^matched != 0 {
				return false
			}
		}
	}
	return true
}

// classify puts the places into classes of equal restrictions, as targets, and
// into groups, as sources.
func (m *mover) classify() {
	m.classOf = make([]int32, len(m.pl.paths))
	var buf []Access
	var key []byte
	for i := range m.pl.paths {
		m.classOf[i] = -1
		if !m.counts(i) {
			continue
		}
		buf, key = m.restrictions(i, buf[:0]), key[:0]
		for _, r := range buf {
			key = binary.LittleEndian.AppendUint32(key, uint32(r))
		}
		class, ok := m.classes[string(key)]
		if !ok {
			class = int32(len(m.restr))
			m.classes[string(key)] = class
			m.restr = append(m.restr, slices.Clone(buf))
			m.at = append(m.at, int32(i))
			m.targets = append(m.targets, MoveGroup{})
		}
		m.classOf[i] = class
		m.join(i, class)
	}
}

// join lists a place where a class or group begins. Beneath a place that counts
// all others do: what is allowed only grows.
func (m *mover) join(i int, class int32) {
	path, up := m.pl.paths[i].Path, m.pl.up[i]
	inside := m.group(m.source(class, i))
	if up < 0 || m.classOf[up] < 0 {
		m.targets[class].In = append(m.targets[class].In, path)
		m.from[inside].In = append(m.from[inside].In, path)
		return
	}
	above := m.classOf[up]
	if above != class {
		m.targets[class].In = append(m.targets[class].In, path)
		m.targets[above].Except = append(m.targets[above].Except, path)
	}
	around := m.group(m.source(above, int(up)))
	if around != inside {
		m.from[inside].In = append(m.from[inside].In, path)
		m.from[around].Except = append(m.from[around].Except, path)
	}
	if itself := m.group(m.source(class, int(up))); itself != around {
		m.from[itself].Itself = append(m.from[itself].Itself, path)
		m.from[around].NotItself = append(m.from[around].NotItself, path)
	}
}

func (m *mover) source(class int32, parent int) source {
	a, b := m.a.allowed[parent], m.b.allowed[parent]
	return source{class, a&b&FSRemoveDir != 0, m.a.all()&^a == 0, m.b.all()&^b == 0}
}

func (m *mover) group(s source) int {
	g, ok := m.groupOf[s]
	if !ok {
		g = len(m.sources)
		m.groupOf[s] = g
		m.sources = append(m.sources, s)
		m.from = append(m.from, MoveGroup{})
	}
	return g
}

// all is every right of the side's ABI, and refer.
func (s *side) all() Access { return Handled(FS, s.abi) | FSRefer }

func (m *mover) compare() Moves {
	var out Moves
	fromAt, toAt := map[int]int{}, map[int32]int{}
	index := func(at int, known bool, g MoveGroup, set func(int)) int {
		if !known {
			at = len(out.Groups)
			out.Groups = append(out.Groups, g)
			set(at)
		}
		return at
	}
	for g, s := range m.sources {
		for to := range m.restr {
			d := m.pair(s, int32(to))
			if d.None() && d.Mounted.None() {
				continue
			}
			at, known := fromAt[g]
			d.From = index(at, known, m.from[g], func(i int) { fromAt[g] = i })
			at, known = toAt[int32(to)]
			d.To = index(at, known, m.targets[to], func(i int) { toAt[int32(to)] = i })
			out.Changes = append(out.Changes, d)
		}
	}
	return out
}

// pair compares the moves from a group to directories of a class.
func (m *mover) pair(s source, to int32) (d MoveChange) {
	src, dst := m.restr[s.class], m.restr[to]
	place := m.at[to]
	may := m.a.allowed[place] & m.b.allowed[place]
	makes := may & makeFile
	if s.rmdir {
		makes |= may & FSMakeDir
	}
	na, nb := m.a.layers, m.b.layers
	gainA, gainB := gained(src[:na], dst[:na]), gained(src[na:na+nb], dst[na:na+nb])
	d.Change = change(movable(makes, gainA), movable(makes, gainB))
	d.Mounted = d.Change
	if m.belowA == nil {
		return d
	}
	src, dst = src[na+nb:], dst[na+nb:]
	// Where nothing is refused on either parent the kernel compares nothing.
	if !s.freeA || m.a.all()&^m.a.allowed[place] != 0 {
		gainA = gained(src[:na], dst[:na])
	}
	if !s.freeB || m.b.all()&^m.b.allowed[place] != 0 {
		gainB = gained(src[na:], dst[na:])
	}
	d.Mounted = change(movable(makes, gainA), movable(makes, gainB))
	return d
}

// gained gives the rights that any layer refuses at src but not at dst.
func gained(src, dst []Access) (g Access) {
	for l, r := range src {
		g |= r &^ dst[l]
	}
	return g
}

// movable gives of the rights to make those of the objects that gain nothing.
func movable(makes, gain Access) Access {
	if gain&FileRights(MaxABI) != 0 {
		return 0
	}
	if gain != 0 {
		return makes &^ FSMakeDir
	}
	return makes
}
