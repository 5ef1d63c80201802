package smackfs

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// piecesFS takes several writes in one call as the kernel does, and asks a hook about each: how many bytes of it are
// taken, and with which error.
type piecesFS struct {
	FS
	calls int
	hook  func(p []byte) (int, error)
}

func (s *piecesFS) Open(name string, flag int) (File, error) {
	f, err := s.FS.Open(name, flag)
	return &piecesFile{f, s}, err
}

type piecesFile struct {
	File
	s *piecesFS
}

func (f *piecesFile) one(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if f.s.hook != nil {
		n, err = f.s.hook(p)
	}
	if n > 0 {
		if _, werr := f.File.Write(p[:n]); werr != nil {
			return 0, werr
		}
	}
	if err != nil {
		return 0, err // what was loaded before stays, and no count tells of it
	}
	return n, nil
}

func (f *piecesFile) Write(p []byte) (int, error) {
	f.s.calls++
	return f.one(p)
}

func (f *piecesFile) WritePieces(pieces [][]byte) (total int, err error) {
	f.s.calls++
	for _, p := range pieces {
		n, err := f.one(p)
		if err != nil && total == 0 {
			return 0, err
		}
		total += n
		if err != nil || n < len(p) {
			break
		}
	}
	return total, nil
}

func TestPieces(t *testing.T) {
	want := generated(t, 1)
	var rules []smack.Rule
	for r := range want.All() {
		rules = append(rules, r)
	}
	load := func(fs *piecesFS) (*writer, error) {
		w := &writer{fs: fs}
		defer w.close()
		return w, w.write(t.Context(), slices.Values(rules))
	}

	fs := &piecesFS{FS: newModel()}
	w, err := load(fs)
	if err != nil || w.written != len(rules) || w.writes != fs.calls || fs.calls > 2+w.bytes/maxWrite/pieces {
		t.Fatalf("%d rules of %d, %d bytes in %d calls (%d seen): %v", w.written, len(rules), w.bytes, w.writes, fs.calls, err)
	}
	same(t, "all taken", rulesOf(t, fs), nonZero(pairs(want)))

	// Wherever one is cut or refused: in the first of a call, in the midst, in the last; in the first call or later.
	for _, at := range []int{0, 1, 7, 15, 16, 17, 40, len(rules)/200 + 1} {
		n := 0
		fs := &piecesFS{FS: newModel(), hook: func(p []byte) (int, error) {
			if n++; n == at+1 {
				return len(p) / 2, nil // perhaps within a rule
			}
			return len(p), nil
		}}
		fs.hook = wholeRules(fs.hook)
		if w, err := load(fs); err != nil || w.written != len(rules) {
			t.Fatalf("piece %d cut: %d rules: %v", at, w.written, err)
		}
		same(t, "cut", rulesOf(t, fs), nonZero(pairs(want)))

		broken := &piecesFS{FS: newModel()}
		n = 0
		broken.hook = func(p []byte) (int, error) {
			if n++; n > at {
				return 0, unix.EIO
			}
			return len(p), nil
		}
		w, err := load(broken)
		if !errors.Is(err, unix.EIO) {
			t.Fatalf("piece %d broken: %v", at, err)
		}
		same(t, "broken", rulesOf(t, broken), before(rules, w.written))
	}
	for _, at := range []int{0, 1, 100, 101, 1500, 9000, len(rules) - 1} {
		bad := rules[at].Append(nil)
		fs := &piecesFS{FS: newModel(), hook: func(p []byte) (int, error) {
			if i := bytes.Index(append([]byte("\n"), p...), append([]byte("\n"), bad...)); i >= 0 {
				return i, unix.EINVAL
			}
			return len(p), nil
		}}
		w, err := load(fs)
		if !errors.Is(err, errs.ErrSmackRefused) || !bytes.Contains([]byte(err.Error()), bytes.TrimSpace(bad)) || w.written > at {
			t.Fatalf("rule %d refused: %d written: %v", at, w.written, err)
		}
		same(t, "refused", rulesOf(t, fs), before(rules, at))
	}
}

// wholeRules makes what a hook lets through end with a rule, as the kernel's cut of a page does.
func wholeRules(hook func([]byte) (int, error)) func([]byte) (int, error) {
	return func(p []byte) (int, error) {
		n, err := hook(p)
		return bytes.LastIndexByte(p[:n], '\n') + 1, err
	}
}

func before(rules []smack.Rule, n int) map[string]smack.Access {
	m := map[string]smack.Access{}
	for _, r := range rules[:n] {
		if r.Access != 0 {
			m[r.Subject+" "+r.Object] = r.Access
		}
	}
	return m
}
