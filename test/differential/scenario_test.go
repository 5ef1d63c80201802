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
//	hold_test.go       descriptors of directories, what disconnected ones are called
//	stage_test.go      the tree on disk, the restricted thread
//	peer_test.go       who else is there: other processes and sockets, by the layers they share
//	perform_test.go    one operation, for real
//	network_test.go    the same on ports
//	run_test.go        a scenario on the kernel, compared step by step
//	engine_test.go     every form of the engine, which must answer alike
//	tree_test.go       the engine on objects instead of paths
//	live_test.go       policyctl check on the same
//	random_test.go     random scenarios, their steps
//	randomtree_test.go their trees and rules
//	document_test.go   a failing step as a PolicyTest
//	shrink_test.go     the smallest scenario that still fails
//	namespace_test.go  the same for a plain user, in namespaces
//	syscalls_test.go   what the kernel takes and refuses before any policy is in force
//	share_test.go      a part of a run, and what it came to
//	long_test.go       the long run: shares on all processors
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
//	tree a/ a/f a/p=fifo s=sock s2=sock:1 w=whiteout l=symlink m=tmpfs n=bind:a g=link:a/f h=hold:n/d b/d=moved:a/d
//	layer fs=read_file|make_reg net=bind_tcp scope=signal
//	flatten
//	rule 1 a read_file|make_reg
//	port 1 p0 bind_tcp
//	open a/f rw = EACCES        # the reason
//
// Paths are below the tree, "." is the tree, ".." the folder it is in, and
// absolute ones are the host's. sock:N is a socket made under N of the layers.
// hold is a descriptor of a directory, taken before what comes later in the
// tree, whose entries are @h/NAME; moved is a rename before the layers, by which
// the directory held may come to lie outside of the bind mount it was held in:
// it is disconnected from there on.
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
	stage  int    // of a socket
	mount  bool   // bound from source, or a tmpfs
	source string // of a bind mount, a link, a hold, what is moved
	how    how
}

// how tells what an entry is that is not made but taken from its source.
type how uint8

const (
	made how = iota
	linked
	held
	moved
)

var howNames = []string{"", "link", "hold", "moved"}

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
	shared  int    // signal, abstract-unix: the layers of the other end, or sibling, branch ...
	by      string // another way to do the same, of ways
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
		add(peerName(s.shared))
	}
	if s.bind {
		add("bind")
	}
	if s.stream {
		add("stream")
	}
	if s.by != "" {
		add(s.by)
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
	case e.how != made:
		return e.path + "=" + howNames[e.how] + ":" + e.source
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
