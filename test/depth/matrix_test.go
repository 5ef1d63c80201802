package depth

import (
	"math/bits"

	"policyd.dev/policyd/enforce/profile"
)

// matrixRights are the fs rights that the layout below has room for: those of
// ABI 5, the newest when kernels had it.
const matrixRights = 16

// matrix decides in the layout kernels had before the transposed one (up to
// 6.12 and some after): while they walk they keep for each right a mask of the
// layers that have not granted it. It is here to be measured, and as another
// opinion; written as landlock_init_layer_masks and landlock_unmask_layers of
// 6.12 work.
type matrix struct {
	handled []profile.Access // per layer
	up      []int32          // what an object stands under, -1 for a root
	first   []int32          // of the object's layers in rules; the next object's ends them
	rules   []ruleLayer
}

// ruleLayer is struct landlock_layer: a rule holds one for each layer it is of.
type ruleLayer struct {
	level  uint16 // from 1
	access uint16
}

// layerMasks has for each right a mask of layers.
type layerMasks [matrixRights]uint16

func newMatrix(p *profile.Profile) *matrix {
	m := &matrix{first: []int32{0}}
	for i := range p.Layers {
		handled := p.Layers[i].FS
		if p.HandlesFS() {
			handled |= profile.FSRefer
		}
		m.handled = append(m.handled, handled)
	}
	return m
}

// add puts an object under another, with the masks of its rules or nil.
func (m *matrix) add(up int32, masks []profile.Access) int32 {
	for l, a := range masks {
		if a &^= profile.QuietRule; a != 0 {
			m.rules = append(m.rules, ruleLayer{uint16(l + 1), uint16(a)})
		}
	}
	m.up = append(m.up, up)
	m.first = append(m.first, int32(len(m.rules)))
	return int32(len(m.up) - 1)
}

// walk gives what of a request no rule grants from the object up, by right.
func (m *matrix) walk(at int32, req profile.Access) (left layerMasks, allowed bool) {
	var asked uint16
	for l, handled := range m.handled {
		for rest := uint16(req & handled); rest != 0; rest &= rest - 1 {
			left[bits.TrailingZeros16(rest)%matrixRights] |= 1 << l
			asked |= rest & -rest
		}
	}
	if asked == 0 {
		return left, true
	}
	for ; at >= 0; at = m.up[at] {
		rule := m.rules[m.first[at]:m.first[at+1]]
		if len(rule) > 0 && unmask(rule, asked, &left) {
			return left, true
		}
	}
	return left, false
}

// unmask takes what a rule grants out of the masks and tells whether nothing is left.
func unmask(rule []ruleLayer, asked uint16, left *layerMasks) bool {
	for i := range rule {
		layer := uint16(1) << (rule[i].level - 1)
		access := rule[i].access
		empty := true
		for rest := asked; rest != 0; rest &= rest - 1 {
			right := bits.TrailingZeros16(rest) % matrixRights // no check of bounds
			if access&(1<<right) != 0 {
				left[right] &^= layer
			}
			empty = empty && left[right] == 0
		}
		if empty {
			return true
		}
	}
	return false
}

// layer turns the masks of all rights into what one layer has not granted.
func (left *layerMasks) layer(l int) (a profile.Access) {
	for right, layers := range left {
		if layers&(1<<l) != 0 {
			a |= 1 << right
		}
	}
	return a
}
