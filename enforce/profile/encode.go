package profile

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"sync"
)

// The encoding is described byte by byte in docs/profile-format.md. Everything
// before the version byte may never change; everything after it is the
// version's own.
const (
	magic         = "\x89PDLP\r\n\x1a" // not text, and broken by whatever converts line ends
	formatVersion = 2
	sumBytes      = 4 // CRC-32C, big-endian, of all bytes before it

	headDegrade     = 1 << 0
	headSharedInode = 1 << 1
	headReferFlat   = 1 << 2
	headFlatten     = 1 << 3
	headAll         = headDegrade | headSharedInode | headReferFlat | headFlatten

	rowWithin = 1 << 1 // beside Missing: a length of the folder follows

	minLayerBytes   = 8 // an empty name, six masks of one byte, flags
	minPathRowBytes = 2 // without masks
	minPortRowBytes = 2 // without masks
)

// Encode gives the profile's bytes. They are a function of the profile alone,
// and [Decode] gives it back. The profile must be valid.
func (p *Profile) Encode() []byte {
	b := make([]byte, 0, p.encodedGuess())
	b = append(b, magic...)
	b = append(b, formatVersion, byte(p.ABI), p.headFlags())
	b = appendString(b, p.Name)
	b = binary.AppendUvarint(b, uint64(len(p.Layers)))
	for i := range p.Layers {
		l := &p.Layers[i]
		b = appendString(b, l.Name)
		for _, m := range [...]Access{l.FS, l.Net, l.Scope, l.QuietFS, l.QuietNet, l.QuietScope} {
			b = binary.AppendUvarint(b, uint64(m))
		}
		b = append(b, byte(l.Log))
	}
	b = binary.AppendUvarint(b, uint64(len(p.Paths)))
	for i := range p.Paths {
		r := &p.Paths[i]
		b = appendString(b, r.Path)
		if r.Within == 0 {
			b = append(b, byte(r.Missing))
		} else {
			b = append(b, byte(r.Missing)|rowWithin)
			b = binary.AppendUvarint(b, uint64(r.Within))
		}
		b = appendMasks(b, r.Access)
	}
	b = binary.AppendUvarint(b, uint64(len(p.Ports)))
	for i := range p.Ports {
		r := &p.Ports[i]
		b = binary.AppendUvarint(b, uint64(r.First))
		b = binary.AppendUvarint(b, uint64(r.Last-r.First))
		b = appendMasks(b, r.Access)
	}
	return binary.BigEndian.AppendUint32(b, checksum(b))
}

// checksum finds what was cut off or changed by accident; who changes bytes on
// purpose changes it too, which only the digest shows. It is CRC-32C. The tables
// by which processors compute it take longer to make than a small profile's
// checksum takes without them, and a launcher needs one checksum in its life.
func checksum(b []byte) uint32 {
	if len(b) <= smallText {
		return crc32.Update(0, plainTable(), b)
	}
	return crc32.Checksum(b, castagnoli())
}

// smallText is about where both ways take as long, bytes.
const smallText = 8 << 10

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// plainTable is that of the polynomial too, and by its address none that package
// crc32 has instructions for.
var plainTable = sync.OnceValue(func() *crc32.Table {
	t := new(crc32.Table)
	for i := range t {
		c := uint32(i)
		for range 8 {
			if c&1 != 0 {
				c = c>>1 ^ crc32.Castagnoli
			} else {
				c >>= 1
			}
		}
		t[i] = c
	}
	return t
})

func (p *Profile) headFlags() byte {
	var f byte
	set := func(bit byte, on bool) {
		if on {
			f |= bit
		}
	}
	set(headDegrade, p.Degrade)
	set(headSharedInode, p.AcceptSharedInode)
	set(headReferFlat, p.AcceptReferFlatten)
	set(headFlatten, p.Flatten)
	return f
}

// encodedGuess is about the size of the encoding, so that it seldom grows.
func (p *Profile) encodedGuess() int {
	n := 64 + len(p.Name) + 64*len(p.Layers)
	for i := range p.Paths {
		n += 4 + len(p.Paths[i].Path)
	}
	return n + len(p.Ports)*5 + (len(p.Paths)+len(p.Ports))*len(p.Layers)*2
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendMasks writes each mask rotated left by one bit, QuietRule lowest, so
// that no mask in use takes more than three bytes.
func appendMasks(b []byte, masks []Access) []byte {
	for _, m := range masks {
		b = binary.AppendUvarint(b, uint64(bits.RotateLeft32(uint32(m), 1)))
	}
	return b
}
