package smack

import (
	"slices"
	"sort"
)

// table is what the compiled forms share: the labels in rising order of bytes,
// and the pairs (subject, object) that have a row, in order of subject and then
// object. It is never changed once made. A pair takes two bytes, a label its
// text and eight.
type table struct {
	text   string   // of all labels, one after the other
	end    []uint32 // for each label, where its text ends
	first  []uint32 // for each label, its first row as a subject; one more: the number of rows
	object []uint16 // for each row, the label of the object
}

func (t *table) labels() int { return len(t.end) }

func (t *table) label(i int) string {
	if i == 0 {
		return t.text[:t.end[0]]
	}
	return t.text[t.end[i-1]:t.end[i]]
}

// find gives the number of a label.
func (t *table) find(label string) (int, bool) {
	return sort.Find(len(t.end), func(i int) int {
		switch l := t.label(i); {
		case label < l:
			return -1
		case label > l:
			return 1
		}
		return 0
	})
}

// row gives the number of a pair's row.
func (t *table) row(subject, object string) (int, bool) {
	s, ok := t.find(subject)
	if !ok {
		return 0, false
	}
	o, ok := t.find(object)
	if !ok {
		return 0, false
	}
	lo, hi := t.first[s], t.first[s+1]
	i, ok := slices.BinarySearch(t.object[lo:hi], uint16(o))
	return int(lo) + i, ok
}
