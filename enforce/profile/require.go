package profile

import (
	"fmt"
	"slices"
)

// Use says in which way a profile uses a right or flag.
type Use uint8

const (
	// UseRight: a layer handles the right, so processes lack it unless granted.
	UseRight Use = iota
	// UseImplicit: refer, which no layer asked for but every layer denies
	// because the domain handles some fs right.
	UseImplicit
	// UseLog: a log flag or quiet. It changes what is logged, not what is denied.
	UseLog
)

// Need is one thing a profile asks of the kernel, by layer and name.
type Need struct {
	Layer     int // index in Profile.Layers
	LayerName string
	Kind      Kind   // for log flags FS, without meaning
	Name      string // of the table of rights, or of flags with UseLog
	ABI       int    // the first that has it
	Use       Use
}

// Confines tells whether a process is less confined without it. It is false
// for what is about logging only.
func (n Need) Confines() bool { return n.Use != UseLog }

// String says what is needed, where, and since when kernels have it.
func (n Need) String() string {
	what := n.Kind.String() + " right " + n.Name
	switch {
	case n.Use == UseImplicit:
		what = "the implied denial of " + n.Name
	case n.Use == UseLog && n.Name == flagQuiet:
		what = n.Kind.String() + " flag " + n.Name
	case n.Use == UseLog:
		what = "log flag " + n.Name
	case n.Kind == Scope:
		what = "scope " + n.Name
	}
	return fmt.Sprintf("layer %q: %s needs ABI %d (linux %s)", n.LayerName, what, n.ABI, KernelOf(n.ABI))
}

// Required lists every right and flag the profile uses, by layer, kind and
// bit; log flags come last in a layer.
func (p *Profile) Required() []Need {
	quietRules := p.quietRules()
	var needs []Need
	for i := range p.Layers {
		l := &p.Layers[i]
		for r := range rights {
			if r := &rights[r]; l.handled(r.Kind)&r.Bit != 0 {
				needs = append(needs, Need{i, l.Name, r.Kind, r.Name, r.ABI, UseRight})
			}
		}
		for _, k := range [...]Kind{FS, Net, Scope} {
			if l.quiet(k) != 0 || quietRules[i]&(1<<k) != 0 {
				needs = append(needs, Need{i, l.Name, k, flagQuiet, abiQuiet, UseLog})
			}
		}
		for f := range flags {
			if f := &flags[f]; f.Log && uint32(l.Log)&f.Bit != 0 {
				needs = append(needs, Need{i, l.Name, FS, f.Name, f.ABI, UseLog})
			}
		}
	}
	return needs
}

// quietRules tells per layer of which kinds (bit 1<<kind) it has quiet rules.
func (p *Profile) quietRules() []uint8 {
	has := make([]uint8, len(p.Layers))
	for i := range p.Paths {
		for l, m := range p.Paths[i].Access {
			has[l] |= uint8(m>>31) << FS
		}
	}
	for i := range p.Ports {
		for l, m := range p.Ports[i].Access {
			has[l] |= uint8(m>>31) << Net
		}
	}
	return has
}

// Reduce gives what a kernel of this ABI can enforce of the profile and, by
// layer and name, all it cannot. With nothing lost the profile itself comes
// back. Otherwise the result shares no masks with p, has an ABI no higher than
// the one given, and:
//
//   - a layer that keeps nothing is left out, unless it implied the denial of
//     refer: then it goes on to handle refer by name, which denies the same;
//   - a row without a right left in any layer is left out;
//   - at ABI 1 refer is listed as lost, though such a kernel is the stricter:
//     a domain with any fs right moves nothing between directories there.
//
// A result without layers means that nothing can be enforced; it is not valid
// as a profile. ABI 0 stands for a kernel without Landlock.
func (p *Profile) Reduce(abi int) (*Profile, []Need) {
	var lost []Need
	for _, n := range p.Required() {
		if n.ABI > abi {
			lost = append(lost, n)
		}
	}
	if len(lost) == 0 {
		return p, nil
	}
	q := *p
	q.ABI = min(p.ABI, max(abi, 0))
	q.Layers = nil
	var kept []int // indices in p of q's layers
	for i, l := range p.Layers {
		l.FS &= Handled(FS, abi)
		l.Net &= Handled(Net, abi)
		l.Scope &= Handled(Scope, abi)
		if abi < abiQuiet {
			l.QuietFS, l.QuietNet, l.QuietScope = 0, 0, 0
		}
		l.Log &= logFlagsKnown(abi)
		q.Layers = append(q.Layers, l)
		kept = append(kept, i)
	}
	if p.HandlesFS() {
		lost = p.keepImplicitRefer(&q, abi, lost)
	}
	q.dropEmptyLayers(&kept)
	q.Paths, q.Ports = p.reduceRows(&q, kept, abi)
	return &q, lost
}

// keepImplicitRefer makes layers of q that lost all they handled deny refer as
// they did before, where the kernel can, and else adds to lost what is gone.
func (p *Profile) keepImplicitRefer(q *Profile, abi int, lost []Need) []Need {
	refer, _ := RightByName(FS, "refer")
	if abi >= refer.ABI {
		fsLeft := q.HandlesFS()
		for i := range q.Layers {
			l := &q.Layers[i]
			empty := l.FS|l.Net|l.Scope == 0
			if empty || !fsLeft && p.Layers[i].FS != 0 {
				l.FS = FSRefer
			}
		}
		return lost
	}
	if !q.HandlesFS() {
		for i := range p.Layers {
			if p.Layers[i].FS&FSRefer == 0 {
				lost = append(lost, Need{i, p.Layers[i].Name, FS, refer.Name, refer.ABI, UseImplicit})
			}
		}
	}
	return lost
}

func (q *Profile) dropEmptyLayers(kept *[]int) {
	layers, old := q.Layers[:0], (*kept)[:0]
	for i, l := range q.Layers {
		if l.FS|l.Net|l.Scope != 0 {
			layers, old = append(layers, l), append(old, (*kept)[i])
		}
	}
	q.Layers, *kept = slices.Clip(layers), old
}

func (p *Profile) reduceRows(q *Profile, kept []int, abi int) ([]PathRow, []PortRow) {
	masks := func(kind Kind, from []Access) []Access {
		to := make([]Access, len(kept))
		for i, l := range kept {
			to[i] = from[l] & q.Layers[i].handled(kind)
			if abi >= abiQuiet {
				to[i] |= from[l] & QuietRule
			}
		}
		return to
	}
	var paths []PathRow
	for _, r := range p.Paths {
		if r.Access = masks(FS, r.Access); !allZero(r.Access) {
			paths = append(paths, r)
		}
	}
	var ports []PortRow
	for _, r := range p.Ports {
		if r.Access = masks(Net, r.Access); !allZero(r.Access) {
			ports = appendPort(ports, r)
		}
	}
	return paths, ports
}
