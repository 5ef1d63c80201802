package profile

// spot is an object that is asked about: the one a path names, or a place of a
// tree.
type spot struct {
	path  string
	place Place // the object, or the nearest one above it that is in the tree
	self  Place // the object itself, [Nowhere] when it is not in the tree
	ok    bool  // it can be asked about
}

// spots are the objects of an operation.
type spots struct {
	object, parent, newObject, newParent spot
}

// pathSpots are the objects that two paths name, and their parents.
func pathSpots(path, newPath string) (at spots) {
	at.object, at.parent = pathSpot(path)
	at.newObject, at.newParent = pathSpot(newPath)
	return at
}

func pathSpot(path string) (object, above spot) {
	object = spot{path: path, ok: isPath(path)}
	if object.ok && path != "/" {
		above = spot{path: parent(path), ok: true}
	}
	return object, above
}

func isPath(path string) bool { return len(path) <= MaxPath && isClean(path) }

// walker is what the evaluators have in common. They get spots that are ok.
type walker interface {
	// unfulfilled gives per layer what of the request it handles and no rule on
	// the way from the object to the root grants, with [QuietRule] if none was
	// quiet.
	unfulfilled(at spot, req Access) Masks
	// belowRoot is unfulfilled without the rules on the root.
	belowRoot(at spot, req Access) Masks
	// own gives what the object's own rules grant, nil when it has none.
	own(at spot) []Access
}
