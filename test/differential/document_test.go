package differential_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/policytest"
)

// document gives a step as a policy and a PolicyTest that wants of it what the
// kernel answered, for `policyctl test --enforce`. The tree and the rules are
// those before the step. What a PolicyTest cannot say stands in comments.
func (st *stage) document(s *step, kernel syscall.Errno) string {
	d := &document{st: st, s: s, first: map[*node]string{}}
	st.m.walk(func(path string, mount int, n *node) { d.entry(path, mount, n) })
	d.unsaid(s)
	var b strings.Builder
	d.policy(&b)
	d.test(&b, kernel)
	return b.String()
}

type document struct {
	st      *stage
	s       *step
	first   map[*node]string // the first name of each inode
	tree    []string
	comment []string
}

func (d *document) note(format string, args ...any) {
	d.comment = append(d.comment, "# not said here: "+fmt.Sprintf(format, args...))
}

func (d *document) entry(path string, mount int, n *node) {
	first, known := d.first[n]
	switch {
	case path == ".":
	case mount > 0 || d.st.m.mountPoint(n):
		d.note("%s is in a mount of its own", path)
		return
	case known && n.kind != dir:
		d.tree = append(d.tree, fmt.Sprintf("{link: %s, to: %s}", path, first))
		return
	default:
		d.tree = append(d.tree, d.made(path, n))
	}
	d.first[n] = path
}

func (d *document) made(path string, n *node) string {
	switch n.kind {
	case dir:
		return fmt.Sprintf("{dir: %s}", path)
	case symlink:
		return fmt.Sprintf("{symlink: %s, to: nowhere}", path)
	case fifo:
		return fmt.Sprintf("{fifo: %s}", path)
	case sock:
		if n.stage > 0 || !n.live {
			d.note("socket %s: made under %d layers, somebody listens: %v", path, n.stage, n.live)
		}
		return fmt.Sprintf("{socket: %s}", path)
	case char:
		return fmt.Sprintf("{char: %s}", path)
	case whiteout:
		return fmt.Sprintf("{char: %s, device: \"0:0\"}", path)
	case block:
		return fmt.Sprintf("{block: %s}", path)
	}
	if n.program && d.s.op.Kind == profile.OpExec {
		d.note("%s is a program that ends with 0", path)
	}
	return fmt.Sprintf("{file: %s, mode: \"0755\"}", path)
}

// unsaid notes what of a step has no words.
func (d *document) unsaid(s *step) {
	m := d.st.m
	for _, name := range slices.Sorted(maps.Keys(m.holds)) {
		names, _, connected := m.wayOf(m.holds[name])
		d.note("@%s is a descriptor of a directory, connected: %v, its way up as of %s", name, connected, strings.Join(names, "/"))
	}
	switch {
	case s.by != "":
		d.note("it was done by %s", s.by)
	case s.bind:
		d.note("by a socket that was bound before, or by bind(2)")
	case s.stream:
		d.note("by a stream socket")
	case s.kind == whiteout:
		d.note("the device made is 0:0, a whiteout")
	}
	switch s.op.Kind {
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		if m.top != "/" {
			d.note("the tree was in a mount of its own, %s", m.top)
		}
	case profile.OpSignal, profile.OpAbstractUnix:
		d.note("the other end is %s of %d layers", peerName(s.shared), len(d.st.sc.layers))
	}
}

func flow(names []string) string { return "[" + strings.Join(names, ", ") + "]" }

// rooted is a path of the scenario as documents name it.
func (d *document) rooted(path string) string {
	switch {
	case strings.HasPrefix(path, "/"):
		return path
	case path == ".":
		return "${root}"
	case path == "..":
		d.note("a rule is on the folder that ${root} is in")
		return "${root}"
	}
	return "${root}/" + path
}

func (d *document) policy(b *strings.Builder) {
	sc, m := d.st.sc, d.st.m
	fmt.Fprintf(b, "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: smallest}\nspec:\n  abi: %d\n", d.st.h.sup.ABI)
	b.WriteString("  parameters: [{name: root, within: [/]}]\n")
	if sc.flatten {
		b.WriteString("  flatten: {always: true, accept: [shared_inodes, refer]}\n")
	}
	b.WriteString("  layers:\n")
	for i := range sc.layers {
		l := &sc.layers[i]
		fmt.Fprintf(b, "    - name: %s\n      handles: {fs: %s, net: %s}\n", l.Name, flow(profile.FS.Names(l.FS)), flow(profile.Net.Names(l.Net)))
		var paths, ports []string
		add := func(r rule, path string) {
			if r.layer == i {
				paths = append(paths, fmt.Sprintf("        - {allow: %s, at: [%q]}\n", flow(profile.FS.Names(r.access)), d.rooted(path)))
			}
		}
		for _, r := range m.outer {
			add(r, r.path)
		}
		done := map[*node]bool{}
		m.walk(func(path string, _ int, n *node) {
			if !done[n] {
				done[n] = true
				for _, r := range n.rules {
					add(r, path)
				}
			}
		})
		for _, r := range sc.ports {
			if r.layer == i {
				ports = append(ports, fmt.Sprintf("        - {allow: %s, port: [%d]}\n", flow(profile.Net.Names(r.access)), d.st.h.port(r.port)))
			}
		}
		if len(paths) > 0 {
			b.WriteString("      paths:\n" + strings.Join(paths, ""))
		}
		if len(ports) > 0 {
			b.WriteString("      ports:\n" + strings.Join(ports, ""))
		}
		if l.Scope != 0 {
			fmt.Fprintf(b, "      scope: %s\n", flow(profile.Scope.Names(l.Scope)))
		}
	}
}

