package smack

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Options that stand in place of a label.
const (
	NetlabelCIPSO = "-CIPSO"  // hosts that understand CIPSO
	IPv6Delete    = "-DELETE" // takes an entry of ipv6host away
)

// maxExpansion is how many entries one prefix of ipv6host may become: those of a
// prefix of 8 bits beyond a multiple of 16.
const maxExpansion = 256

// Netlabel is the label of IPv4 hosts that send none, or [NetlabelCIPSO]. An
// entry cannot be deleted from the kernel.
type Netlabel struct {
	Prefix netip.Prefix // IPv4, without bits beyond the mask
	Label  string
}

// Append appends what netlabel takes.
func (n Netlabel) Append(b []byte) []byte {
	return append(append(n.Prefix.AppendTo(b), ' '), n.Label...)
}

// NewNetlabel reads "a.b.c.d" or "a.b.c.d/m" and checks the label. Each number of
// the address is 0 to 255, where the kernel takes 300 for 44. Bits beyond the
// mask are cut off, as the kernel does.
func NewNetlabel(address, label string) (Netlabel, error) {
	p, err := parsePrefix(address, 32)
	if err != nil {
		return Netlabel{}, err
	}
	if !p.Addr().Is4() {
		return Netlabel{}, fmt.Errorf("%w: %s is no IPv4 address; IPv6 hosts stand in ipv6host", ErrInvalid, quote(address))
	}
	n := Netlabel{p.Masked(), label}
	return n, n.validate()
}

func (n Netlabel) validate() error {
	if !n.Prefix.IsValid() || !n.Prefix.Addr().Is4() || n.Prefix != n.Prefix.Masked() {
		return fmt.Errorf("%w: netlabel: %s is no IPv4 network", ErrInvalid, n.Prefix)
	}
	return checkHostLabel("netlabel", n.Label, NetlabelCIPSO)
}

func checkHostLabel(name, label, option string) error {
	if label == option {
		return nil
	}
	if strings.HasPrefix(label, "-") {
		return fmt.Errorf("%w: %s: %s is no option that the kernel takes there; it takes a label or %s", ErrInvalid, name, quote(label), option)
	}
	if err := CheckLabel(label); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func checkNetlabel(list []Netlabel) error {
	seen := make(map[netip.Prefix]bool, len(list))
	for _, n := range list {
		if err := n.validate(); err != nil {
			return err
		}
		if seen[n.Prefix] {
			return fmt.Errorf("%w: netlabel names %s twice", ErrInvalid, n.Prefix)
		}
		seen[n.Prefix] = true
	}
	return nil
}

// IPv6Host is the label of IPv6 hosts, or [IPv6Delete].
type IPv6Host struct {
	// Prefix is IPv6 and its length a multiple of 16: the kernel sets the mask of a
	// group in the byte order of the machine, so fe80::/10 would become fe00::/10.
	Prefix netip.Prefix
	Label  string
}

// Append appends what ipv6host takes: eight groups, no "::".
func (h IPv6Host) Append(b []byte) []byte {
	a := h.Prefix.Addr().As16()
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			b = append(b, ':')
		}
		b = strconv.AppendUint(b, uint64(a[i])<<8|uint64(a[i+1]), 16)
	}
	b = strconv.AppendInt(append(b, '/'), int64(h.Prefix.Bits()), 10)
	return append(append(b, ' '), h.Label...)
}

// NewIPv6Host reads an IPv6 address, with "::" or without, and an optional mask.
// A prefix whose length is no multiple of 16 becomes the prefixes it consists of,
// 256 at most; beyond it is refused.
func NewIPv6Host(address, label string) ([]IPv6Host, error) {
	p, err := parsePrefix(address, 128)
	if err != nil {
		return nil, err
	}
	if p.Addr().Is4() {
		return nil, fmt.Errorf("%w: %s is no IPv6 address; IPv4 hosts stand in netlabel", ErrInvalid, quote(address))
	}
	if err := checkHostLabel("ipv6host", label, IPv6Delete); err != nil {
		return nil, err
	}
	p = p.Masked()
	bits := (p.Bits() + 15) / 16 * 16
	n := 1 << (bits - p.Bits())
	if n > maxExpansion {
		return nil, fmt.Errorf("%w: ipv6host %s: the kernel's mask is wrong when it is no multiple of 16, and %d prefixes of %d bits would be needed instead", ErrInvalid, p, n, bits)
	}
	out := make([]IPv6Host, n)
	a := p.Addr().As16()
	for i := range out {
		out[i] = IPv6Host{netip.PrefixFrom(netip.AddrFrom16(a), bits), label}
		if n > 1 {
			group := bits/8 - 2
			v := uint16(a[group])<<8 | uint16(a[group+1])
			v++
			a[group], a[group+1] = byte(v>>8), byte(v)
		}
	}
	return out, nil
}

