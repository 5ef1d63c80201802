// Package differential_test holds the decisions of enforce/profile against
// kernels: random trees, layers and operations, run by a thread that is really
// under those layers, beside what the engine says of each. Verdict and errno
// must be the same. It holds tests alone, and imports what it compares
// (enforce/profile, enforce/landlock) and the harness of kernels.
//
//	scenario_test.go   a case as text: what a failure prints and testdata holds
//	model_test.go      the tree as it should be, what of it matters to the engine
//	vfs_test.go        the file system's own errors, before and after Landlock's
//	stage_test.go      the tree on disk, the restricted thread, what is around it
//	perform_test.go    one operation, for real
//	run_test.go        a scenario on the kernel, compared step by step
//	random_test.go     random scenarios
//	shrink_test.go     the smallest scenario that still fails
package differential_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// scenario is a tree, layers on a thread, and what the thread does. Its text
// form, one word first on each line, "#" starts a comment:
//
//	tree a/ a/f a/p=fifo s=sock s2=sock:1 w=whiteout l=symlink m=tmpfs n=bind:a
//	layer fs=read_file|make_reg net=bind_tcp scope=signal
//	flatten
//	rule 1 a read_file|make_reg
//	port 1 p0 bind_tcp
//	open a/f rw = EACCES        # the reason
//
// Paths are below the tree, "." is the tree, ".." the folder it is in, and
// absolute ones are the host's. sock:N is a socket made under N of the layers.
// Ports p0 to p7 are free ones; 0 is 0. Without "= ERRNO" only the engine is asked.
type scenario struct {
	tree    []entry
	layers  []profile.Layer
	flatten bool
	rules   []rule
	ports   []portRule
	steps   []step

	random *random // gives the steps one by one, when they are not there yet
}

type entry struct {
	path   string
	kind   kind
	stage  int // of a socket
	mount  bool
	source string // of a bind mount; else a mount is a tmpfs
}

type rule struct {
	layer  int
	path   string
	access profile.Access
}

type portRule struct {
	layer  int
	port   string
	access profile.Access
}

// step is one operation. Its paths are the scenario's.
type step struct {
	op      profile.Operation
	kind    kind   // of what mknod makes
	bind    bool   // mknod sock by bind(2); a UDP socket that has a port
	stream  bool   // abstract-unix by SOCK_STREAM
	shared  int    // signal, abstract-unix: the layers of the other end
	port    string // p0 to p7, 0
	want    syscall.Errno
	hasWant bool
	reason  string
}

// kind is the kind of a file, finer than profile.FileType.
type kind uint8

const (
	none kind = iota
	file
	dir
	symlink
	fifo
	sock
	whiteout
	char
	block
)

var kindNames = []string{"", "reg", "dir", "symlink", "fifo", "sock", "whiteout", "char", "block"}

func (k kind) String() string { return kindNames[k] }

var openLetters = []struct {
	flag   profile.OpenFlags
	letter string
}{
	{profile.OpenRead, "r"}, {profile.OpenWrite, "w"}, {profile.OpenTruncate, "t"},
	{profile.OpenCreate, "c"}, {profile.OpenDirectory, "d"}, {profile.OpenPath, "p"},
}

func (s *step) String() string {
	w := []string{s.op.Kind.String()}
	add := func(words ...string) { w = append(w, words...) }
	if s.op.Path != "" {
		add(s.op.Path)
	}
	switch s.op.Kind {
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		add(s.op.NewPath)
	case profile.OpOpen, profile.OpIoctlDev:
		flags := ""
		for _, l := range openLetters {
			if s.op.Open&l.flag != 0 {
				flags += l.letter
			}
		}
		add(flags)
	case profile.OpMknod:
		add(s.kind.String())
	case profile.OpBindTCP, profile.OpConnectTCP, profile.OpBindUDP, profile.OpConnectUDP, profile.OpSendUDP:
		add(s.port)
	case profile.OpSignal, profile.OpAbstractUnix:
		add(strconv.Itoa(s.shared))
	}
	if s.bind {
		add("bind")
	}
	if s.stream {
		add("stream")
	}
	if s.hasWant {
		add("=", errnoName(s.want))
	}
	return strings.Join(w, " ")
}

