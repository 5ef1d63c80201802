package profile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Decode reads what Encode wrote and nothing else: every number is in its
// shortest form, every length is checked before anything is allocated for it,
// no byte is left over, the checksum is theirs, and the profile is valid. So encoding the result gives
// b again, and the memory used is at most some 64 times len(b). Errors are
// ErrFormat, ErrVersion, ErrLimit or ErrInvalid.
func Decode(b []byte) (*Profile, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrLimit, len(b), MaxEncoded)
	}
	d := decoder{rest: b}
	if string(d.bytes(len(magic))) != magic {
		return nil, fmt.Errorf("%w: no profile's first bytes", ErrFormat)
	}
	if v := d.byte(); d.err == nil && v != formatVersion {
		return nil, fmt.Errorf("%w: %d, this is made for %d", ErrVersion, v, formatVersion)
	}
	sealed := len(b) - sumBytes
	if d.err == nil && (sealed < len(b)-len(d.rest) || binary.BigEndian.Uint32(b[sealed:]) != checksum(b[:sealed])) {
		return nil, fmt.Errorf("%w: the bytes do not match their checksum: some are missing or were changed", ErrFormat)
	}
	if d.err == nil {
		d.rest = d.rest[:len(d.rest)-sumBytes]
	}
	p := d.profile()
	if d.err == nil && len(d.rest) != 0 {
		d.fail(ErrFormat, "%d bytes too many", len(d.rest))
	}
	if d.err != nil {
		return nil, fmt.Errorf("at byte %d: %w", max(sealed, 0)-len(d.rest), d.err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// decoder takes bytes off the front of rest. After an error it gives zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) profile() *Profile {
	p := &Profile{ABI: int(d.byte())}
	f := d.byte()
	if f&^headAll != 0 {
		d.fail(ErrFormat, "unknown flags %#x", f&^headAll)
	}
	p.Degrade = f&headDegrade != 0
	p.AcceptSharedInode = f&headSharedInode != 0
	p.AcceptReferFlatten = f&headReferFlat != 0
	p.Flatten = f&headFlatten != 0
	p.Name = d.string("length of name", MaxName)
	p.Layers = d.layers()
	p.Paths = d.paths(len(p.Layers))
	p.Ports = d.ports(len(p.Layers))
	return p
}

func (d *decoder) layers() []Layer {
	n := d.count("layers", MaxLayers, minLayerBytes)
	if n == 0 {
		return nil
	}
	layers := make([]Layer, n)
	for i := range layers {
		l := &layers[i]
		l.Name = d.string("length of layer name", MaxName)
		for _, m := range [...]*Access{&l.FS, &l.Net, &l.Scope, &l.QuietFS, &l.QuietNet, &l.QuietScope} {
			*m = Access(d.number("mask", math.MaxUint32))
		}
		l.Log = LogFlags(d.byte())
	}
	return layers
}

func (d *decoder) paths(layers int) []PathRow {
	n := d.count("paths", MaxPathRows, minPathRowBytes+layers)
	if n == 0 {
		return nil
	}
	masks := make([]Access, n*layers)
	rows := make([]PathRow, n)
	for i := range rows {
		r := &rows[i]
		r.Path = d.string("length of path", MaxPath)
		missing := d.byte()
		if missing&rowWithin != 0 {
			if r.Within = int(d.number("length of a folder", MaxPath)); r.Within == 0 {
				d.fail(ErrFormat, "path %.80q: a folder of no bytes", r.Path)
			}
		}
		r.Missing = Missing(missing &^ rowWithin)
		r.Access = d.masks(masks[i*layers : (i+1)*layers : (i+1)*layers])
		if d.err != nil {
			return nil
		}
	}
	return rows
}

func (d *decoder) ports(layers int) []PortRow {
	n := d.count("port ranges", MaxPortRows, minPortRowBytes+layers)
	if n == 0 {
		return nil
	}
	masks := make([]Access, n*layers)
	rows := make([]PortRow, n)
	for i := range rows {
		r := &rows[i]
		first := d.number("first port", math.MaxUint16)
		more := d.number("length of a port range", math.MaxUint16)
		if first+more > math.MaxUint16 {
			d.fail(ErrFormat, "ports %d-%d", first, first+more)
		}
		r.First, r.Last = uint16(first), uint16(first+more)
		r.Access = d.masks(masks[i*layers : (i+1)*layers : (i+1)*layers])
		if d.err != nil {
			return nil
		}
	}
	return rows
}

func (d *decoder) masks(to []Access) []Access {
	for i := range to {
		to[i] = Access(bits.RotateLeft32(uint32(d.number("mask", math.MaxUint32)), -1))
	}
	return to
}

func (d *decoder) fail(kind error, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
	}
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.rest) {
		d.fail(ErrFormat, "ends %d bytes early", n-len(d.rest))
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// number reads a LEB128 number of at most five bytes in its shortest form.
func (d *decoder) number(what string, limit uint64) uint64 {
	if d.err != nil {
		return 0
	}
	var v uint64
	for i := 0; i < len(d.rest) && i < 5; i++ {
		c := d.rest[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c&0x80 != 0 {
			continue
		}
		if c == 0 && i > 0 {
			d.fail(ErrFormat, "%s is not in its shortest form", what)
			return 0
		}
		if v > limit {
			d.fail(ErrLimit, "%s is %d, at most %d", what, v, limit)
			return 0
		}
		d.rest = d.rest[i+1:]
		return v
	}
	d.fail(ErrFormat, "%s does not end", what)
	return 0
}

// count reads how many things follow, each of at least size bytes, and refuses
// more than the bytes left can hold.
func (d *decoder) count(what string, limit, size int) int {
	n := int(d.number("number of "+what, uint64(limit)))
	if d.err == nil && n > len(d.rest)/size {
		d.fail(ErrFormat, "%d %s in %d bytes", n, what, len(d.rest))
		return 0
	}
	return n
}

// string reads a length, which what names, and as many bytes.
func (d *decoder) string(what string, limit int) string {
	n := d.number(what, uint64(limit))
	return string(d.bytes(int(n)))
}