func (h IPv6Host) validate() error {
	if !h.Prefix.IsValid() || !h.Prefix.Addr().Is6() || h.Prefix.Addr().Zone() != "" || h.Prefix != h.Prefix.Masked() {
		return fmt.Errorf("%w: ipv6host: %s is no IPv6 network", ErrInvalid, h.Prefix)
	}
	if h.Prefix.Bits()%16 != 0 {
		return fmt.Errorf("%w: ipv6host %s: the kernel's mask is wrong when it is no multiple of 16", ErrInvalid, h.Prefix)
	}
	return checkHostLabel("ipv6host", h.Label, IPv6Delete)
}

func checkIPv6Host(list []IPv6Host) error {
	seen := make(map[netip.Prefix]bool, len(list))
	for _, h := range list {
		if err := h.validate(); err != nil {
			return err
		}
		if seen[h.Prefix] {
			return fmt.Errorf("%w: ipv6host names %s twice", ErrInvalid, h.Prefix)
		}
		seen[h.Prefix] = true
	}
	return nil
}

// parsePrefix reads an address with an optional mask; without one it is a host.
func parsePrefix(s string, most int) (netip.Prefix, error) {
	address, mask, masked := strings.Cut(s, "/")
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%w: %s is no address: IPv4 has four numbers of 0 to 255, IPv6 groups of at most four hexadecimal digits", ErrInvalid, quote(address))
	}
	bits := a.BitLen()
	if masked {
		n, err := strconv.ParseUint(mask, 10, 16)
		if err != nil || int(n) > bits || int(n) > most || len(mask) > 1 && mask[0] == '0' {
			return netip.Prefix{}, fmt.Errorf("%w: mask %s of %s: a number of 0 to %d", ErrInvalid, quote(mask), address, min(bits, most))
		}
		bits = int(n)
	}
	return netip.PrefixFrom(a, bits), nil
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// ReadNetlabel reads a file of netlabel.d: an address with an optional mask and
// a label a line, IPv4 and IPv6. Lines that begin with '#' are comments; systemd
// would stop reading the file there. Warnings tell of it, and of prefixes that were
// cut or taken apart.
func ReadNetlabel(file string, text []byte) (v4 []Netlabel, v6 []IPv6Host, warnings Problems, err error) {
	return readNetlabel(file, text, map[netip.Prefix]Place{})
}

// readNetlabel is ReadNetlabel, with the places of entries of other files.
func readNetlabel(file string, text []byte, places map[netip.Prefix]Place) (v4 []Netlabel, v6 []IPv6Host, warnings Problems, err error) {
	err = eachLine(file, text, func(at Place, row []byte) error {
		words := bytes.Fields(row)
		if len(words) != 2 {
			return fmt.Errorf("%w: %d columns: an entry is ADDRESS[/MASK] LABEL", ErrSyntax, len(words))
		}
		address, label := string(words[0]), string(words[1])
		warn := func(text string) {
			if len(warnings) < MaxProblems {
				warnings = append(warnings, Problem{Place: at, Code: WarnPrefix, Text: text})
			}
		}
		var prefixes []netip.Prefix
		if strings.Contains(address, ":") {
			hosts, err := NewIPv6Host(address, label)
			if err != nil {
				return err
			}
			if len(hosts) > 1 {
				warn(fmt.Sprintf("%s is written as %d prefixes of %d bits: the kernel's mask is right at multiples of 16 alone", address, len(hosts), hosts[0].Prefix.Bits()))
			}
			v6 = append(v6, hosts...)
			for _, h := range hosts {
				prefixes = append(prefixes, h.Prefix)
			}
		} else {
			n, err := NewNetlabel(address, label)
			if err != nil {
				return err
			}
			if given, _, masked := strings.Cut(address, "/"); masked && given != n.Prefix.Addr().String() {
				warn(fmt.Sprintf("%s is %s: the bits beyond the mask are cut off", address, n.Prefix))
			}
			v4 = append(v4, n)
			prefixes = append(prefixes, n.Prefix)
		}
		for _, p := range prefixes {
			if other, ok := places[p]; ok {
				return fmt.Errorf("%w: %s has an entry at %s already", ErrInvalid, p, other)
			}
			places[p] = at
		}
		if len(v4)+len(v6) > maxEntries {
			return fmt.Errorf("%w: more than %d entries", ErrLimit, maxEntries)
		}
		return nil
	})
	return v4, v6, warnings, err
}
