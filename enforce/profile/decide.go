package profile

import "syscall"

// Masks is one mask per layer. It is a value that holds the layers a kernel
// can stack without any allocation; only profiles of more layers, which are
// flattened before a kernel sees them, need a slice.
type Masks struct {
	n    int
	few  [MaxKernelLayers]Access
	many []Access
}

func newMasks(n int) Masks {
	m := Masks{n: n}
	if n > len(m.few) {
		m.many = make([]Access, n)
	}
	return m
}

// Len is the number of layers.
func (m Masks) Len() int { return m.n }

// At gives the mask of layer i.
func (m Masks) At(i int) Access { return m.slice()[i] }

// Slice gives a new slice of the masks of all layers.
func (m Masks) Slice() []Access { return append([]Access(nil), m.slice()...) }

// Empty tells whether all masks are 0.
func (m Masks) Empty() bool { return allZero(m.slice()) }

// Layers gives the indices of the layers whose mask is not 0.
func (m Masks) Layers() []int {
	var layers []int
	for i, a := range m.slice() {
		if a != 0 {
			layers = append(layers, i)
		}
	}
	return layers
}

// slice gives the masks themselves, to be changed.
func (m *Masks) slice() []Access {
	if m.many != nil {
		return m.many
	}
	return m.few[:m.n]
}

// Decision is the answer to one request.
type Decision struct {
	Allowed bool
	// Errno the kernel refuses with, 0 when allowed. EINVAL when the question
	// was no question: a path that is not absolute and clean.
	Errno syscall.Errno
	// Unfulfilled holds per layer the requested rights it handles and no row
	// grants. The layers with any are those that deny.
	Unfulfilled Masks
	// Quiet tells that the kernel does not log this denial (ABI 10): all that
	// the innermost denying layer denies is in its quiet mask, and it had a
	// quiet rule on the way. Layer.Log may keep it out of the log as well.
	Quiet bool
}

// DecidePath tells whether the rights of kind FS in req are all granted on a
// path: the kernel's is_access_to_paths_allowed. unfulfilled[l] starts as what
// layer l handles of the request; from the path up to "/" every row met clears
// its bits; allowed when all are 0.
//
// The walk is along the text of the path. It is the kernel's when the path is
// real, that is, holds no symbolic link. Rights that make no sense on a file
// are for the caller to leave out (see [FileRights]), and so are requests that
// Landlock has no say in (stat, chmod, open with O_PATH).
func (p *Profile) DecidePath(path string, req Access) Decision {
	if !isPath(path) {
		return badQuestion(len(p.Layers))
	}
	return p.decide(FS, p.unfulfilled(spot{path: path}, req))
}

// DecidePort tells whether the rights of kind Net in req are granted on a
// port: the local one for bind, the remote one for connect and send. Port 0
// (bind to any free port) is a port like others.
func (p *Profile) DecidePort(port uint16, req Access) Decision {
	m := p.start(Net, req)
	if i := p.findPort(port); i >= 0 {
		clearGranted(m.slice(), p.Ports[i].Access)
	}
	return p.decide(Net, m)
}

// DecideScope tells whether a process may reach another (signal it, connect to
// its abstract unix socket) past the scopes in req. shared is how many of this
// profile's layers, from the oldest, the other process is under too: 0 for one
// outside of the sandbox, len(Layers) for one inside. Layers that both are
// under let it through (the kernel's domain_is_scoped).
func (p *Profile) DecideScope(req Access, shared int) Decision {
	m := p.start(Scope, req)
	s := m.slice()
	for l := range s {
		s[l] &^= QuietRule // scopes have no rules: the mask alone decides
		if l < shared {
			s[l] = 0
		}
	}
	d := p.decide(Scope, m)
	if !d.Allowed {
		d.Errno = syscall.EPERM
	}
	return d
}

// unfulfilled is the walk. [QuietRule] stays in a mask until a quiet rule is met,
// so that a row clears it like any right it grants.
func (p *Profile) unfulfilled(at spot, req Access) Masks {
	m := p.start(FS, req)
	s := m.slice()
	for row, rest, n := p.above(at.path, len(p.Paths)); row >= 0; row, rest, n = p.above(rest, n) {
		if !clearGranted(s, p.Paths[row].Access) || rest == "" {
			break
		}
	}
	return m
}

func (p *Profile) belowRoot(at spot, req Access) Masks {
	m := p.start(FS, req)
	for row, rest, n := p.above(at.path, len(p.Paths)); row >= 0 && p.Paths[row].Path != "/"; row, rest, n = p.above(rest, n) {
		clearGranted(m.slice(), p.Paths[row].Access)
	}
	return m
}

func (p *Profile) own(at spot) []Access {
	if row, _ := p.findPath(at.path, len(p.Paths)); row >= 0 {
		return p.Paths[row].Access
	}
	return nil
}

// start is the kernel's landlock_init_layer_masks.
func (p *Profile) start(kind Kind, req Access) Masks {
	m := newMasks(len(p.Layers))
	s := m.slice()
	req &^= QuietRule
	anyFS := kind == FS && p.HandlesFS()
	for l := range s {
		s[l] = req&p.handled(l, kind, anyFS) | QuietRule
	}
	return m
}

// startHandled is start for kind FS, with handledFS at hand.
func startHandled(handled []Access, req Access) Masks {
	m := newMasks(len(handled))
	s := m.slice()
	req &^= QuietRule
	for l, h := range handled {
		s[l] = req&h | QuietRule
	}
	return m
}

// above finds the deepest row on the way from path to "/", looking only at the
// first n rows, which must include all that could be met. It returns the row
// or -1, what is left of the way above it ("" at the end), and the n to go on
// with: rows above sort before the row found.
func (p *Profile) above(path string, n int) (row int, rest string, below int) {
	for path != "" {
		row, below := p.findPath(path, n)
		path = parent(path)
		if row >= 0 {
			return row, path, below
		}
		n = below
	}
	return -1, "", 0
}

// parent cuts the last component off a clean path; "/" has the parent "".
func parent(path string) string {
	if path == "/" {
		return ""
	}
	i := len(path) - 1
	for path[i] != '/' {
		i--
	}
	return path[:max(i, 1)]
}

// clearGranted is the kernel's landlock_unmask_layers. It tells whether any
// right is left.
func clearGranted(unfulfilled, granted []Access) bool {
	var left Access
	unfulfilled = unfulfilled[:len(granted)]
	for l, g := range granted {
		a := unfulfilled[l] &^ g
		unfulfilled[l] = a
		left |= a
	}
	return left&^QuietRule != 0
}

// decide ends a walk: splits the quiet bits off and looks at what is left.
func (p *Profile) decide(kind Kind, m Masks) (d Decision) {
	d.Unfulfilled = m
	left := d.Unfulfilled.slice()
	innermost := -1
	for l, a := range left {
		if a&^QuietRule != 0 {
			innermost = l
		}
	}
	if innermost >= 0 {
		a := left[innermost]
		d.Errno = syscall.EACCES
		d.Quiet = a&QuietRule == 0 && a&^p.Layers[innermost].quiet(kind) == 0
	}
	d.Allowed = innermost < 0
	for l := range left {
		left[l] &^= QuietRule
	}
	return d
}

func badQuestion(layers int) Decision {
	return Decision{Errno: syscall.EINVAL, Unfulfilled: newMasks(layers)}
}
