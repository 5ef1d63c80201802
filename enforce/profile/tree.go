package profile

import "fmt"

// Place is an object of a [Tree], or a row of an [Index].
type Place int32

// Nowhere is no place: what the root of a tree stands under.
const Nowhere Place = 0

// Tree is a part of a file tree with the rules that are bound to its objects.
// A kernel's rule holds for an inode and not for a path, so this is the form
// for a host that can be looked at: an object gets all rules whose paths lead
// to it (by a hard link, a bind mount, a symbolic link), and stands under the
// one the kernel walks to next:
//
//   - under its parent directory;
//   - the root of a mount under the parent of the mount point, since the kernel
//     skips the directory that a mount hides (follow_up);
//   - the root of the file system of a disconnected directory, moved out of the
//     bind mount it is reached by, under the root of that mount (erratum 3, see
//     [Errata]; kernels without it end there, so there it stands under [Nowhere]).
//
// An object is located once and can be decided on many times, at a cost that
// depends on neither its depth nor the length of its path. Objects without rules
// may be left out, with what they hold standing under the next one. Decisions
// are safe for concurrent use, but not while objects are added.
type Tree struct {
	united united // by rule: united with those of all objects above
	p      *Profile
	nodes  []node   // of place i+1
	rules  []Access // by rule: what an object's own rules grant in each layer
}

type node struct {
	up  Place
	own int32 // its rule, -1 when it has none
	met int32 // its own rule or the next above, -1 when there is none
}

// NewTree starts a tree under the layers of a profile. The rows of paths are
// not looked at: whoever sees the host says where they are.
func NewTree(p *Profile) *Tree { return &Tree{p: p, united: newUnited(p, 0)} }

// Add puts an object of a type under another one, with all the rules that are
// bound to it, each with a mask per layer (as [PathRow].Access is). What is
// under [Nowhere] is a root, where walks end. Rights that a kernel takes on
// directories alone are left out of the rules of other objects.
func (t *Tree) Add(up Place, ft FileType, rules ...[]Access) (Place, error) {
	if up < Nowhere || int(up) > len(t.nodes) {
		return Nowhere, fmt.Errorf("%w: no place %d", ErrInvalid, up)
	}
	n := node{up: up, own: -1, met: -1}
	if up != Nowhere {
		n.met = t.node(up).met
	}
	layers := len(t.p.Layers)
	for _, masks := range rules {
		if len(masks) != layers {
			return Nowhere, fmt.Errorf("%w: %d masks for %d layers", ErrInvalid, len(masks), layers)
		}
	}
	if len(rules) > 0 {
		t.rules = append(t.rules, make([]Access, layers)...)
		own := t.rules[len(t.rules)-layers:]
		unite(own, ft, rules)
		n.own = t.united.add(own, n.met)
		n.met = n.own
	}
	t.nodes = append(t.nodes, n)
	return Place(len(t.nodes)), nil
}

// unite gives what all rules of an object grant together.
func unite(own []Access, ft FileType, rules [][]Access) {
	keep := FileRights(MaxABI) | QuietRule
	if ft == Directory {
		keep = ^Access(0)
	}
	for _, masks := range rules {
		for l, a := range masks {
			own[l] |= a & keep
		}
	}
}

// Len is the number of objects.
func (t *Tree) Len() int { return len(t.nodes) }

// Up gives what an object stands under.
func (t *Tree) Up(at Place) Place {
	if !t.has(at) {
		return Nowhere
	}
	return t.node(at).up
}

// DecideAt tells whether the rights of kind FS in req are all granted on an
// object, in one pass over the layers. Errno is EINVAL for no place.
func (t *Tree) DecideAt(at Place, req Access) Decision {
	if !t.has(at) {
		return badQuestion(len(t.p.Layers))
	}
	return t.united.decide(t.p, t.node(at).met, req)
}

// AllowedAt is DecideAt without who refuses what, and takes as long for one
// layer as for many.
func (t *Tree) AllowedAt(at Place, req Access) bool {
	return t.has(at) && t.united.allowed(t.node(at).met, req)
}

// WalkAt answers as DecideAt, going from object to object as the kernel does.
func (t *Tree) WalkAt(at Place, req Access) Decision {
	if !t.has(at) {
		return badQuestion(len(t.p.Layers))
	}
	m := startHandled(t.united.handled, req)
	s := m.slice()
	for ; at != Nowhere; at = t.node(at).up {
		if row := t.node(at).own; row >= 0 && !clearGranted(s, t.ownOf(row)) {
			break
		}
	}
	return t.p.decide(FS, m)
}

// ExplainAt is WalkAt that also shows every object with rules that is met, with
// the bits it was the first to clear in each layer. cleared is reused for the
// next one.
func (t *Tree) ExplainAt(at Place, req Access, visit func(at Place, cleared []Access)) Decision {
	if !t.has(at) {
		return badQuestion(len(t.p.Layers))
	}
	m := startHandled(t.united.handled, req)
	cleared := make([]Access, m.Len())
	for more := true; more && at != Nowhere; at = t.node(at).up {
		if row := t.node(at).own; row >= 0 {
			more = clearAndShow(m.slice(), t.ownOf(row), cleared)
			visit(at, cleared)
		}
	}
	return t.p.decide(FS, m)
}

// Where says which objects of a tree an operation is about. What an operation
// has no use for may be [Nowhere].
type Where struct {
	// What Path and NewPath name. Nowhere for an object without rules of its
	// own, or for none: then its parent is asked for it.
	Object, NewObject Place
	// The directories they are in.
	Parent, NewParent Place
}

// Decide answers as [Profile.Decide], on the objects of the tree. The paths of
// the operation are names for the answer and nothing else.
func (t *Tree) Decide(op Operation, f Facts, at Where) Answer {
	var s spots
	s.object, s.parent = t.spot(op.Path, at.Object, at.Parent)
	s.newObject, s.newParent = t.spot(op.NewPath, at.NewObject, at.NewParent)
	return decideOperation(t.p, t, &op, &f, s)
}

func (t *Tree) spot(path string, self, above Place) (object, holder spot) {
	object = spot{path: path, place: self, self: self, ok: t.has(self)}
	holder = spot{place: above, self: above, ok: t.has(above)}
	if self == Nowhere {
		object.place, object.ok = above, holder.ok
	}
	if path != "/" && isPath(path) {
		holder.path = parent(path)
	}
	return object, holder
}

func (t *Tree) has(at Place) bool         { return at > Nowhere && int(at) <= len(t.nodes) }
func (t *Tree) node(at Place) *node       { return &t.nodes[at-1] }
func (t *Tree) ownOf(rule int32) []Access { return rowOf(t.rules, rule, len(t.united.handled)) }

func (t *Tree) unfulfilled(at spot, req Access) Masks {
	return t.united.unfulfilled(t.node(at.place).met, req)
}

func (t *Tree) belowRoot(at spot, req Access) Masks {
	m := startHandled(t.united.handled, req)
	for p := at.place; t.node(p).up != Nowhere; p = t.node(p).up {
		if row := t.node(p).own; row >= 0 {
			clearGranted(m.slice(), t.ownOf(row))
		}
	}
	return m
}

func (t *Tree) own(at spot) []Access {
	if at.self == Nowhere || t.node(at.self).own < 0 {
		return nil
	}
	return t.ownOf(t.node(at.self).own)
}
