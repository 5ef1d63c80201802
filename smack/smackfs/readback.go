package smackfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/smack"
)

// Sizes of what load2 is read in. A piece is smaller than a page less the rules of most subjects: then the kernel fills it.
const (
	readBuffer = 32 << 10
	readPiece  = 1 << 10
)

// kernelRule is a rule that the kernel has, until the next one is asked for.
type kernelRule struct {
	subject, object []byte
	access          smack.Access
}

// lineReader reads load2 rule by rule, in one small buffer.
type lineReader struct {
	kernelRule

	f    File
	buf  []byte
	free [readBuffer / readPiece][]byte
	at   int // what of buf is taken
	eof  bool
	line int
}

func openRules(fs FS) (*lineReader, error) {
	f, err := fs.Open(fileLoad2, unix.O_RDONLY)
	if err != nil {
		return nil, explain(fs, err)
	}
	return &lineReader{f: f, buf: make([]byte, 0, readBuffer)}, nil
}

func (r *lineReader) close() { r.f.Close() }

func (r *lineReader) rule() *kernelRule { return &r.kernelRule }

// next gives whether there is a further rule. The kernel shows rules in one form; every other is an error, since then
// this is no smackfs, or none that is known here.
func (r *lineReader) next() (bool, error) {
	var line []byte
	for {
		if i := bytes.IndexByte(r.buf[r.at:], '\n'); i >= 0 {
			line = r.buf[r.at : r.at+i+1]
			break
		}
		if r.eof {
			if r.at < len(r.buf) {
				return false, fmt.Errorf("load2 ends within a rule: %.120q", r.buf[r.at:])
			}
			return false, nil
		}
		if err := r.fill(); err != nil {
			return false, err
		}
	}
	r.at += len(line)
	r.line++
	if !r.parse(line[:len(line)-1]) {
		return false, fmt.Errorf("line %d of load2 is no rule: %.120q", r.line, line)
	}
	return true, nil
}

// nextIs is next for a line of that pair which is in the buffer whole, and else false: a quick way through rules that
// come as expected.
func (r *lineReader) nextIs(subject, object string) bool {
	b := r.buf[r.at:]
	n := len(subject) + 1
	end := n + len(object)
	if end >= len(b) || string(b[n:end]) != object || string(b[:n-1]) != subject || b[n-1] != ' ' || b[end] != ' ' {
		return false
	}
	access := smack.Access(0)
	for i, c := range b[end+1:] {
		bit := accessBit[c]
		if bit != 0 {
			access |= bit
			continue
		}
		if c != '\n' || access == 0 {
			return false
		}
		r.subject, r.object, r.access = b[:n-1], b[n:end], access
		r.at += end + 1 + i + 1
		r.line++
		return true
	}
	return false
}

func (r *lineReader) fill() error {
	r.buf = r.buf[:copy(r.buf, r.buf[r.at:])]
	r.at = 0
	if len(r.buf) == cap(r.buf) {
		return fmt.Errorf("line %d of load2 has more than %d bytes", r.line+1, len(r.buf))
	}
	n, err := r.read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if errors.Is(err, io.EOF) {
		r.eof, err = true, nil
	}
	return err
}

func (r *lineReader) read(buf []byte) (int, error) {
	f, ok := r.f.(piecesReader)
	if !ok {
		return r.f.Read(buf)
	}
	pieces := r.free[:0]
	for piece := range slices.Chunk(buf, readPiece) {
		pieces = append(pieces, piece)
	}
	return f.ReadPieces(pieces)
}

func (r *lineReader) parse(line []byte) bool {
	i := bytes.IndexByte(line, ' ')
	j := bytes.LastIndexByte(line, ' ')
	if i <= 0 || j <= i+1 || j == len(line)-1 {
		return false
	}
	r.subject, r.object = line[:i], line[i+1:j]
	if bytes.IndexByte(r.object, ' ') >= 0 {
		return false
	}
	r.access = 0
	for _, c := range line[j+1:] {
		bit := accessBit[c]
		if bit == 0 {
			return false
		}
		r.access |= bit
	}
	return true
}

// accessBit maps the letters that the kernel shows.
var accessBit = func() (t [256]smack.Access) {
	for i := range len(modelLetters) {
		t[modelLetters[i]] = 1 << i
	}
	return t
}()

// ReadRules reads the rules that the kernel has, all of them of non-zero access: it hides the rest. While others make
// labels the kernel repeats rules; each pair is in the set once.
func ReadRules(fs FS) (*smack.Set, error) {
	r, err := openRules(fs)
	if err != nil {
		return nil, err
	}
	defer r.close()
	b := smack.NewSetBuilder()
	for {
		ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return b.Build()
		}
		b.Set(string(r.subject), string(r.object), r.access)
	}
}
