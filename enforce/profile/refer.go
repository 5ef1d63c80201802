package profile

import "syscall"

// FileType is the type of an object that is moved; NoFile where nothing is.
type FileType uint8

// The types of files, as far as the MAKE_* rights tell them apart.
const (
	NoFile FileType = iota
	RegularFile
	Directory
	Symlink
	CharDevice // a whiteout is a RegularFile to kernels with erratum 4
	BlockDevice
	Fifo
	Socket
)

// makeRight is the kernel's get_mode_access.
func (t FileType) makeRight() Access {
	switch t {
	case RegularFile:
		return FSMakeReg
	case Directory:
		return FSMakeDir
	case Symlink:
		return FSMakeSym
	case CharDevice:
		return FSMakeChar
	case BlockDevice:
		return FSMakeBlock
	case Fifo:
		return FSMakeFifo
	case Socket:
		return FSMakeSock
	}
	return 0
}

// removeRight is the kernel's maybe_remove.
func (t FileType) removeRight() Access {
	switch t {
	case NoFile:
		return 0
	case Directory:
		return FSRemoveDir
	}
	return FSRemoveFile
}

// MoveOp is the operation of a [Move].
type MoveOp uint8

// The operations: rename(2), renameat2(2) with RENAME_EXCHANGE, link(2).
const (
	Rename MoveOp = iota
	Exchange
	Link
)

// Move is a rename or link of the object at Old to the name New. Both are
// paths as for DecidePath; the last component is not followed.
type Move struct {
	Op       MoveOp
	Old, New string
	OldType  FileType
	NewType  FileType // what New names before, NoFile when it is free

	// Mounted: both are in a mount below "/", not in that of "/" itself. For
	// those the kernel looks at a rule on "/" last, when it no longer compares
	// what the object may gain.
	Mounted bool
}

// MoveDecision is the answer to a Move.
type MoveDecision struct {
	Allowed bool
	// Errno the kernel refuses with: EACCES for a missing right to make or
	// remove, which goes first, EXDEV for a missing refer or a gain of rights.
	// ENOENT when there is nothing to move or exchange; EINVAL for no question.
	Errno syscall.Errno
	// Per layer the rights missing on the parents of Old and of New. Within
	// one directory all are asked of NewParent.
	OldParent, NewParent Masks
	// Per layer the rights that the object at Old would gain at New, and with
	// Exchange the one at New at Old: EXDEV, if refer is there.
	Gain, GainBack Masks
}

// DecideMove tells whether a rename or link is allowed: the kernel's
// current_check_refer_path of ABI 2 and up (with ABI 1 every move between
// directories is EXDEV). Within one directory only the
// rights to make and remove are asked. Between directories both parents need
// refer in every layer, handled or not, and in every layer the object must keep
// all restrictions it has, its own row counted. In a mount below "/" the row of
// "/" does not count for that (see Move.Mounted), unless with it nothing at all
// is refused on either parent.
func (p *Profile) DecideMove(mv Move) MoveDecision {
	return decideMove(p, p, &mv, pathSpots(mv.Old, mv.New))
}

func decideMove(p *Profile, w walker, mv *Move, at spots) MoveDecision {
	n := len(p.Layers)
	d := MoveDecision{OldParent: newMasks(n), NewParent: newMasks(n), Gain: newMasks(n), GainBack: newMasks(n)}
	switch {
	case !at.parent.ok || !at.newParent.ok || mv.Op > Link:
		d.Errno = syscall.EINVAL
		return d
	case mv.OldType == NoFile || mv.Op == Exchange && mv.NewType == NoFile:
		d.Errno = syscall.ENOENT
		return d
	case !p.HandlesFS():
		d.Allowed = true
		return d
	}
	oldReq, newReq := mv.requests()
	from, to := at.parent, at.newParent
	if from == to {
		d.NewParent = onlyRights(w.unfulfilled(to, oldReq|newReq), ^QuietRule)
		d.finish()
		return d
	}
	const all = ^QuietRule // of which the walk takes what is handled
	old, new := onlyRights(w.unfulfilled(from, all), all), onlyRights(w.unfulfilled(to, all), all)
	compareOld, compareNew := &old, &new
	if mv.Mounted && union(&old)|union(&new) != 0 {
		oldBelow, newBelow := onlyRights(w.belowRoot(from, all), all), onlyRights(w.belowRoot(to, all), all)
		compareOld, compareNew = &oldBelow, &newBelow
	}
	d.Gain = gain(compareOld, compareNew, w.own(at.object), mv.OldType)
	if mv.Op == Exchange {
		d.GainBack = gain(compareNew, compareOld, w.own(at.newObject), mv.NewType)
	}
	d.OldParent = onlyRights(old, oldReq|FSRefer)
	d.NewParent = onlyRights(new, newReq|FSRefer)
	d.finish()
	return d
}

// requests gives the rights asked of the parents, without refer.
func (mv *Move) requests() (old, new Access) {
	new = mv.OldType.makeRight()
	if mv.Op == Exchange {
		old = mv.NewType.makeRight()
	}
	if mv.Op != Link {
		old |= mv.OldType.removeRight()
		new |= mv.NewType.removeRight()
	}
	return old, new
}

// gain gives per layer what an object would be allowed beneath the parent with
// the restrictions dst that it is refused beneath the one with src: the
// kernel's no_more_access. What the object's own rules grant goes with it.
func gain(src, dst *Masks, own []Access, t FileType) Masks {
	relevant := ^QuietRule
	if t != Directory {
		relevant = FileRights(MaxABI)
	}
	g := newMasks(src.Len())
	for l, refused := range src.slice() {
		if own != nil {
			refused &^= own[l]
		}
		g.slice()[l] = refused &^ dst.slice()[l] & relevant
	}
	return g
}

// onlyRights is m with each mask cut down to the rights in keep.
func onlyRights(m Masks, keep Access) Masks {
	s := m.slice()
	for l := range s {
		s[l] &= keep
	}
	return m
}

// finish finds the errno: EACCES before EXDEV, as the kernel does it.
func (d *MoveDecision) finish() {
	missing := union(&d.OldParent) | union(&d.NewParent)
	switch {
	case missing&^FSRefer != 0:
		d.Errno = syscall.EACCES
	case missing != 0 || union(&d.Gain)|union(&d.GainBack) != 0:
		d.Errno = syscall.EXDEV
	default:
		d.Allowed = true
	}
}

func union(m *Masks) (a Access) {
	for _, x := range m.slice() {
		a |= x
	}
	return a
}
