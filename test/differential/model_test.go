package differential_test

import (
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
	fs       int              // the file system it is in; a mount point is the root of its own
	mounted  bool
	rules    []rule
}

// model is the tree as it should be, and the rules where they are now.
type model struct {
	dir      string // the tree, on disk
	root     *node
	outer    []rule // on paths that are not in the tree
	layers   []profile.Layer
	ports    []portRule
	whiteout kind // what a whiteout counts as: file with erratum 4, or char
	mayMknod bool
	mounted  bool // the tree is in a mount below "/"
	changed  bool // rules are elsewhere since the last profile
}

func newModel(sc *scenario, at string) *model {
	m := &model{dir: at, layers: sc.layers, ports: sc.ports, changed: true, root: &node{kind: dir, children: map[string]*node{}}}
	mounts := 0
	for i := range sc.tree {
		e := &sc.tree[i]
		at := m.look(e.path)
		if at.err != 0 || at.node != nil {
			continue // a scenario being shrunk may have lost what is above
		}
		n := &node{kind: e.kind, program: e.kind == file, live: e.kind == sock, stage: e.stage, fs: at.parent.fs, mounted: e.mount}
		if e.mount {
			mounts++
			n.fs = mounts
		}
		m.make(at, n)
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

// place is what a path leads to.
type place struct {
	parent *node // nil for the tree itself
	name   string
	node   *node // nil when nothing is there
	err    syscall.Errno
	way    []*node // from the tree to the parent
}

// look walks a path of the scenario that is in the tree.
func (m *model) look(path string) place {
	if path == "." {
		return place{node: m.root}
	}
	p := place{node: m.root}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case p.node == nil || p.node.kind == symlink:
			return place{err: syscall.ENOENT}
		case p.node.kind != dir:
			return place{err: syscall.ENOTDIR}
		}
		p.parent, p.name = p.node, name
		p.way = append(p.way, p.parent)
		p.node = p.parent.children[name]
	}
	return p
}

// path gives the path on disk.
func (m *model) path(path string) string {
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
	m.changed = m.changed || n.ruled()
}

func (m *model) remove(at place) {
	delete(at.parent.children, at.name)
	m.changed = m.changed || at.node.ruled()
}

// walk visits every name in the tree, in order.
func (m *model) walk(visit func(path string, n *node)) {
	var down func(path string, n *node)
	down = func(path string, n *node) {
		visit(path, n)
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			down(strings.TrimPrefix(path+"/"+name, "./"), n.children[name])
		}
	}
	down(".", m.root)
}

// profile gives the profile with every rule at all names its inode has now.
func (m *model) profile(port func(string) uint16) (*profile.Profile, error) {
	b := profile.NewBuilder(m.layers)
	for _, r := range m.outer {
		b.AddPath(r.layer, m.path(r.path), r.access, false, profile.Fail)
	}
	m.walk(func(path string, n *node) {
		for _, r := range n.rules {
			b.AddPath(r.layer, m.path(path), r.access, false, profile.Fail)
		}
	})
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
	f := profile.Facts{Shared: s.shared, Bound: s.bind}
	op.Make = m.fileType(s.kind)
	op.Port = port(s.port)
	if op.Path != "" {
		f.Type = m.typeOf(op.Path)
		if n := m.look(op.Path).node; op.Kind == profile.OpConnectUnix && n != nil {
			f.Shared = n.stage
		}
		op.Path = m.path(op.Path)
	}
	if op.NewPath != "" {
		f.NewType = m.typeOf(op.NewPath)
		to := m.look(op.NewPath).parent
		f.Mounted = m.mounted || to != nil && to.fs > 0
		op.NewPath = m.path(op.NewPath)
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
			m.make(at, &node{kind: file, fs: at.parent.fs})
		case s.op.Open&profile.OpenTruncate != 0:
			at.node.program = false
		}
	case profile.OpTruncate:
		at.node.program = false
	case profile.OpMkdir:
		m.make(at, &node{kind: dir, fs: at.parent.fs})
	case profile.OpMknod:
		m.make(at, &node{kind: s.kind, fs: at.parent.fs})
	case profile.OpSymlink:
		m.make(at, &node{kind: symlink, fs: at.parent.fs})
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
	}
}
