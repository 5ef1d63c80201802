package smack

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// The encoding is described byte by byte in docs/formats.md. Everything up to the
// version byte may never change; everything after it is the version's own.
const (
	magic         = "\x89PDSP\r\n\x1a" // not text, and broken by whatever converts line ends
	formatVersion = 1

	clearOnlycap     = 1 << 0
	clearUnconfined  = 1 << 1
	clearRelabelSelf = 1 << 2

	minLayerBytes = 3 // a name of one byte, a mask
	minLabelBytes = 2 // a length, a byte
)

// Encode gives the policy's bytes. They are a function of the policy alone, and
// [Decode] gives it back with its settings in order. The policy must be valid.
func (p *Policy) Encode() []byte {
	b := make([]byte, 0, 256+len(p.t.text)+2*len(p.t.end)+len(p.t.object)+len(p.t.object)/8+len(p.mask))
	b = append(b, magic...)
	b = append(b, formatVersion)
	b = appendString(b, p.Name)
	b = appendNum(b, len(p.Layers))
	for _, l := range p.Layers {
		b = append(appendString(b, l.Name), byte(l.Handled))
	}
	b = appendNum(b, p.t.labels())
	for i := range p.t.labels() {
		b = appendString(b, p.t.label(i))
	}
	b = appendNum(b, p.Len())
	for sub := range p.t.labels() {
		lo, hi := p.t.first[sub], p.t.first[sub+1]
		b = appendNum(b, int(hi-lo))
		next := 0
		for i := lo; i < hi; i++ {
			object := int(p.t.object[i])
			b = appendNum(b, object-next)
			next = object + 1
			for n := range p.Layers {
				b = append(b, byte(p.mask[int(i)*len(p.Layers)+n]))
			}
		}
	}
	return appendSettings(b, &p.Settings)
}

// Digest names encoded bytes: "sha256:" and the SHA-256 in lower-case hex.
func Digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func appendNum(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

func appendString(b []byte, s string) []byte { return append(appendNum(b, len(s)), s...) }

func appendStrings(b []byte, list []string) []byte {
	b = appendNum(b, len(list))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendSettings(b []byte, settings *Settings) []byte {
	s := settings.Canonical()
	b = binary.AppendUvarint(b, uint64(s.DOI))
	for _, n := range [...]*uint8{s.Direct, s.Mapped, s.PTrace, s.Logging} {
		if n == nil {
			b = append(b, 0)
		} else {
			b = append(b, 1, *n)
		}
	}
	for _, label := range [...]string{s.Ambient, s.Syslog, s.Unconfined} {
		b = appendString(b, label)
	}
	var flags byte
	set := func(flag byte, on bool) {
		if on {
			flags |= flag
		}
	}
	set(clearOnlycap, s.ClearOnlycap)
	set(clearUnconfined, s.ClearUnconfined)
	set(clearRelabelSelf, s.ClearRelabelSelf)
	b = append(b, flags)
	b = appendStrings(b, s.Onlycap)
	b = appendStrings(b, s.RelabelSelf)
	b = appendNum(b, len(s.Cipso))
	for _, c := range s.Cipso {
		b = append(appendString(b, c.Label), byte(c.Level))
		b = append(b, byte(len(c.Categories)))
		for _, n := range c.Categories {
			b = append(b, byte(n))
		}
	}
	b = appendNum(b, len(s.Netlabel))
	for _, n := range s.Netlabel {
		a := n.Prefix.Addr().As4()
		b = append(append(b, a[:]...), byte(n.Prefix.Bits()))
		b = appendString(b, n.Label)
	}
	b = appendNum(b, len(s.IPv6Host))
	for _, h := range s.IPv6Host {
		a := h.Prefix.Addr().As16()
		b = append(append(b, a[:]...), byte(h.Prefix.Bits()))
		b = appendString(b, h.Label)
	}
	return b
}
