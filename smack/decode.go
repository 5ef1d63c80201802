package smack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// Decode reads what [Policy.Encode] wrote, and nothing else: encoding the policy
// again gives the same bytes. Its memory is bounded by a multiple of the input. The
// error wraps [ErrVersion], [ErrLimit] or [ErrFormat].
func Decode(b []byte) (*Policy, error) {
	if len(b) > maxPolicyBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrLimit, len(b), maxPolicyBytes)
	}
	if len(b) < len(magic)+1 || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrFormat)
	}
	if v := b[len(magic)]; v != formatVersion {
		return nil, fmt.Errorf("%w: %d, this program reads %d", ErrVersion, v, formatVersion)
	}
	d := decoder{in: b, at: len(magic) + 1}
	p := &Policy{}
	d.head(p)
	d.labels(p)
	d.rows(p)
	d.settings(&p.Settings)
	if d.err == nil && d.at < len(b) {
		d.fail("%d bytes behind the end", len(b)-d.at)
	}
	if d.err != nil {
		return nil, d.err
	}
	return p, nil
}

// decoder reads one encoding. After an error every read gives zero.
type decoder struct {
	in  []byte
	at  int
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: byte %d: %s", ErrFormat, d.at, fmt.Sprintf(format, args...))
	}
}

func (d *decoder) left() int { return len(d.in) - d.at }

func (d *decoder) bytes(n int) []byte {
	if d.err == nil && n > d.left() {
		d.fail("%d bytes are missing", n-d.left())
	}
	if d.err != nil {
		return make([]byte, min(n, 16))
	}
	d.at += n
	return d.in[d.at-n : d.at]
}

func (d *decoder) u8() byte { return d.bytes(1)[0] }

// num reads a number in its shortest form, at most most.
func (d *decoder) num(most uint64, what string) int {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.in[d.at:])
	switch {
	case n <= 0 || n > 1 && d.in[d.at+n-1] == 0:
		d.fail("%s is no number in its shortest form", what)
		return 0
	case v > most:
		d.fail("%s: %d, at most %d", what, v, most)
		return 0
	}
	d.at += n
	return int(v)
}

// count reads how many things of at least size bytes follow.
func (d *decoder) count(most, size int, what string) int {
	n := d.num(uint64(most), what)
	if d.err == nil && n > d.left()/size {
		d.fail("%s: %d do not fit into what is left", what, n)
		return 0
	}
	return n
}

// string reads a name or a label; both are at most 255 bytes.
func (d *decoder) string(what string) string {
	n := d.count(MaxLabel, 1, what)
	if d.err != nil || n == 0 {
		return ""
	}
	return string(d.bytes(n))
}

// check turns the error of a check into one of the format.
func (d *decoder) check(err error) {
	if err != nil {
		d.fail("%v", err)
	}
}

func (d *decoder) head(p *Policy) {
	p.Name = d.string("length of the name")
	n := d.count(MaxLayers, minLayerBytes, "number of layers")
	p.Layers = make([]Layer, n)
	for i := range p.Layers {
		p.Layers[i] = Layer{Name: d.string("length of a layer's name"), Handled: Access(d.u8())}
	}
	if d.err == nil {
		d.check(p.checkHead())
	}
}

func (d *decoder) labels(p *Policy) {
	n := d.count(MaxLabels, minLabelBytes, "number of labels")
	p.t.end = make([]uint32, 0, n)
	text := make([]byte, 0, min(d.left(), n*32))
	last := ""
	for range n {
		label := d.string("length of a label")
		if d.err != nil {
			return
		}
		if err := CheckLabel(label); err != nil {
			d.check(err)
			return
		}
		if label <= last {
			d.fail("label %s stands behind %s", label, last)
			return
		}
		last = label
		text = append(text, label...)
		p.t.end = append(p.t.end, uint32(len(text)))
	}
	p.t.text = string(text)
}

