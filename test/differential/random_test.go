package differential_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// random makes a scenario, and its steps as the tree changes.
type random struct {
	*rand.Rand
	h       *host
	steps   int
	signals bool
	sockets bool // abstract ones
	sibling bool
	branch  int  // the layers that a branch shares, or -1
	moves   bool // mostly renames and links, and what decides on those
}

// newScenario makes tree, layers and rules. The same seed and number give the
// same on kernels of one ABI.
func newScenario(h *host, seed, n uint64) *scenario {
	r := &random{Rand: rand.New(rand.NewPCG(seed, n)), h: h}
	r.steps = 20 + r.IntN(40)
	r.signals, r.sockets, r.sibling = r.IntN(12) == 0, r.IntN(3) == 0, r.IntN(8) == 0
	sc := &scenario{random: r}
	r.moves = r.IntN(4) == 0
	layers := r.layerCount()
	sc.flatten = layers > profile.MaxKernelLayers || r.IntN(5) == 0
	if r.branch = -1; !sc.flatten && r.IntN(12) == 0 {
		r.branch = r.IntN(min(layers+1, profile.MaxKernelLayers))
	}
	r.tree(sc, layers)
	// Where refer is granted, or two rules are on one inode, it is seldom that
	// layers can be flattened.
	noRefer := sc.flatten && !r.moves && r.IntN(4) > 0
	for i := range layers {
		l := profile.Layer{Name: fmt.Sprintf("l%d", i+1)}
		for l.FS|l.Net|l.Scope == 0 {
			l.FS = r.handled(profile.FS)
			l.Net = r.handled(profile.Net)
			l.Scope = r.handled(profile.Scope)
		}
		if noRefer {
			l.FS &^= profile.FSRefer
		}
		if l.FS|l.Net|l.Scope == 0 {
			l.FS = profile.FSReadFile
		}
		sc.layers = append(sc.layers, l)
		r.rules(sc, i)
	}
	return sc
}

func (r *random) layerCount() int {
	if r.moves {
		return 1 + r.IntN(3)
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		return 1
	case 3, 4, 5, 6:
		return 2 + r.IntN(3)
	case 7, 8:
		return 5 + r.IntN(11)
	}
	return 16 + r.IntN(8)
}

// inherited are rights that a moved object could gain.
const inherited = profile.FSExecute | profile.FSReadFile | profile.FSWriteFile | profile.FSReadDir | profile.FSMakeSym

// handled gives what a layer handles: all, nothing or some.
func (r *random) handled(k profile.Kind) profile.Access {
	all := profile.Handled(k, r.h.sup.ABI)
	switch n := r.IntN(8); {
	case r.moves && k == profile.FS:
		return (profile.FSRefer | r.mask(inherited)) & all
	case n == 0:
		return all
	case n <= 2:
		return 0
	}
	return r.mask(all)
}

func (r *random) mask(all profile.Access) profile.Access { return profile.Access(r.Uint32()) & all }

// few gives a quarter of a mask's rights.
func (r *random) few(all profile.Access) profile.Access { return r.mask(r.mask(all)) }

// most gives nearly all of a mask.
func (r *random) most(all profile.Access) profile.Access {
	if r.IntN(2) == 0 {
		return all
	}
	return all &^ r.few(all)
}

var moveKinds = []profile.OpKind{profile.OpRename, profile.OpExchange, profile.OpLink}

type weight struct {
	kind   profile.OpKind
	weight int
}

// weights are the kinds of operations by how often they come.
var weights = []weight{
	{profile.OpOpen, 30},
	{profile.OpExec, 2},
	{profile.OpTruncate, 4},
	{profile.OpMkdir, 5},
	{profile.OpMknod, 7},
	{profile.OpSymlink, 3},
	{profile.OpUnlink, 4},
	{profile.OpRmdir, 4},
	{profile.OpRename, 24},
	{profile.OpExchange, 12},
	{profile.OpLink, 10},
	{profile.OpIoctlDev, 4},
	{profile.OpConnectUnix, 6},
	{profile.OpBindTCP, 4},
	{profile.OpConnectTCP, 3},
	{profile.OpBindUDP, 2},
	{profile.OpConnectUDP, 2},
	{profile.OpSendUDP, 3},
	{profile.OpSignal, 4},
	{profile.OpAbstractUnix, 4},
	{profile.OpMount, 1},
	{profile.OpStat, 1},
	{profile.OpSetAttributes, 1},
}

