package profile

import "syscall"

// united holds rows united with all rows above them, so that one row answers
// for the whole way to the root.
type united struct {
	handled []Access // per layer, of kind FS
	masks   []Access // of row i they are masks[i*layers:], quiet bits too
	free    []Access // by row: the rights that no layer refuses there
	none    Access   // likewise where there is no row on the way
}

// newUnited makes room for a number of rows.
func newUnited(p *Profile, rows int) united {
	u := united{handled: p.handledFS(), none: ^QuietRule}
	u.masks = make([]Access, 0, rows*len(u.handled))
	u.free = make([]Access, 0, rows)
	for _, h := range u.handled {
		u.none &^= h
	}
	return u
}

// add unites a row with the next one above it, or -1 for none.
func (u *united) add(own []Access, up int32) (row int32) {
	row = int32(len(u.free))
	u.masks = append(u.masks, own...)
	masks, free := u.row(row), ^QuietRule
	if up >= 0 {
		for l, a := range u.row(up) {
			masks[l] |= a
		}
	}
	for l, h := range u.handled {
		free &= masks[l] | ^h
	}
	u.free = append(u.free, free)
	return row
}

func (u *united) row(row int32) []Access { return rowOf(u.masks, row, len(u.handled)) }

func rowOf(masks []Access, row int32, layers int) []Access {
	return masks[int(row)*layers : (int(row)+1)*layers]
}

// allowed is the whole verdict in one AND NOT, whatever the number of layers.
func (u *united) allowed(row int32, req Access) bool {
	free := u.none
	if row >= 0 {
		free = u.free[row]
	}
	return req&^QuietRule&^free == 0
}

// decide is allowed with who refuses what.
func (u *united) decide(p *Profile, row int32, req Access) (d Decision) {
	d.Unfulfilled = newMasks(len(u.handled))
	if d.Allowed = u.allowed(row, req); d.Allowed {
		return d
	}
	d.Errno = syscall.EACCES
	left := d.Unfulfilled.slice()
	req &^= QuietRule
	innermost := 0
	if row < 0 {
		for l, h := range u.handled[:len(left)] {
			left[l] = req & h
		}
		return d
	}
	granted := u.row(row)
	for l, h := range u.handled[:len(granted)] {
		a := req & h &^ granted[l]
		left[l] = a
		if a != 0 {
			innermost = l
		}
	}
	d.Quiet = granted[innermost]&QuietRule != 0 && left[innermost]&^p.Layers[innermost].QuietFS == 0
	return d
}

func (u *united) unfulfilled(row int32, req Access) Masks {
	m := startHandled(u.handled, req)
	if row >= 0 {
		clearGranted(m.slice(), u.row(row))
	}
	return m
}
