package smack

import (
	"bytes"
	"hash/maphash"
)

// interner numbers labels in order of appearance. Looking up a label that is
// known allocates nothing. The hash is seeded, so that labels chosen to collide
// do not; nothing that leaves the package depends on it.
type interner struct {
	seed  maphash.Seed
	slots []uint16 // number of a label plus 1, 0 where free; a power of two of them
	text  []byte
	end   []uint32
}

// What the first label makes room for: a small policy.
const (
	minSlots  = 256
	firstText = 2048
)

func (in *interner) len() int { return len(in.end) }

func (in *interner) label(i int) []byte {
	if i == 0 {
		return in.text[:in.end[0]]
	}
	return in.text[in.end[i-1]:in.end[i]]
}

// id gives the number of a label, a new one if need be; false when there are
// [MaxLabels] others.
func (in *interner) id(label []byte) (uint16, bool) {
	if len(in.slots) == 0 {
		in.seed = maphash.MakeSeed()
		in.slots = make([]uint16, minSlots)
		in.text, in.end = make([]byte, 0, firstText), make([]uint32, 0, minSlots/2)
	}
	mask := uint64(len(in.slots) - 1)
	at := maphash.Bytes(in.seed, label) & mask
	for ; in.slots[at] != 0; at = (at + 1) & mask {
		if id := in.slots[at] - 1; bytes.Equal(in.label(int(id)), label) {
			return id, true
		}
	}
	n := in.len()
	if n == MaxLabels {
		return 0, false
	}
	in.text = append(in.text, label...)
	in.end = append(in.end, uint32(len(in.text)))
	in.slots[at] = uint16(n + 1)
	if 2*(n+1) > len(in.slots) {
		in.grow()
	}
	return uint16(n), true
}

func (in *interner) grow() {
	in.slots = make([]uint16, 2*len(in.slots))
	mask := uint64(len(in.slots) - 1)
	for i := range in.end {
		at := maphash.Bytes(in.seed, in.label(i)) & mask
		for in.slots[at] != 0 {
			at = (at + 1) & mask
		}
		in.slots[at] = uint16(i + 1)
	}
}
