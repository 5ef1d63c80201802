package profile

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Builder makes a [Profile] out of rules in any order. Rules of one layer on
// one path or port are united (ORed), as the kernel unites them; rows come out
// sorted, overlapping port ranges split, so equal rules give equal profiles.
type Builder struct {
	layers []Layer
	err    error // the first one

	byPath map[string]int32
	paths  []builtPath
	masks  []Access // len(paths) * len(layers)

	ports []builtPorts
}

type builtPath struct {
	path    string
	missing Missing
	within  int
}

type builtPorts struct {
	layer       int
	first, last uint16
	access      Access
}

// NewBuilder starts a profile of these layers, oldest first.
func NewBuilder(layers []Layer) *Builder {
	return &Builder{layers: slices.Clone(layers), byPath: make(map[string]int32)}
}

// Grow makes room for n more paths.
func (b *Builder) Grow(n int) {
	n = min(n, MaxPathRows)
	b.paths = slices.Grow(b.paths, n)
	b.masks = slices.Grow(b.masks, n*len(b.layers))
	if len(b.byPath) == 0 {
		b.byPath = make(map[string]int32, n)
	}
}

// AddPath grants rights in one layer on a path, absolute and clean. With quiet
// the rule also carries [QuietRule], and access may then be 0. A path that any
// rule wants to be there (Fail) has to be there. The error is also kept for
// Build, so callers with no use for the place may ignore it here.
func (b *Builder) AddPath(layer int, path string, access Access, quiet bool, missing Missing) error {
	mask, err := b.ruleMask(FS, layer, access, quiet)
	if err != nil {
		return b.fail(fmt.Errorf("path %.80q: %w", path, err))
	}
	masks, err := b.pathRow(path, missing)
	if err != nil {
		return b.fail(err)
	}
	masks[layer] |= mask
	return nil
}

// AddPathRow is AddPath in many layers at once: masks has one mask for each
// layer, with [QuietRule] where that is wanted, and 0 for a layer without a rule.
func (b *Builder) AddPathRow(path string, masks []Access, missing Missing) error {
	if len(masks) != len(b.layers) {
		return b.fail(fmt.Errorf("path %.80q: %w: %d masks for %d layers", path, ErrInvalid, len(masks), len(b.layers)))
	}
	some := false
	for layer, m := range masks {
		if m == 0 {
			continue
		}
		if _, err := b.ruleMask(FS, layer, m&^QuietRule, m&QuietRule != 0); err != nil {
			return b.fail(fmt.Errorf("path %.80q: %w", path, err))
		}
		some = true
	}
	if !some {
		return nil
	}
	row, err := b.pathRow(path, missing)
	if err != nil {
		return b.fail(err)
	}
	for layer, m := range masks {
		row[layer] |= m
	}
	return nil
}

// KeepWithin has the rules on a path, added before, refuse symbolic links that
// lead out of the folder its first n bytes name; of several the longest holds.
func (b *Builder) KeepWithin(path string, n int) error {
	row, ok := b.byPath[path]
	if !ok {
		return b.fail(fmt.Errorf("%w: path %.80q has no rule to be kept within a folder", ErrInvalid, path))
	}
	r := PathRow{Path: path, Within: n}
	if n == 1 {
		r.Within = 0 // "/" has everything in it
	}
	if !r.withinIsFolder() {
		return b.fail(fmt.Errorf("%w: path %.80q: its first %d bytes name no folder above it", ErrInvalid, path, n))
	}
	b.paths[row].within = max(b.paths[row].within, r.Within)
	return nil
}

// pathRow gives the masks of a path, one for each layer, until the next call.
func (b *Builder) pathRow(path string, missing Missing) ([]Access, error) {
	n := len(b.layers)
	row, ok := b.byPath[path]
	if !ok {
		if err := checkPath(path); err != nil {
			return nil, err
		}
		if len(b.paths) >= MaxPathRows {
			return nil, fmt.Errorf("%w: more than %d paths", ErrLimit, MaxPathRows)
		}
		row = int32(len(b.paths))
		b.byPath[path] = row
		b.paths = append(b.paths, builtPath{path: path, missing: missing})
		b.masks = append(b.masks, make([]Access, n)...)
	}
	if missing == Fail {
		b.paths[row].missing = Fail
	}
	return b.masks[int(row)*n : (int(row)+1)*n], nil
}