// more adds the next step, or says that it is enough.
func (r *random) more(st *stage) bool {
	if len(st.sc.steps) >= r.steps {
		return false
	}
	sum := 0
	for _, w := range weights {
		sum += w.weight
	}
	for {
		n := r.IntN(sum)
		i := 0
		for ; n >= weights[i].weight; i++ {
			n -= weights[i].weight
		}
		if r.moves && r.IntN(3) > 0 {
			i = slices.IndexFunc(weights, func(w weight) bool { return w.kind == moveKinds[n%len(moveKinds)] })
		}
		if (r.branch >= 0 || r.signals || r.sibling) && r.IntN(6) == 0 {
			i = slices.IndexFunc(weights, func(w weight) bool { return w.kind == profile.OpAbstractUnix }) - r.IntN(2)
		}
		if s := (step{op: profile.Operation{Kind: weights[i].kind}}); r.step(st, &s) && onEntries(&s) {
			r.by(&s)
			st.sc.steps = append(st.sc.steps, s)
			return true
		}
	}
}

// onEntries tells that no path is a descriptor alone.
func onEntries(s *step) bool {
	bare := func(path string) bool { return strings.HasPrefix(path, "@") && !strings.Contains(path, "/") }
	return !bare(s.op.Path) && !bare(s.op.NewPath)
}

// by chooses another way to do a step, now and then.
func (r *random) by(s *step) {
	if list := ways[s.op.Kind]; len(list) > 0 && r.IntN(len(list)+2) > 1 {
		s.by = list[r.IntN(len(list))]
	}
	if s.by == "send" {
		s.stream = false
	}
}

