package smackfs

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	maxLevel    = 255 // SMACK_CIPSO_MAXLEVEL
	maxCategory = 184 // SMACK_CIPSO_MAXCATNUM
	cipsoDigits = 4   // SMK_DIGITLEN
	minCipso    = oldLabelLen + 2*cipsoDigits
	maxCipso    = minCipso + maxCategory*cipsoDigits
	minNetlabel = 9 // SMK_NETLBLADDRMIN
)

func writeCipso(fs *modelFS, f *modelFile, p []byte) (int, error) { return fs.writeCipso(f, p, true) }

func writeCipso2(fs *modelFS, f *modelFile, p []byte) (int, error) { return fs.writeCipso(f, p, false) }

// writeCipso is smk_set_cipso: numbers stand in columns of four bytes, and the label is made whatever follows it.
func (fs *modelFS) writeCipso(f *modelFile, p []byte, fixed bool) (int, error) {
	m := fs.m
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if f.pos != 0 || (fixed && (len(p) < minCipso || len(p) > maxCipso)) || len(p) > pageSize {
		return 0, unix.EINVAL
	}
	l, err := m.importLabel(cString(p), 0)
	if err != nil {
		return 0, err
	}
	at := len(l.name) + 1
	if fixed {
		at = oldLabelLen
	}
	column := func(signed bool, most uint64) (uint64, error) {
		if at > len(p) {
			return 0, unix.EOVERFLOW
		}
		s := fs.m.kernel.scan(p[at:])
		v := s.number(10, signed)
		if signed {
			v = uint64(int64(int32(v)))
		} else {
			v = uint64(uint32(v))
		}
		if s.n != 1 || v > most {
			return 0, unix.EINVAL
		}
		at += cipsoDigits
		return v, nil
	}
	level, err := column(true, maxLevel)
	if err != nil {
		return 0, err
	}
	n, err := column(true, maxCategory)
	if err != nil {
		return 0, err
	}
	if fixed && len(p) != minCipso+int(n)*cipsoDigits {
		return 0, unix.EINVAL
	}
	cats := make([]byte, oldLabelLen)
	for range n {
		cat, err := column(false, maxCategory)
		if err != nil {
			return 0, err
		}
		if cat > 0 {
			cats[(cat-1)/8] |= 0x80 >> ((cat - 1) % 8)
		}
	}
	l.level, l.cats = int(level), cats
	return len(p), nil
}

func showCipso(maxLen int) func(*modelFS) []byte {
	return func(fs *modelFS) []byte {
		var out []byte
		for _, l := range slices.Backward(fs.m.known) {
			if len(l.name) >= maxLen {
				continue
			}
			out = fmt.Appendf(out, "%s %3d", l.name, l.level)
			sep := byte('/')
			for i := range len(l.cats) * 8 {
				if l.cats[i/8]&(0x80>>(i%8)) != 0 {
					out = fmt.Appendf(out, "%c%d", sep, i+1)
					sep = ','
				}
			}
			out = append(out, '\n')
		}
		return out
	}
}

type modelNet4 struct {
	host  uint32
	bits  int
	label *modelLabel // nil: -CIPSO
}

// writeNet4 is smk_write_net4addr: octets wrap, host bits are dropped.
func writeNet4(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if f.pos != 0 || len(p) < minNetlabel || len(p) > pageSize-1 {
		return 0, unix.EINVAL
	}
	host := func(s *scanner) (v uint32) {
		for i := range 4 {
			if i > 0 {
				s.lit('.')
			}
			v = v<<8 | uint32(byte(s.number(10, true)))
		}
		return v
	}
	s := fs.m.kernel.scan(p)
	addr := host(s)
	s.lit('/')
	bits := uint32(s.number(10, false))
	s.lit(' ')
	word := s.word()
	if s.n != 6 {
		s = fs.m.kernel.scan(p)
		addr, bits = host(s), 32
		s.lit(' ')
		if word = s.word(); s.n != 5 {
			return 0, unix.EINVAL
		}
	}
	if bits > 32 {
		return 0, unix.EINVAL
	}
	var label *modelLabel
	if len(word) > 0 && word[0] == '-' {
		if string(word) != "-CIPSO" {
			return 0, unix.EINVAL
		}
	} else {
		var err error
		if label, err = fs.m.importLabel(word, 0); err != nil {
			return 0, err
		}
	}
	addr &= uint32(^uint64(0) << (32 - bits))
	for _, n := range fs.m.net4 {
		if n.host == addr && n.bits == int(bits) {
			n.label = label
			return len(p), nil
		}
	}
	n := &modelNet4{host: addr, bits: int(bits), label: label}
	at := insertAt(len(fs.m.net4), func(i int) bool { return n.bits > fs.m.net4[i].bits })
	fs.m.net4 = slices.Insert(fs.m.net4, at, n)
	return len(p), nil
}