func (d *document) test(b *strings.Builder, kernel syscall.Errno) {
	b.WriteString("---\napiVersion: policyd/v1\nkind: PolicyTest\nmetadata: {name: smallest}\nspec:\n  policy: smallest\n  set: {root: \"${root}\"}\n")
	if len(d.tree) == 0 {
		d.tree = append(d.tree, "{dir: empty}")
	}
	b.WriteString("  tree:\n    - " + strings.Join(d.tree, "\n    - ") + "\n")
	verdict := "allow"
	switch d.s.op.Kind {
	case profile.OpStat, profile.OpSetAttributes:
		verdict = "not_mediated"
	}
	if d.s.op.Open&profile.OpenPath != 0 {
		verdict = "not_mediated"
	}
	switch kernel {
	case syscall.EACCES, syscall.EPERM, syscall.EXDEV:
		verdict = "deny, errno: " + errnoName(kernel)
	}
	fmt.Fprintf(b, "  expect:\n    - {op: %q, verdict: %s, reason: the kernel answers %s}\n", d.words(), verdict, errnoName(kernel))
	for _, c := range d.comment {
		b.WriteString(c + "\n")
	}
}

// words are a step's, with paths beneath ${root}.
func (d *document) words() string {
	s := *d.s
	s.by, s.bind, s.stream, s.hasWant = "", false, false, false
	if s.op.Open&profile.OpenPath != 0 {
		s.op.Open &= profile.OpenPath | profile.OpenDirectory
	}
	if s.op.Path != "" {
		s.op.Path = d.rooted(s.op.Path)
	}
	if s.op.NewPath != "" {
		s.op.NewPath = d.rooted(s.op.NewPath)
	}
	switch s.op.Kind {
	case profile.OpMount:
		s.op.Path = ""
	case profile.OpMknod:
		if s.kind == whiteout {
			s.kind = char
		}
	case profile.OpSignal, profile.OpAbstractUnix:
		if s.shared == len(d.st.sc.layers) {
			return s.op.Kind.String() + " in"
		}
		return s.op.Kind.String() + " out"
	}
	if s.port != "" {
		s.port = fmt.Sprint(d.st.h.port(s.port))
	}
	return s.String()
}

// TestDocument holds that what is printed of a failure can be run, and says of
// the step what the engine says.
func TestDocument(t *testing.T) {
	for _, tt := range []struct {
		scenario string
		kernel   syscall.Errno
		unsaid   string
	}{
		{"tree a/ a/f a/g b/ s=sock p=fifo l=symlink\nlayer fs=read_file|refer\nlayer fs=make_reg net=bind_tcp scope=signal\nrule 1 a read_file|refer\nrule 1 . refer\nrename a/f b/f", syscall.EACCES, ""},
		{"tree a/ a/f b/\nlayer fs=refer\nlayer net=bind_tcp\nrule 1 . refer\nrename a/f b/f", syscall.EXDEV, ""},
		{"tree f g=link:f\nlayer fs=read_file|write_file\nrule 1 f read_file\nopen g rw", syscall.EACCES, ""},
		{"tree f\nlayer fs=read_file\nopen f rp", 0, ""},
		{"layer net=bind_tcp\nport 1 p0 bind_tcp\nbind tcp p0", 0, ""},
		{"layer scope=signal\nsignal 0", syscall.EPERM, "# not said here: the other end is 0 of 1 layers"},
		{"tree a/ m=bind:a\nlayer fs=read_file\nrule 1 .. read_file\nmount . pivot", syscall.EPERM, "# not said here: it was done by pivot"},
	} {
		sc, err := parse(tt.scenario)
		if err != nil {
			t.Fatal(err)
		}
		h := &host{dir: t.TempDir(), top: "/", sup: landlock.Support{ABI: profile.MaxABI}}
		st := &stage{h: h, sc: sc, m: newModel(sc, h.dir+"/t", h.top)}
		text := st.document(&sc.steps[0], tt.kernel)
		tests, err := policytest.Load([]*apiv1.SourceFile{{Name: "smallest.yaml", Content: []byte(text)}})
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		res, err := (&policytest.Runner{}).Run(t.Context(), tests[0])
		if err != nil || res.Failed() || res.Count(policytest.Passed) != 1 || !strings.Contains(text, tt.unsaid) {
			t.Errorf("%v %+v\n%s", err, res, text)
		}
	}
}
