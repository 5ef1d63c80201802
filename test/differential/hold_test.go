package differential_test

import (
	"path/filepath"
	"slices"
	"strings"
)

// hold is a descriptor of a directory.
type hold struct {
	fd    int
	node  *node
	mount int // it was opened in
}

// held takes a path apart that begins at a descriptor: @NAME/REST.
func (m *model) held(path string) (h *hold, rest string, ok bool) {
	name, rest, _ := strings.Cut(path, "/")
	if h = m.holds[strings.TrimPrefix(name, "@")]; h == nil || !strings.HasPrefix(name, "@") {
		return nil, "", false
	}
	return h, rest, true
}

// addHow takes up an entry that is not made.
func (m *model) addHow(e *entry) bool {
	from, to := m.look(e.source), m.look(e.path)
	if from.err != 0 || from.node == nil || e.how != held && (to.err != 0 || to.node != nil || from.parent == nil || from.entry != from.node) {
		return false
	}
	switch e.how {
	case linked:
		if from.node.kind == dir || from.mount != to.mount {
			return false
		}
		m.make(to, from.node)
	case held:
		if from.node.kind != dir || m.holds[e.path] != nil {
			return false
		}
		m.holds[e.path] = &hold{node: from.node, mount: from.inside}
	case moved:
		if from.mount != to.mount || slices.Contains(m.ancestors(to.parent), from.node) || from.node.kind == dir && m.mountPoint(from.node) {
			return false
		}
		m.remove(from)
		m.make(to, from.node)
	}
	return true
}

// chain gives the names from the root of n's file system to n, and that root;
// nil for what was removed.
func (m *model) chain(n *node) (root *node, names []string, nodes []*node) {
	var find func(at *node) bool
	find = func(at *node) bool {
		nodes = append(nodes, at)
		if at == n {
			return true
		}
		for name, c := range at.children {
			if c.kind == dir {
				names = append(names, name)
				if find(c) {
					return true
				}
				names = names[:len(names)-1]
			}
		}
		nodes = nodes[:len(nodes)-1]
		return false
	}
	for _, root := range m.roots {
		if find(root) {
			return root, names, nodes
		}
	}
	return nil, nil, nil
}

// ancestors are the directories of n's file system that n is beneath, and n.
func (m *model) ancestors(n *node) []*node {
	if _, _, nodes := m.chain(n); nodes != nil {
		return nodes
	}
	return []*node{n}
}

// mountPath finds where a mount is, and its root.
func (m *model) mountPath(mount int) (path string, root *node) {
	m.walk(func(at string, in int, n *node) {
		if root == nil && in == mount {
			path, root = at, n
		}
	})
	return path, root
}

// real gives the path that Landlock's way up from an object amounts to. A
// disconnected directory is first beneath all that it is beneath in its file
// system, up to the root of that, and then beneath its mount's root and what
// that is mounted on (erratum 3). So its path begins with the mount's, and goes
// on with the file system's.
func (m *model) real(path string) string {
	h, rest, ok := m.held(path)
	if !ok {
		return m.path(path)
	}
	names, _, _ := m.wayOf(h)
	return filepath.Join(append(names, rest)...)
}

// wayOf gives the names on the way to what is held, of those the first that
// are the mount's, and the nodes of the others; connected tells that there is
// no detour.
func (m *model) wayOf(h *hold) (names []string, nodes []*node, connected bool) {
	at, mountRoot := m.mountPath(h.mount)
	if mountRoot == nil {
		return []string{m.dir, "mount-that-cannot-be-reached"}, nil, true
	}
	root, rest, nodes := m.chain(h.node)
	if i := slices.Index(nodes, mountRoot); i >= 0 {
		return append([]string{m.path(at)}, rest[i:]...), nil, true
	}
	names = []string{m.path(at)}
	if root == m.root {
		names = append(names, strings.TrimPrefix(m.dir, m.top))
	}
	return append(names, rest...), nodes, root == nil
}

// lost tells that the mount of a descriptor is no longer beneath the tree.
func (m *model) lost() bool {
	for _, h := range m.holds {
		if _, root := m.mountPath(h.mount); root == nil {
			return true
		}
	}
	return false
}

// disconnected visits what rules there are on the detour to a disconnected
// directory and beneath it.
func (m *model) disconnected(h *hold, visit func(path string, rules []rule)) {
	names, nodes, connected := m.wayOf(h)
	if connected {
		return
	}
	if nodes[0] == m.root {
		for _, r := range m.outer {
			switch r.path {
			case "..":
				visit(filepath.Dir(filepath.Join(names[:2]...)), []rule{r})
			case m.top:
				visit(names[0], []rule{r})
			}
		}
	}
	first := len(names) - len(nodes) + 1 // names up to the root of the file system
	for i, n := range nodes[:len(nodes)-1] {
		visit(filepath.Join(names[:first+i]...), n.rules)
	}
	m.walkFrom(filepath.Join(names...), h.mount, h.node, func(path string, _ int, n *node) { visit(path, n.rules) })
}