func (d *decoder) rows(p *Policy) {
	layers := len(p.Layers)
	rows := d.count(MaxRules, 1+layers, "number of rows")
	if d.err == nil && rows*layers > maxRowLayers {
		d.fail("%d rows in %d layers, at most %d together", rows, layers, maxRowLayers)
	}
	if d.err != nil {
		return
	}
	labels := p.t.labels()
	used := make([]bool, labels)
	p.t.first = make([]uint32, labels+1)
	p.t.object = make([]uint16, 0, rows)
	p.mask = make([]Access, 0, rows*layers)
	for sub := range labels {
		n := d.count(rows-len(p.t.object), 1+layers, "number of a subject's rows")
		next := 0
		for range n {
			object := next + d.num(math.MaxUint16, "object")
			masks := d.bytes(layers)
			if d.err != nil {
				return
			}
			if object >= labels {
				d.fail("object %d of %d labels", object, labels)
				return
			}
			next = object + 1
			d.masks(p, masks)
			p.t.object = append(p.t.object, uint16(object))
			used[sub], used[object] = true, true
		}
		p.t.first[sub+1] = uint32(len(p.t.object))
	}
	if len(p.t.object) != rows {
		d.fail("%d rows, not %d", len(p.t.object), rows)
	}
	for i, u := range used {
		if !u {
			d.fail("no row names the label %s", p.t.label(i))
		}
	}
}

// masks takes the masks of one row.
func (d *decoder) masks(p *Policy, masks []byte) {
	any := false
	for i, m := range masks {
		a := Access(m)
		if a&stated == 0 && a != 0 || a&^stated&^p.Layers[i].Handled != 0 {
			d.fail("mask %#x in layer %s", m, p.Layers[i].Name)
			return
		}
		any = any || a&stated != 0
		p.mask = append(p.mask, a)
	}
	if !any {
		d.fail("a row that no layer has a rule for")
	}
}

func (d *decoder) settings(s *Settings) {
	from := d.at
	s.DOI = uint32(d.num(math.MaxUint32, "doi"))
	for _, n := range [...]**uint8{&s.Direct, &s.Mapped, &s.PTrace, &s.Logging} {
		switch d.u8() {
		case 0:
		case 1:
			*n = new(d.u8())
		default:
			d.fail("a setting is neither there nor not there")
		}
	}
	for _, label := range [...]*string{&s.Ambient, &s.Syslog, &s.Unconfined} {
		*label = d.string("length of a label")
	}
	flags := d.u8()
	s.ClearOnlycap = flags&clearOnlycap != 0
	s.ClearUnconfined = flags&clearUnconfined != 0
	s.ClearRelabelSelf = flags&clearRelabelSelf != 0
	for _, list := range [...]*[]string{&s.Onlycap, &s.RelabelSelf} {
		for range d.count(maxLabelList, minLabelBytes, "number of labels") {
			*list = append(*list, d.string("length of a label"))
		}
	}
	for range d.count(maxEntries, 4, "number of cipso entries") {
		c := Cipso{Label: d.string("length of a label"), Level: int(d.u8())}
		for _, n := range d.bytes(int(d.u8())) {
			c.Categories = append(c.Categories, int(n))
		}
		s.Cipso = append(s.Cipso, c)
	}
	for range d.count(maxEntries, 7, "number of netlabel entries") {
		p := d.prefix(4)
		s.Netlabel = append(s.Netlabel, Netlabel{p, d.string("length of a label")})
	}
	for range d.count(maxEntries, 19, "number of ipv6host entries") {
		p := d.prefix(16)
		s.IPv6Host = append(s.IPv6Host, IPv6Host{p, d.string("length of a label")})
	}
	if d.err != nil {
		return
	}
	d.check(s.Validate())
	if d.err == nil && !bytes.Equal(appendSettings(nil, s), d.in[from:d.at]) {
		d.fail("the settings are not in order")
	}
}

func (d *decoder) prefix(size int) netip.Prefix {
	a, _ := netip.AddrFromSlice(d.bytes(size))
	return netip.PrefixFrom(a, int(d.u8()))
}
