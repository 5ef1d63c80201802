package smack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Settings are everything in smackfs that is not a rule. What is zero or nil is
// not set: the kernel keeps what it has.
type Settings struct {
	DOI    uint32 // domain of interpretation of CIPSO labels, not 0
	Direct *uint8 // CIPSO level of labels whose text is in the packet
	Mapped *uint8 // CIPSO level of labels that are numbers in the packet

	Cipso    []Cipso
	Netlabel []Netlabel
	IPv6Host []IPv6Host

	Ambient string // label of packets without one
	Syslog  string // label that may read the kernel's log; * for none but the privileged
	PTrace  *uint8 // 0 as other access, 1 exact, 2 draconian
	Logging *uint8 // bits: 1 denied, 2 allowed

	// RelabelSelf are labels a thread may take without privilege. They belong to the
	// credentials of who writes them, not to the system.
	RelabelSelf []string

	Unconfined string // label without restrictions, in a bring-up kernel only

	// Onlycap are the labels under which CAP_MAC_ADMIN and CAP_MAC_OVERRIDE count.
	Onlycap []string

	// Lists are emptied on purpose alone: an empty one means not set.
	ClearOnlycap     bool
	ClearUnconfined  bool
	ClearRelabelSelf bool
}

// SMK limits of settings.
const (
	maxLogging   = 3
	maxPTrace    = 2
	maxLabelList = 4095 // bytes of a list of labels in one write
	maxEntries   = 1 << 16
)

