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
		return entry{path: path, mount: true, source: stage}
	}
	if h := slices.Index(howNames, what); h > 0 && stage != "" {
		return entry{path: path, source: stage, how: how(h)}
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
		var ok bool
		word := next()
		if s.shared, ok = parsePeer(word); !ok {
			return s, fmt.Errorf("%q is nobody", word)
		}
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
			if s.by = word; !slices.Contains(ways[s.op.Kind], word) {
				return s, fmt.Errorf("%q: what is that?", word)
			}
		}
	}
	return s, nil
}

func errnoByName(name string) syscall.Errno {
	for e := syscall.Errno(1); e < 200; e++ {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return 0
}

// A scenario that is printed can be read again.
func TestScenarioText(t *testing.T) {
	const text = `tree a/ a/f a/p=fifo s=sock t=sock:2 w=whiteout l=symlink m=tmpfs n=bind:a g=link:a/f h=hold:n/d b/d=moved:a/d
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
abstract-unix sibling
abstract-unix branch:1 send
signal process
bind tcp p0 six
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
	for _, bad := range []string{
		"", "tree a", "layer fs=fly", "layer fly=read_file", "layer fs=read_file\nrule 2 a read_file", "tree a=b\nlayer fs=read_file",
		"layer fs=read_file\nfly a", "layer fs=read_file\nopen a r = EWHAT", "layer fs=read_file\nmkdir a b",
		"layer fs=read_file\nsignal nobody", "layer fs=read_file\nbind tcp p0 send",
	} {
		if sc, err := parse(bad); err == nil {
			t.Errorf("%q reads as\n%s", bad, sc)
		}
	}
}
