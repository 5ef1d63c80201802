// Package differential_test holds the decisions of enforce/profile against
// kernels: random trees, layers and operations, run by a thread that is really
// under those layers, beside what the engine says of each. Verdict and errno
// must be the same. It holds tests alone, and imports what it compares
// (enforce/profile, enforce/landlock) and the harness of kernels.
//
//	scenario_test.go   a case as text, what a failure prints and testdata holds
//	parse_test.go      the same, read
//	model_test.go      the tree as it should be, what of it matters to the engine
//	vfs_test.go        the file system's own errors, before and after Landlock's
//	stage_test.go      the tree on disk, the restricted thread, what is around it
//	perform_test.go    one operation, for real
//	run_test.go        a scenario on the kernel, compared step by step
//	random_test.go     random scenarios
//	shrink_test.go     the smallest scenario that still fails
//	namespace_test.go  the same for a plain user, in namespaces
package differential_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

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
	shared  int    // signal, abstract-unix: the layers of the other end, or sibling
	port    string // p0 to p7, 0
	want    syscall.Errno
	hasWant bool
	reason  string
}

// sibling is another thread under the same rulesets, which share no layer with
// this one's: a layer is what one call of landlock_restrict_self made.
const sibling = -1

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
	{profile.OpenRead, "r"},
	{profile.OpenWrite, "w"},
	{profile.OpenTruncate, "t"},
	{profile.OpenCreate, "c"},
	{profile.OpenDirectory, "d"},
	{profile.OpenPath, "p"},
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
		if s.shared == sibling {
			add("sibling")
		} else {
			add(strconv.Itoa(s.shared))
		}
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