// Validate checks everything that the kernel takes for something else, or
// refuses after it changed something. The error wraps [ErrInvalid], [ErrLabel] or
// [ErrLimit], and names the setting.
func (s *Settings) Validate() error {
	if s.PTrace != nil && *s.PTrace > maxPTrace {
		return fmt.Errorf("%w: ptrace %d, at most %d", ErrInvalid, *s.PTrace, maxPTrace)
	}
	if s.Logging != nil && *s.Logging > maxLogging {
		return fmt.Errorf("%w: logging %d, at most %d", ErrInvalid, *s.Logging, maxLogging)
	}
	for _, l := range []struct{ name, label string }{{"ambient", s.Ambient}, {"syslog", s.Syslog}, {"unconfined", s.Unconfined}} {
		if l.label == "" {
			continue
		}
		if err := CheckLabel(l.label); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	if s.ClearUnconfined && s.Unconfined != "" {
		return fmt.Errorf("%w: unconfined is set and cleared", ErrInvalid)
	}
	if err := checkLabelList("onlycap", s.Onlycap, s.ClearOnlycap); err != nil {
		return err
	}
	if err := checkLabelList("relabel-self", s.RelabelSelf, s.ClearRelabelSelf); err != nil {
		return err
	}
	if n := max(len(s.Cipso), len(s.Netlabel), len(s.IPv6Host)); n > maxEntries {
		return fmt.Errorf("%w: %d entries of one kind, at most %d", ErrLimit, n, maxEntries)
	}
	if err := checkCipso(s.Cipso); err != nil {
		return err
	}
	if err := checkNetlabel(s.Netlabel); err != nil {
		return err
	}
	return checkIPv6Host(s.IPv6Host)
}

// checkLabelList checks a list that the kernel reads with spaces between. The
// kernel empties onlycap without an error when the first label is bad.
func checkLabelList(name string, list []string, emptied bool) error {
	if emptied && len(list) > 0 {
		return fmt.Errorf("%w: %s is set and cleared", ErrInvalid, name)
	}
	seen := make(map[string]bool, len(list))
	size := 0
	for _, l := range list {
		if err := CheckLabel(l); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if seen[l] {
			return fmt.Errorf("%w: %s names %s twice", ErrInvalid, name, l)
		}
		seen[l] = true
		size += len(l) + 1
	}
	if size-1 > maxLabelList {
		return fmt.Errorf("%w: the labels of %s take %d bytes, at most %d", ErrLimit, name, size-1, maxLabelList)
	}
	return nil
}

// FileWrite is one write to a file of smackfs.
type FileWrite struct {
	File string
	Data []byte
}

// Writes gives the writes that set everything set here, exact to the byte, in an
// order in which each still may be done: onlycap, which may take the
// writer's own privilege, comes last. The settings must be valid.
func (s *Settings) Writes() []FileWrite {
	var out []FileWrite
	add := func(file string, data []byte) { out = append(out, FileWrite{file, data}) }
	if s.DOI != 0 {
		add("doi", strconv.AppendUint(nil, uint64(s.DOI), 10))
	}
	number := func(file string, n *uint8) {
		if n != nil {
			add(file, strconv.AppendUint(nil, uint64(*n), 10))
		}
	}
	number("direct", s.Direct)
	number("mapped", s.Mapped)
	for _, c := range s.Cipso {
		add("cipso2", c.Append(nil))
	}
	for _, n := range s.Netlabel {
		add("netlabel", n.Append(nil))
	}
	for _, h := range s.IPv6Host {
		add("ipv6host", h.Append(nil))
	}
	label := func(file, label string, emptied bool) {
		switch {
		case label != "":
			add(file, []byte(label))
		case emptied:
			add(file, []byte("-"))
		}
	}
	label("ambient", s.Ambient, false)
	label("syslog", s.Syslog, false)
	number("ptrace", s.PTrace)
	number("logging", s.Logging)
	label("relabel-self", strings.Join(s.RelabelSelf, " "), s.ClearRelabelSelf)
	label("unconfined", s.Unconfined, s.ClearUnconfined)
	label("onlycap", strings.Join(s.Onlycap, " "), s.ClearOnlycap)
	return out
}

// Canonical gives the settings with every list in order, so that equal settings
// are equal bytes. Nothing is shared with s but the numbers.
func (s *Settings) Canonical() Settings {
	c := *s
	c.Cipso = slices.Clone(s.Cipso)
	for i := range c.Cipso {
		c.Cipso[i].Categories = slices.Sorted(slices.Values(c.Cipso[i].Categories))
	}
	slices.SortFunc(c.Cipso, func(a, b Cipso) int { return strings.Compare(a.Label, b.Label) })
	c.Netlabel = slices.Clone(s.Netlabel)
	slices.SortFunc(c.Netlabel, func(a, b Netlabel) int { return comparePrefix(a.Prefix, b.Prefix) })
	c.IPv6Host = slices.Clone(s.IPv6Host)
	slices.SortFunc(c.IPv6Host, func(a, b IPv6Host) int { return comparePrefix(a.Prefix, b.Prefix) })
	c.Onlycap = slices.Sorted(slices.Values(s.Onlycap))
	c.RelabelSelf = slices.Sorted(slices.Values(s.RelabelSelf))
	return c
}

// SettingChange is a setting that differs.
type SettingChange struct {
	Name     string // a file of smackfs, with what the entry is for: "netlabel 10.0.0.0/8"
	Old, New string // "" when not set
}

// Difference gives what is set otherwise than in from, by name.
func (s *Settings) Difference(from *Settings) []SettingChange {
	old, now := from.values(), s.values()
	names := map[string]bool{}
	for n := range old {
		names[n] = true
	}
	for n := range now {
		names[n] = true
	}
	var out []SettingChange
	for n := range names {
		if old[n] != now[n] {
			out = append(out, SettingChange{n, old[n], now[n]})
		}
	}
	slices.SortFunc(out, func(a, b SettingChange) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// values gives each setting as text, entries of lists by what they are for.
func (s *Settings) values() map[string]string {
	c := s.Canonical()
	m := map[string]string{}
	c.Cipso, c.Netlabel, c.IPv6Host = nil, nil, nil
	for _, w := range c.Writes() {
		m[w.File] = string(w.Data)
	}
	for _, e := range s.Cipso {
		text := fmt.Sprintf("level %d", e.Level)
		if len(e.Categories) > 0 {
			text += " categories " + joinInts(slices.Sorted(slices.Values(e.Categories)), ",")
		}
		m["cipso "+e.Label] = text
	}
	for _, e := range s.Netlabel {
		m["netlabel "+e.Prefix.String()] = e.Label
	}
	for _, e := range s.IPv6Host {
		m["ipv6host "+e.Prefix.String()] = e.Label
	}
	return m
}

func joinInts(list []int, sep string) string {
	var b []byte
	for i, n := range list {
		if i > 0 {
			b = append(b, sep...)
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}
