package differential_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// node is an inode. Rules are bound to it, whatever its names are.
type node struct {
	kind     kind
	children map[string]*node // of a directory
	program  bool             // a file that can be executed
	live     bool             // a socket somebody listens at
	stage    int              // the layers that one is under
	dead     bool             // a directory that was removed; a bind mount may still lead to it
	rules    []rule
	names    int
}

// mountKey is where something is mounted: on a directory as seen in a mount.
type mountKey struct {
	mount int
	on    *node
}

type mounted struct {
	mount int
	root  *node
}

// model is the tree as it should be, and the rules where they are now.
type model struct {
	dir      string // the tree, on disk
	root     *node
	mounts   map[mountKey]mounted
	made     []bool // by entry of the scenario: it could be made
	outer    []rule // on paths that are not in the tree
	layers   []profile.Layer
	ports    []portRule
	holds    map[string]*hold
	roots    []*node // of file systems
	top      string  // of the mount that dir is in
	whiteout kind    // what a whiteout counts as: file with erratum 4, or char
	mayMknod bool
	mounted  bool // the tree is in a mount below "/"
	changed  bool // rules are elsewhere since the last profile
}

func newModel(sc *scenario, at, top string) *model {
	m := &model{dir: at, top: top, holds: map[string]*hold{}, layers: sc.layers, ports: sc.ports, changed: true, root: &node{kind: dir, children: map[string]*node{}}, mounts: map[mountKey]mounted{}}
	m.roots = []*node{m.root}
	for i := range sc.tree {
		m.made = append(m.made, m.add(&sc.tree[i]))
	}
	for _, r := range sc.rules {
		at := m.look(r.path)
		switch {
		case strings.HasPrefix(r.path, "/"), r.path == "..":
			m.outer = append(m.outer, r)
		case at.node != nil && at.node.kind != symlink:
			at.node.rules = append(at.node.rules, r)
		}
	}
	return m
}

// add makes an entry; false when what it needs is not there, which happens in a
// scenario being shrunk.
func (m *model) add(e *entry) bool {
	if e.how != made {
		return m.addHow(e)
	}
	at, source := m.look(e.path), place{}
	if at.err != 0 || at.node != nil {
		return false
	}
	if e.source != "" {
		if source = m.look(e.source); source.node == nil || source.node.kind != dir && source.node.kind != file {
			return false
		}
		e.kind = source.node.kind
	}
	n := &node{kind: e.kind, program: e.kind == file, live: e.kind == sock, stage: e.stage}
	m.make(at, n)
	if e.mount {
		root := source.node
		if root == nil {
			root = &node{kind: dir, children: map[string]*node{}}
			m.roots = append(m.roots, root)
		}
		m.mounts[mountKey{at.mount, n}] = mounted{len(m.mounts) + 1, root}
	}
	return true
}

// place is what a path leads to.
type place struct {
	parent *node // nil for the tree itself
	name   string
	mount  int   // of the parent
	entry  *node // nil when nothing is there
	node   *node // the entry, or the root of what is mounted on it
	inside int   // the mount of node
	err    syscall.Errno
}

// mountPoint tells whether something is mounted on n, in whatever mount.
func (m *model) mountPoint(n *node) bool {
	for k := range m.mounts {
		if k.on == n {
			return true
		}
	}
	return false
}

// look walks a path of the scenario that is in the tree.
func (m *model) look(path string) place {
	if path == "." {
		return place{entry: m.root, node: m.root}
	}
	p := place{node: m.root}
	if hold, rest, ok := m.held(path); ok {
		if p.node, p.inside, path = hold.node, hold.mount, rest; rest == "" {
			return place{entry: p.node, node: p.node, mount: p.inside, inside: p.inside}
		}
	}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case p.node == nil || p.node.kind == symlink:
			return place{err: syscall.ENOENT}
		case p.node.kind != dir:
			return place{err: syscall.ENOTDIR}
		}
		p.parent, p.name, p.mount = p.node, name, p.inside
		p.entry = p.parent.children[name]
		p.node = p.entry
		if over, ok := m.mounts[mountKey{p.mount, p.entry}]; ok {
			p.node, p.inside = over.root, over.mount
		}
	}
	if p.parent.dead {
		p.err = syscall.ENOENT // found out only when the last name is looked up
	}
	return p
}

// path gives the path on disk.
func (m *model) path(path string) string {
	if hold, rest, ok := m.held(path); ok {
		return fmt.Sprintf("/proc/self/fd/%d/%s", hold.fd, rest)
	}
	switch {
	case strings.HasPrefix(path, "/"):
		return path
	case path == ".":
		return m.dir
	case path == "..":
		return m.dir[:strings.LastIndexByte(m.dir, '/')]
	}
	return m.dir + "/" + path
}

func (m *model) make(at place, n *node) {
	if n.kind == dir && n.children == nil {
		n.children = map[string]*node{}
	}
	at.parent.children[at.name] = n
	n.names++
	m.changed = m.changed || n.ruled() || len(m.mounts) > 0
	n.dead = false
}

