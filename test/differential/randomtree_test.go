package differential_test

import (
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

var names = []string{"a", "b", "c", "d", "e", "f"}

func (r *random) tree(sc *scenario, layers int) {
	dirs, used := []string{"."}, map[string]bool{}
	var files []string
	mounts := 0
	if r.h.mayMount && r.IntN(6) == 0 {
		mounts = 1 + r.IntN(3)
	}
	for range 6 + r.IntN(14) {
		parent := dirs[r.IntN(len(dirs))]
		path := strings.TrimPrefix(parent+"/"+names[r.IntN(len(names))], "./")
		if used[path] {
			continue
		}
		used[path] = true
		e := entry{path: path, kind: file}
		switch n := r.IntN(22); {
		case n < 9:
			e.kind = dir
			if mounts > 0 && r.IntN(4) == 0 {
				e.mount = true
				mounts--
				if r.IntN(3) > 0 {
					e.source = dirs[r.IntN(len(dirs))]
				}
			}
			dirs = append(dirs, path)
		case n < 12:
			e.kind = []kind{fifo, symlink, whiteout}[n-9]
		case n < 14:
			e.kind = sock
			e.stage = []int{0, 0, layers, r.IntN(layers + 1)}[r.IntN(4)]
		case n < 16 && len(files) > 0:
			e.kind, e.source, e.how = none, files[r.IntN(len(files))], linked
			if mounts > 0 {
				e.how, e.mount = made, true
				mounts--
			}
		default:
			files = append(files, path)
		}
		sc.tree = append(sc.tree, e)
	}
	if !sc.flatten && r.h.erratum3 && len(dirs) > 1 {
		r.holds(sc, dirs)
	}
}

// holds takes descriptors of directories, some in a bind mount, and moves some
// of those out of what is bound.
func (r *random) holds(sc *scenario, dirs []string) {
	if r.IntN(12) == 0 {
		sc.tree = append(sc.tree, entry{path: "h", source: dirs[r.IntN(len(dirs))], how: held})
	}
	if !r.h.mayMount || r.IntN(7) > 0 {
		return
	}
	below := dirs[1+r.IntN(len(dirs)-1):]
	source := below[r.IntN(len(below))]
	bound := source[:max(0, strings.LastIndexByte(source, '/'))]
	if bound == "" {
		return
	}
	at := strings.TrimPrefix(dirs[r.IntN(len(dirs))]+"/bound", "./")
	sc.tree = append(sc.tree,
		entry{path: at, source: bound, mount: true},
		entry{path: "o", source: at + strings.TrimPrefix(source, bound), how: held})
	if to := dirs[r.IntN(len(dirs))]; r.IntN(5) > 0 {
		sc.tree = append(sc.tree, entry{path: strings.TrimPrefix(to+"/moved", "./"), source: source, how: moved})
	}
}

// rules gives a layer rules that let a good part through even where layers are
// many: something near the root, and some on single files and directories.
func (r *random) rules(sc *scenario, layer int) {
	l := &sc.layers[layer]
	add := func(path string, access profile.Access) {
		if access != 0 {
			sc.rules = append(sc.rules, rule{layer, path, access})
		}
	}
	if l.FS != 0 {
		if r.moves {
			add([]string{".", "..", "/"}[r.IntN(3)], profile.FSRefer&l.FS|r.few(l.FS))
			for range 2 + r.IntN(6) {
				if e := &sc.tree[r.IntN(len(sc.tree))]; e.kind != symlink && (e.kind != sock || e.stage == 0) {
					add(e.path, r.mask(l.FS))
				}
			}
		} else if r.IntN(4) != 0 {
			add([]string{".", ".", "..", "/"}[r.IntN(4)], r.most(l.FS))
		}
		for range r.IntN(4) {
			if len(sc.tree) == 0 {
				break
			}
			e := &sc.tree[r.IntN(len(sc.tree))]
			if e.kind != symlink && (e.kind != sock || e.stage == 0) {
				add(e.path, r.mask(l.FS))
			}
		}
		if r.IntN(3) != 0 {
			add([]string{"/dev", "/dev/null", "/dev/zero"}[r.IntN(3)], r.most(l.FS))
		}
	}
	if l.Net != 0 {
		for _, port := range []string{"0", "p0", "p1", "p2", "p3"} {
			if a := r.most(l.Net); a != 0 && r.IntN(6) != 0 {
				sc.ports = append(sc.ports, portRule{layer, port, a})
			}
		}
	}
}
