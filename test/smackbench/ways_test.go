package smackbench

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
)

// maxWrite is how many bytes load2 takes in one write.
const maxWrite = 4095

// text gives the rules as load2 takes them.
func text(set *smack.Set) []byte {
	b := make([]byte, 0, 48*set.Len())
	for r := range set.All() {
		b = r.Append(b)
	}
	return b
}

// denials gives rules of no access for every pair.
func denials(rules []byte) []byte {
	b := make([]byte, 0, len(rules))
	for line := range bytes.Lines(rules) {
		b = append(append(b, line[:bytes.LastIndexByte(line, ' ')]...), " -\n"...)
	}
	return b
}

// chunks cuts rules into pieces of whole rules of at most limit bytes, or of one rule.
func chunks(rules []byte, limit int) [][]byte {
	var out [][]byte
	for len(rules) > 0 {
		n := len(rules)
		if n > limit {
			n = bytes.LastIndexByte(rules[:limit], '\n') + 1
		}
		if limit == 0 {
			n = bytes.IndexByte(rules, '\n') + 1
		}
		out, rules = append(out, rules[:n]), rules[n:]
	}
	return out
}

// writeBare writes pieces that are there already, one write(2) each, and gives the milliseconds from the first to the last.
func writeBare(fs smackfs.FS, pieces [][]byte) (float64, error) {
	f, err := fs.Open("load2", unix.O_WRONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	start := time.Now()
	for _, p := range pieces {
		if n, err := f.Write(p); err != nil || n != len(p) {
			return 0, fmt.Errorf("wrote %d of %d bytes: %w", n, len(p), err)
		}
	}
	return since(start), nil
}

// clearAndLoad is what smackctl apply does: every rule that the kernel shows is set to no access, then the new ones are
// loaded.
func clearAndLoad(fs smackfs.FS, rules []byte) (float64, error) {
	start := time.Now()
	set, err := smackfs.ReadRules(fs)
	if err != nil {
		return 0, err
	}
	for _, pieces := range [][][]byte{chunks(denials(text(set)), maxWrite), chunks(rules, maxWrite)} {
		if _, err := writeBare(fs, pieces); err != nil {
			return 0, err
		}
	}
	return since(start), nil
}

// timedFS takes the time from the beginning of the first write to the opening of load2 for reading after it. It looks at the
// clock no more often: in a guest that is a system call.
type timedFS struct {
	smackfs.FS
	first, last time.Time
	after       func() // called after each write
}

func (t *timedFS) Unwrap() smackfs.FS { return t.FS }

func (t *timedFS) Open(name string, flag int) (smackfs.File, error) {
	if flag == unix.O_RDONLY && !t.first.IsZero() && t.last.IsZero() {
		t.last = time.Now()
	}
	f, err := t.FS.Open(name, flag)
	if err != nil || flag != unix.O_WRONLY {
		return f, err
	}
	timed := &timedFile{f, t}
	if p, ok := f.(piecesWriter); ok && t.after == nil {
		return &timedPieces{timed, p}, nil
	}
	return timed, nil
}

// writing gives milliseconds.
func (t *timedFS) writing() float64 { return float64(t.last.Sub(t.first).Nanoseconds()) / 1e6 }

type timedFile struct {
	smackfs.File
	t *timedFS
}

// piecesWriter is a file that takes several writes in one system call.
type piecesWriter interface {
	WritePieces(pieces [][]byte) (int, error)
}

type timedPieces struct {
	*timedFile
	p piecesWriter
}

func (f *timedPieces) WritePieces(pieces [][]byte) (int, error) {
	f.t.begin()
	return f.p.WritePieces(pieces)
}

func (t *timedFS) begin() {
	if t.first.IsZero() {
		t.first = time.Now()
	}
}

func (f *timedFile) Write(p []byte) (int, error) {
	if len(p) == 0 { // a look at the privilege
		return f.File.Write(p)
	}
	f.t.begin()
	n, err := f.File.Write(p)
	if f.t.after != nil {
		f.t.after()
	}
	return n, err
}

// warm does what is measured afterwards once where it costs next to nothing. The pages of a program come from the host one by
// one when they are first used, which is no part of a load.
func warm(set *smack.Set, rules []byte) error {
	shown := newestFirst(rules)
	for range 3 {
		fs := &memoryFS{after: shown}
		if _, err := writeBare(fs, chunks(rules, maxWrite)); err != nil {
			return err
		}
		if _, _, _, err := timedLoad(&memoryFS{after: shown}, set, nil, nil); err != nil {
			return err
		}
	}
	runtime.GC()
	return nil
}

func takeBare(fs smackfs.FS, shape smacktest.Shape) (values, error) {
	set, err := compiled(shape)
	if err != nil {
		return nil, err
	}
	rules := text(set)
	pieces := chunks(rules, maxWrite)
	if err := warm(set, rules); err != nil {
		return nil, err
	}
	ms, err := writeBare(fs, pieces)
	return values{"ms": ms, "writes": float64(len(pieces)), "bytes": float64(len(rules))}, err
}

func takeSingle(fs smackfs.FS, shape smacktest.Shape) (values, error) {
	set, err := compiled(shape)
	if err != nil {
		return nil, err
	}
	rules := text(set)
	pieces := chunks(rules, 0)
	if err := warm(set, rules); err != nil {
		return nil, err
	}
	ms, err := writeBare(fs, pieces)
	return values{"ms": ms, "writes": float64(len(pieces))}, err
}