func (m *model) remove(at place) {
	delete(at.parent.children, at.name)
	at.entry.names--
	m.changed = m.changed || at.entry.ruled() || len(m.mounts) > 0
	at.entry.dead = at.entry.kind == dir
}

// walk visits every name in the tree, in order.
func (m *model) walk(visit func(path string, mount int, n *node)) { m.walkFrom(".", 0, m.root, visit) }

func (m *model) walkFrom(path string, mount int, n *node, visit func(path string, mount int, n *node)) {
	var down func(path string, mount int, n *node)
	down = func(path string, mount int, n *node) {
		visit(path, mount, n)
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			at := mounted{mount, n.children[name]}
			if over, ok := m.mounts[mountKey{mount, at.root}]; ok {
				at = over
			}
			down(strings.TrimPrefix(path+"/"+name, "./"), at.mount, at.root)
		}
	}
	down(path, mount, n)
}

// profile gives the profile with every rule at all names its inode has now;
// with those that a disconnected directory amounts to, if so wanted, which are
// not there on disk.
func (m *model) profile(port func(string) uint16, amounts bool) (*profile.Profile, error) {
	b := profile.NewBuilder(m.layers)
	for _, r := range m.outer {
		b.AddPath(r.layer, m.path(r.path), r.access, false, profile.Fail)
	}
	m.walk(func(path string, _ int, n *node) {
		for _, r := range n.rules {
			b.AddPath(r.layer, m.path(path), r.access, false, profile.Fail)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(m.holds)) {
		if !amounts {
			break
		}
		m.disconnected(m.holds[name], func(path string, rules []rule) {
			for _, r := range rules {
				b.AddPath(r.layer, path, r.access, false, profile.Fail)
			}
		})
	}
	for _, r := range m.ports {
		b.AddPorts(r.layer, port(r.port), port(r.port), r.access, false)
	}
	m.changed = false
	return b.Build()
}

// fileType is what the engine is told.
func (m *model) fileType(k kind) profile.FileType {
	switch k {
	case file:
		return profile.RegularFile
	case dir:
		return profile.Directory
	case symlink:
		return profile.Symlink
	case fifo:
		return profile.Fifo
	case sock:
		return profile.Socket
	case whiteout:
		return m.fileType(m.whiteout)
	case char:
		return profile.CharDevice
	case block:
		return profile.BlockDevice
	}
	return profile.NoFile
}

// question is the engine's form of a step.
func (m *model) question(s *step, port func(string) uint16) (profile.Operation, profile.Facts) {
	op := s.op
	f := profile.Facts{Shared: sharedWith(s.shared), SameProcess: s.shared == ownProcess, Bound: s.bind}
	op.Make = m.fileType(s.kind)
	op.Port = port(s.port)
	if op.Path != "" {
		f.Type = m.typeOf(op.Path)
		if n := m.look(op.Path).node; op.Kind == profile.OpConnectUnix && n != nil {
			f.Shared = n.stage
		}
		op.Path = m.real(op.Path)
	}
	if op.NewPath != "" {
		f.NewType = m.typeOf(op.NewPath)
		f.Mounted = m.mounted || m.look(op.NewPath).mount > 0
		op.NewPath = m.real(op.NewPath)
	}
	return op, f
}

func (m *model) typeOf(path string) profile.FileType {
	switch {
	case strings.HasPrefix(path, "/dev/"):
		return profile.CharDevice
	case strings.HasPrefix(path, "/"):
		return profile.Directory
	}
	if n := m.look(path).node; n != nil {
		return m.fileType(n.kind)
	}
	return profile.NoFile
}

// ruled tells whether a rule is on n or beneath it.
func (n *node) ruled() bool {
	if len(n.rules) > 0 {
		return true
	}
	for _, c := range n.children {
		if c.ruled() {
			return true
		}
	}
	return false
}

// apply makes the tree what a step that succeeded made of it.
func (m *model) apply(s *step) {
	at := m.look(s.op.Path)
	switch s.op.Kind {
	case profile.OpOpen:
		switch {
		case s.op.Open&profile.OpenPath != 0 || strings.HasPrefix(s.op.Path, "/"):
		case at.node == nil:
			m.make(at, &node{kind: file})
		case s.op.Open&profile.OpenTruncate != 0:
			at.node.program = false
		}
	case profile.OpTruncate:
		at.node.program = false
	case profile.OpMkdir:
		m.make(at, &node{kind: dir})
	case profile.OpMknod:
		m.make(at, &node{kind: s.kind})
	case profile.OpSymlink:
		m.make(at, &node{kind: symlink})
	case profile.OpUnlink, profile.OpRmdir:
		m.remove(at)
	case profile.OpLink:
		m.make(m.look(s.op.NewPath), at.node)
	case profile.OpRename:
		if to := m.look(s.op.NewPath); to.node != at.node {
			if to.node != nil {
				m.remove(to)
			}
			m.remove(at)
			m.make(to, at.node)
		}
	case profile.OpExchange:
		to := m.look(s.op.NewPath)
		m.make(to, at.node)
		m.make(at, to.node)
		at.node.names--
		to.node.names--
	}
}