// step fills in a step of its kind; false when there is none to be had.
func (r *random) step(st *stage, s *step) bool {
	var all, dirs, files, socks []string
	visit := func(path string, _ int, n *node) {
		if n.kind == dir {
			dirs = append(dirs, path)
		}
		if path == "." {
			return
		}
		all = append(all, path)
		switch n.kind {
		case file:
			files = append(files, path)
		case sock:
			socks = append(socks, path)
		}
	}
	st.m.walk(visit)
	for _, name := range slices.Sorted(maps.Keys(st.m.holds)) {
		h := st.m.holds[name]
		for range 4 { // they are to come often
			st.m.walkFrom("@"+name, h.mount, h.node, visit)
		}
	}
	pick := func(from ...[]string) string {
		if from = slices.DeleteFunc(from, func(p []string) bool { return len(p) == 0 }); len(from) == 0 {
			return fresh(r, dirs)
		}
		list := from[r.IntN(len(from))]
		return list[r.IntN(len(list))]
	}
	free := fresh(r, dirs)
	switch s.op.Kind {
	case profile.OpOpen:
		return r.open(st, s, pick(files, all, all, dirs), free)
	case profile.OpExec, profile.OpTruncate:
		s.op.Path = pick(files, files, files, all)
		n := st.m.look(s.op.Path).node
		return s.op.Kind != profile.OpExec || n != nil && n.kind == file && execable
	case profile.OpMkdir, profile.OpSymlink:
		s.op.Path = []string{free, free, free, pick(all)}[r.IntN(4)]
	case profile.OpMknod:
		s.op.Path = []string{free, free, free, pick(all)}[r.IntN(4)]
		s.kind = []kind{file, fifo, sock, whiteout, char, block}[r.IntN(6)]
		s.bind = s.kind == sock && r.IntN(2) == 0
	case profile.OpUnlink, profile.OpStat, profile.OpSetAttributes, profile.OpRmdir:
		s.op.Path = pick(files, all, []string{free})
		if s.op.Kind == profile.OpRmdir {
			s.op.Path = pick(dirs, dirs, all)
		}
		return s.op.Path != "."
	case profile.OpRename, profile.OpLink, profile.OpExchange:
		s.op.Path, s.op.NewPath = pick(all, files), free
		if s.op.Kind == profile.OpExchange || r.IntN(3) == 0 {
			s.op.NewPath = pick(all, files)
		}
		// What is mounted on a directory hides it, but the kernel asks for the
		// directory when it is moved. That never succeeds (EBUSY, EPERM of a
		// link); only which error comes first is another.
		from, to := st.m.look(s.op.Path), st.m.look(s.op.NewPath)
		if from.entry != from.node || to.entry != to.node {
			return false
		}
		// Of several names of a file, something is mounted on one alone; the
		// model does not tell them apart.
		return s.op.Kind != profile.OpLink || from.entry == nil || !st.m.mountPoint(from.entry)
	case profile.OpConnectUnix:
		s.op.Path = pick(socks, socks, socks, all)
		if n := st.m.look(s.op.Path).node; n == nil {
			return false
		}
	case profile.OpIoctlDev:
		s.op.Path = []string{"/dev/null", "/dev/zero"}[r.IntN(2)]
		s.op.Open = []profile.OpenFlags{profile.OpenRead, profile.OpenWrite, profile.OpenRead | profile.OpenWrite}[r.IntN(3)]
	case profile.OpMount:
		s.op.Path = "."
		return r.h.mayMount
	case profile.OpSignal:
		if len(st.targets) == 0 {
			return false
		}
		keys := slices.Sorted(maps.Keys(st.targets))
		s.shared = append(keys, ownProcess)[r.IntN(len(keys)+1)]
	case profile.OpAbstractUnix:
		if !r.sockets && r.branch < 0 && !r.sibling {
			return false
		}
		n := len(st.sc.layers)
		s.shared = []int{0, n / 2, n}[r.IntN(3)]
		switch {
		case r.sibling && r.IntN(3) == 0:
			s.shared = sibling
		case r.branch >= 0 && r.IntN(2) == 0:
			s.shared = branch - r.branch
		case st.sc.flatten && s.shared != 0:
			s.shared = n
		}
		s.stream = r.IntN(2) == 0
	default:
		s.port = []string{"0", "p0", "p1", "p2", "p3", "p4"}[r.IntN(6)]
		s.bind = r.IntN(2) == 0 && (s.op.Kind == profile.OpConnectUDP || s.op.Kind == profile.OpSendUDP)
		return s.port != "0" || s.op.Kind == profile.OpBindTCP || s.op.Kind == profile.OpBindUDP
	}
	return true
}

// fresh gives a name in some directory, most often a free one.
func fresh(r *random, dirs []string) string {
	return strings.TrimPrefix(dirs[r.IntN(len(dirs))]+"/"+names[r.IntN(len(names))]+[]string{"", "2", "3"}[r.IntN(3)], "./")
}

func (r *random) open(st *stage, s *step, path, free string) bool {
	s.op.Open = []profile.OpenFlags{profile.OpenRead, profile.OpenRead, profile.OpenWrite, profile.OpenRead | profile.OpenWrite}[r.IntN(4)]
	for _, f := range []profile.OpenFlags{profile.OpenTruncate, profile.OpenCreate, profile.OpenDirectory, profile.OpenPath} {
		if r.IntN(5) == 0 {
			s.op.Open |= f
		}
	}
	if s.op.Path = path; r.IntN(6) == 0 {
		s.op.Path = free
		s.op.Open |= profile.OpenCreate
	}
	if r.IntN(12) == 0 {
		s.op.Path = "/dev/null"
		s.op.Open &^= profile.OpenCreate | profile.OpenDirectory
	}
	if s.op.Open&profile.OpenCreate != 0 {
		s.op.Open &^= profile.OpenDirectory // EINVAL, or ENOTDIR of older kernels
	}
	n := st.m.look(s.op.Path).node
	return n == nil || n.kind != whiteout && n.kind != char && n.kind != block // what is behind those is not ours
}
