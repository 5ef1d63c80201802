package profile

import "hash/maphash"

// pathTable finds a row by its path: open addressing with eight bytes a slot and
// at most half of them taken, no pointers in it. It is a third of what a map of
// strings takes, and stays linear to build where that no longer fits a cache.
type pathTable struct {
	rows  []PathRow
	seed  maphash.Seed
	slots []pathSlot // a power of two
}

type pathSlot struct {
	hash uint32 // the upper half; the lower half gives the slot
	row  int32  // from 1, 0 for a free slot
}

func newPathTable(rows []PathRow) pathTable {
	size := 4
	for size < 2*len(rows) {
		size *= 2
	}
	t := pathTable{rows: rows, seed: maphash.MakeSeed(), slots: make([]pathSlot, size)}
	mask := uint64(size - 1)
	for row := range rows {
		h := maphash.String(t.seed, rows[row].Path)
		i := h & mask
		for t.slots[i].row != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = pathSlot{uint32(h >> 32), int32(row) + 1}
	}
	return t
}

// find gives the row of exactly this path, or -1.
func (t *pathTable) find(path string) int32 {
	h := maphash.String(t.seed, path)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch s := t.slots[i]; {
		case s.row == 0:
			return -1
		case s.hash == uint32(h>>32) && t.rows[s.row-1].Path == path:
			return s.row - 1
		}
	}
}