// AddPorts grants rights in one layer on the ports first to last, both
// included. For quiet and the error see AddPath.
func (b *Builder) AddPorts(layer int, first, last uint16, access Access, quiet bool) error {
	mask, err := b.ruleMask(Net, layer, access, quiet)
	if err == nil && first > last {
		err = fmt.Errorf("%w: the range is empty", ErrInvalid)
	}
	if err != nil {
		return b.fail(fmt.Errorf("ports %d-%d: %w", first, last, err))
	}
	b.ports = append(b.ports, builtPorts{layer, first, last, mask})
	return nil
}

// ruleMask checks a rule as landlock_add_rule would and gives its mask.
func (b *Builder) ruleMask(kind Kind, layer int, access Access, quiet bool) (Access, error) {
	if layer < 0 || layer >= len(b.layers) {
		return 0, fmt.Errorf("%w: no layer %d", ErrInvalid, layer)
	}
	l := &b.layers[layer]
	if extra := access &^ l.handled(kind); extra != 0 {
		return 0, fmt.Errorf("%w: layer %q does not handle %s", ErrInvalid, l.Name, kind.Format(extra))
	}
	if quiet {
		return access | QuietRule, nil
	}
	if access == 0 {
		return 0, fmt.Errorf("%w: a rule that grants nothing (it would deny nothing either)", ErrInvalid)
	}
	return access, nil
}

func (b *Builder) fail(err error) error {
	if b.err == nil {
		b.err = err
	}
	return err
}

// Build gives the profile, valid, with the lowest ABI that covers what it
// uses; the caller sets Name, a higher ABI and the policy's choices. The
// builder is used up.
func (b *Builder) Build() (*Profile, error) {
	if b.err != nil {
		return nil, b.err
	}
	p := &Profile{Layers: b.layers, Paths: b.buildPaths(), Ports: b.buildPorts()}
	p.ABI = 1
	for _, n := range p.Required() {
		p.ABI = max(p.ABI, n.ABI)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

func (b *Builder) buildPaths() []PathRow {
	if len(b.paths) == 0 {
		return nil
	}
	order := make([]int32, len(b.paths))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int { return strings.Compare(b.paths[x].path, b.paths[y].path) })
	n := len(b.layers)
	masks := make([]Access, len(b.masks)) // one backing array for all rows
	rows := make([]PathRow, len(order))
	for i, o := range order {
		m := masks[i*n : (i+1)*n : (i+1)*n]
		copy(m, b.masks[int(o)*n:])
		rows[i] = PathRow{Path: b.paths[o].path, Missing: b.paths[o].missing, Access: m, Within: b.paths[o].within}
	}
	return rows
}

// portEdge is where a rule begins (delta +1) or has ended (delta -1).
type portEdge struct {
	at     int
	layer  int
	access Access
	delta  int32
}

// buildPorts sweeps over the edges of all ranges, counting how many open rules
// grant each bit in each layer. Neighbours with equal masks become one row.
func (b *Builder) buildPorts() []PortRow {
	if len(b.ports) == 0 {
		return nil
	}
	edges := make([]portEdge, 0, 2*len(b.ports))
	for _, r := range b.ports {
		edges = append(edges,
			portEdge{int(r.first), r.layer, r.access, +1},
			portEdge{int(r.last) + 1, r.layer, r.access, -1})
	}
	sort.Slice(edges, func(i, j int) bool { return edges[i].at < edges[j].at })

	n := len(b.layers)
	counts := make([][32]int32, n)
	now := make([]Access, n)
	var masks []Access
	var rows []PortRow
	for i := 0; i < len(edges); {
		at := edges[i].at
		for ; i < len(edges) && edges[i].at == at; i++ {
			e := &edges[i]
			for bit := range counts[e.layer] {
				if e.access&(1<<bit) == 0 {
					continue
				}
				counts[e.layer][bit] += e.delta
				if counts[e.layer][bit] > 0 {
					now[e.layer] |= 1 << bit
				} else {
					now[e.layer] &^= 1 << bit
				}
			}
		}
		if i == len(edges) || allZero(now) {
			continue
		}
		r := PortRow{First: uint16(at), Last: uint16(edges[i].at - 1), Access: now}
		if k := len(rows) - 1; k >= 0 && r.continues(&rows[k]) {
			rows[k].Last = r.Last
			continue
		}
		masks = append(masks, now...)
		r.Access = masks[len(masks)-n:]
		rows = append(rows, r)
	}
	// masks has moved while it grew: give all rows the last array.
	for k := range rows {
		rows[k].Access = masks[k*n : (k+1)*n : (k+1)*n]
	}
	return rows
}

func allZero(masks []Access) bool {
	for _, m := range masks {
		if m != 0 {
			return false
		}
	}
	return true
}