func errnoName(e syscall.Errno) string {
	if e == 0 {
		return "0"
	}
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return strconv.Itoa(int(e))
}

func (e *entry) String() string {
	switch {
	case e.source != "":
		return e.path + "=bind:" + e.source
	case e.mount:
		return e.path + "=tmpfs"
	case e.kind == dir:
		return e.path + "/"
	case e.kind == file:
		return e.path
	case e.kind == sock && e.stage != 0:
		return fmt.Sprintf("%s=sock:%d", e.path, e.stage)
	}
	return e.path + "=" + e.kind.String()
}

func (sc *scenario) String() string {
	var b strings.Builder
	if len(sc.tree) > 0 {
		b.WriteString("tree")
		for i := range sc.tree {
			b.WriteString(" " + sc.tree[i].String())
		}
		b.WriteByte('\n')
	}
	for i := range sc.layers {
		l := &sc.layers[i]
		fmt.Fprintf(&b, "layer")
		for _, k := range []struct {
			kind   profile.Kind
			access profile.Access
		}{{profile.FS, l.FS}, {profile.Net, l.Net}, {profile.Scope, l.Scope}} {
			if k.access != 0 {
				fmt.Fprintf(&b, " %v=%s", k.kind, k.kind.Format(k.access))
			}
		}
		b.WriteByte('\n')
	}
	if sc.flatten {
		b.WriteString("flatten\n")
	}
	for _, r := range sc.rules {
		fmt.Fprintf(&b, "rule %d %s %s\n", r.layer+1, r.path, profile.FS.Format(r.access))
	}
	for _, r := range sc.ports {
		fmt.Fprintf(&b, "port %d %s %s\n", r.layer+1, r.port, profile.Net.Format(r.access))
	}
	for i := range sc.steps {
		b.WriteString(sc.steps[i].String())
		if sc.steps[i].reason != "" {
			b.WriteString(" # " + sc.steps[i].reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// parse reads one scenario.
func parse(text string) (*scenario, error) {
	sc := &scenario{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if err := sc.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, line, err)
		}
	}
	if len(sc.layers) == 0 {
		return nil, fmt.Errorf("no layer")
	}
	return sc, nil
}

func (sc *scenario) line(line string) error {
	line, comment, _ := strings.Cut(line, "#")
	w := strings.Fields(line)
	if len(w) == 0 {
		return nil
	}
	var err error
	switch {
	case w[0] == "tree":
		for _, word := range w[1:] {
			sc.tree = append(sc.tree, parseEntry(word, &err))
		}
	case w[0] == "layer":
		sc.layers = append(sc.layers, parseLayer(len(sc.layers), w[1:], &err))
	case w[0] == "flatten":
		sc.flatten = true
	case (w[0] == "rule" || w[0] == "port") && len(w) == 4:
		layer, e := strconv.Atoi(w[1])
		if e != nil || layer < 1 || layer > len(sc.layers) {
			return fmt.Errorf("no layer %s", w[1])
		}
		if w[0] == "rule" {
			sc.rules = append(sc.rules, rule{layer - 1, w[2], parseAccess(profile.FS, w[3], &err)})
		} else {
			sc.ports = append(sc.ports, portRule{layer - 1, w[2], parseAccess(profile.Net, w[3], &err)})
		}
	default:
		s, e := parseStep(w)
		s.reason = strings.TrimSpace(comment)
		sc.steps = append(sc.steps, s)
		err = e
	}
	return err
}

func parseEntry(word string, err *error) entry {
	path, what, special := strings.Cut(word, "=")
	if p, isDir := strings.CutSuffix(path, "/"); isDir {
		return entry{path: p, kind: dir}
	}
	if !special {
		return entry{path: path, kind: file}
	}
	if what == "tmpfs" {
		return entry{path: path, kind: dir, mount: true}
	}
	what, stage, _ := strings.Cut(what, ":")
	if what == "bind" && stage != "" {
		return entry{path: path, kind: dir, mount: true, source: stage}
	}
	e := entry{path: path, kind: kind(max(0, slices.Index(kindNames, what)))}
	e.stage, _ = strconv.Atoi(stage)
	if e.kind == none {
		*err = fmt.Errorf("unknown kind %q", what)
	}
	return e
}

func parseLayer(i int, words []string, err *error) profile.Layer {
	l := profile.Layer{Name: fmt.Sprintf("l%d", i+1)}
	for _, w := range words {
		switch name, names, _ := strings.Cut(w, "="); name {
		case "fs":
			l.FS = parseAccess(profile.FS, names, err)
		case "net":
			l.Net = parseAccess(profile.Net, names, err)
		case "scope":
			l.Scope = parseAccess(profile.Scope, names, err)
		default:
			*err = fmt.Errorf("unknown kind %q", name)
		}
	}
	return l
}

func parseAccess(k profile.Kind, names string, err *error) (a profile.Access) {
	for name := range strings.SplitSeq(names, "|") {
		r, ok := profile.RightByName(k, name)
		if !ok {
			*err = fmt.Errorf("unknown right %q", name)
		}
		a |= r.Bit
	}
	return a
}

func parseStep(w []string) (step, error) {
	var s step
	if i := slices.Index(w, "="); i >= 0 && i+2 == len(w) {
		s.hasWant = true
		if w[i+1] != "0" {
			if s.want = errnoByName(w[i+1]); s.want == 0 {
				return s, fmt.Errorf("unknown errno %q", w[i+1])
			}
		}
		w = w[:i]
	}
	words := 1
	name := w[0]
	if (name == "bind" || name == "connect") && len(w) > 1 {
		name, words = name+" "+w[1], 2
	}
	for s.op.Kind = 0; s.op.Kind.String() != name; s.op.Kind++ {
		if s.op.Kind > 100 {
			return s, fmt.Errorf("unknown operation %q", name)
		}
	}
	w = w[words:]
	next := func() string {
		if len(w) == 0 {
			return ""
		}
		word := w[0]
		w = w[1:]
		return word
	}
	switch s.op.Kind {
	case profile.OpBindTCP, profile.OpConnectTCP, profile.OpBindUDP, profile.OpConnectUDP, profile.OpSendUDP:
		s.port = next()
	case profile.OpSignal, profile.OpAbstractUnix:
		s.shared, _ = strconv.Atoi(next())
	case profile.OpRename, profile.OpExchange, profile.OpLink:
		s.op.Path, s.op.NewPath = next(), next()
	default:
		s.op.Path = next()
	}
	switch s.op.Kind {
	case profile.OpOpen, profile.OpIoctlDev:
		for _, c := range next() {
			for _, l := range openLetters {
				if l.letter == string(c) {
					s.op.Open |= l.flag
				}
			}
		}
	case profile.OpMknod:
		s.kind = kind(max(0, slices.Index(kindNames, next())))
	}
	for word := next(); word != ""; word = next() {
		switch word {
		case "bind":
			s.bind = true
		case "stream":
			s.stream = true
		default:
			return s, fmt.Errorf("%q: what is that?", word)
		}
	}
	return s, nil
}

// A scenario that is printed can be read again.
func TestScenarioText(t *testing.T) {
	const text = `tree a/ a/f a/p=fifo s=sock t=sock:2 w=whiteout l=symlink m=tmpfs n=bind:a
layer fs=read_file|make_reg net=bind_tcp scope=signal
layer net=connect_tcp
flatten
rule 1 a read_file|make_reg
port 2 p0 connect_tcp
open a/f rwtc = EACCES # no write_file
open a dp
mknod a/s sock bind
mknod a/w whiteout
rename a/f b/f = 0
connect-unix s
bind tcp p0
send-udp 0 bind
signal 1
abstract-unix 0 stream = EPERM
ioctl-dev /dev/null r
mount .
`
	sc, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := sc.String(); got != text {
		t.Errorf("read and printed again:\n%s\nwant:\n%s", got, text)
	}
	for _, bad := range []string{"layer", "layer fs=fly", "layer fs=read_file\nrule 2 a read_file", "tree a=b\nlayer fs=read_file",
		"layer fs=read_file\nfly a", "layer fs=read_file\nopen a r = EWHAT", "layer fs=read_file\nmkdir a b"} {
		if sc, err := parse(bad); err == nil && bad != "layer" {
			t.Errorf("%q reads as\n%s", bad, sc)
		}
	}
}

func errnoByName(name string) syscall.Errno {
	for e := syscall.Errno(1); e < 200; e++ {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return 0
}