// insertAt is where smk_net4addr_insert and its sibling put an entry: before the first one it is longer than.
func insertAt(n int, longer func(i int) bool) int {
	for i := range n {
		if longer(i) {
			return i
		}
	}
	return n
}

func showNet4(fs *modelFS) []byte {
	var out []byte
	for _, n := range fs.m.net4 {
		name := "-CIPSO"
		if n.label != nil {
			name = n.label.name
		}
		out = fmt.Appendf(out, "%d.%d.%d.%d/%d %s\n", n.host>>24, n.host>>16&255, n.host>>8&255, n.host&255, n.bits, name)
	}
	return out
}

type modelNet6 struct {
	host  [8]uint16
	bits  int
	label *modelLabel // nil: deleted, hidden
}

// writeNet6 is smk_write_net6addr. The mask of a group that is cut is made in host byte order (little endian here), so
// that it keeps other bits than asked.
func writeNet6(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if f.pos != 0 || len(p) < minNetlabel || len(p) > pageSize-1 {
		return 0, unix.EINVAL
	}
	var groups [8]uint32
	host := func(s *scanner) {
		for i := range groups {
			if i > 0 {
				s.lit(':')
			}
			if v := s.number(16, false); !s.bad {
				groups[i] = uint32(v)
			}
		}
	}
	bits := uint32(128)
	s := fs.m.kernel.scan(p)
	host(s)
	s.lit('/')
	if v := s.number(10, false); !s.bad {
		bits = uint32(v) // stays when the rest does not match
	}
	s.lit(' ')
	word := s.word()
	if s.n != 10 {
		s = fs.m.kernel.scan(p)
		host(s)
		s.lit(' ')
		if word = s.word(); s.n != 9 {
			return 0, unix.EINVAL
		}
	}
	if bits > 128 {
		return 0, unix.EINVAL
	}
	n := &modelNet6{bits: int(bits)}
	for i, g := range groups {
		if g > 0xffff {
			return 0, unix.EINVAL
		}
		n.host[i] = uint16(g)
	}
	if len(word) > 0 && word[0] == '-' {
		if string(word) != "-DELETE" {
			return 0, unix.EINVAL
		}
	} else {
		var err error
		if n.label, err = fs.m.importLabel(word, 0); err != nil {
			return 0, err
		}
	}
	left := n.bits
	for i := range n.host {
		mask := uint16(0xffff)
		if left < 16 {
			mask = 1<<left - 1
			mask = mask<<8 | mask>>8
		}
		n.host[i] &= mask
		left = max(left-16, 0)
	}
	for _, old := range fs.m.net6 {
		if old.host == n.host && old.bits == n.bits {
			old.label = n.label
			return len(p), nil
		}
	}
	at := insertAt(len(fs.m.net6), func(i int) bool { return n.bits > fs.m.net6[i].bits })
	fs.m.net6 = slices.Insert(fs.m.net6, at, n)
	return len(p), nil
}

func showNet6(fs *modelFS) []byte {
	var out []byte
	for _, n := range fs.m.net6 {
		if n.label == nil {
			continue
		}
		for i, g := range n.host {
			if i > 0 {
				out = append(out, ':')
			}
			out = fmt.Appendf(out, "%04x", g)
		}
		out = fmt.Appendf(out, "/%d %s\n", n.bits, n.label.name)
	}
	return out
}
