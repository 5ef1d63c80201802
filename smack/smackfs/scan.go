package smackfs

import "math"

// isSpace is the kernel's isspace(): ASCII's six and the byte 0xA0.
func isSpace(c byte) bool {
	return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xa0
}

// stopByte says whether a label ends at this byte (smk_parse_label_len).
func stopByte(c byte) bool {
	return c <= ' ' || c > '~' || c == '/' || c == '"' || c == '\\' || c == '\''
}

// scanner is the kernel's vsscanf() for the conversions smackfs uses. b ends at its first NUL, like a C string.
type scanner struct {
	b []byte
	n int // conversions made
	// bad stops everything after the first conversion or literal that did not match
	bad bool
	// wrap says that digits beyond 64 bits wrap, as in 6.1; later kernels take the greatest number instead.
	wrap bool
}

func (k ModelKernel) scan(b []byte) *scanner {
	return &scanner{b: cString(b), wrap: k.Old}
}

func (s *scanner) spaces() {
	for len(s.b) > 0 && isSpace(s.b[0]) {
		s.b = s.b[1:]
	}
}

// lit matches one byte of the format; a blank matches any white space.
func (s *scanner) lit(c byte) {
	if s.bad {
		return
	}
	if c == ' ' {
		s.spaces()
		return
	}
	if len(s.b) == 0 || s.b[0] != c {
		s.bad = true
		return
	}
	s.b = s.b[1:]
}

func digit(c byte, base uint64) (uint64, bool) {
	var v uint64
	switch {
	case c >= '0' && c <= '9':
		v = uint64(c - '0')
	case c >= 'a' && c <= 'f':
		v = uint64(c-'a') + 10
	case c >= 'A' && c <= 'F':
		v = uint64(c-'A') + 10
	default:
		return 0, false
	}
	return v, v < base
}

// number converts %d (signed), %u or %x. Numbers that do not fit do not fail.
func (s *scanner) number(base uint64, signed bool) uint64 {
	if s.bad {
		return 0
	}
	s.spaces()
	b, neg := s.b, false
	if signed && len(b) > 0 && b[0] == '-' {
		b, neg = b[1:], true
	}
	if len(b) == 0 {
		s.bad = true
		return 0
	}
	if _, ok := digit(b[0], base); !ok {
		s.bad = true
		return 0
	}
	if base == 16 && len(b) > 2 && b[0] == '0' && (b[1]|0x20) == 'x' {
		if _, ok := digit(b[2], 16); ok {
			b = b[2:]
		}
	}
	var v uint64
	over := false
	for len(b) > 0 {
		d, ok := digit(b[0], base)
		if !ok {
			break
		}
		over = over || v > (math.MaxUint64-d)/base
		v, b = v*base+d, b[1:]
	}
	if over && !s.wrap {
		v = math.MaxUint64
	}
	if neg {
		v = -v
	}
	s.b = b
	s.n++
	return v
}

// word converts %s.
func (s *scanner) word() []byte {
	if s.bad || len(s.b) == 0 {
		s.bad = true
		return nil
	}
	s.spaces()
	i := 0
	for i < len(s.b) && !isSpace(s.b[i]) {
		i++
	}
	w := s.b[:i]
	s.b = s.b[i:]
	s.n++
	return w
}
