package fleet

import (
	"encoding/binary"
	"fmt"

	"policyd.dev/policyd/internal/errs"
)

// appendString writes a length and the bytes.
func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader takes fields off the front of bytes; after an error it gives zeros.
type reader struct {
	rest []byte
	what string // for messages
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %s", errs.ErrInvalid, r.what, fmt.Sprintf(format, args...))
	}
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.rest) {
		r.fail("cut off")
		return make([]byte, min(n, 64))
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) byte() byte { return r.take(1)[0] }

// num reads a number in its shortest form, at most most.
func (r *reader) num(most int) int {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	switch {
	case n <= 0:
		r.fail("cut off")
	case n > 1 && r.rest[n-1] == 0:
		r.fail("a number is not in its shortest form")
	case v > uint64(most):
		r.fail("%d is beyond %d", v, most)
	default:
		r.rest = r.rest[n:]
		return int(v)
	}
	return 0
}

// count reads how many things follow, each of at least size bytes.
func (r *reader) count(most, size int) int {
	n := r.num(most)
	if r.err == nil && n > len(r.rest)/size {
		r.fail("%d things do not fit into what is left", n)
		return 0
	}
	return n
}

func (r *reader) string(most int) string {
	n := r.num(most)
	if r.err != nil {
		return ""
	}
	return string(r.take(n))
}

// end is the error so far, or that something is left over.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail("%d bytes are left over", len(r.rest))
	}
	return r.err
}
