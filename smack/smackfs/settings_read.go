package smackfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/smack"
)

// Entry is one setting as text: a file of smackfs, what the entry of the file is for ("" for a file of one value), and
// its value. Values of onlycap and relabel-self are labels with blanks between, in order.
type Entry struct {
	File, Key, Value string
}

func (e Entry) String() string {
	if e.Key == "" {
		return fmt.Sprintf("%s %q", e.File, e.Value)
	}
	return fmt.Sprintf("%s %s %q", e.File, e.Key, e.Value)
}

// current is what smackfs shows beside rules.
type current struct {
	value   map[string]string // by file; without unconfined where the kernel has no such file
	cipso   map[string]string // by label: "LEVEL/C,C"
	netmap  map[string]string // by prefix, without an entry of ipv6host
	ipv6    map[string]string
	missing map[string]bool // files this kernel does not have
}

var valueFiles = []string{
	fileDoi, fileDirect, fileMapped, fileAmbient, fileSyslog, filePtrace, fileLogging, fileRelabel, fileUnconf, fileOnlycap,
}

// listFile says whether a file holds a list of labels, which the kernel shows in reverse.
func listFile(name string) bool { return name == fileOnlycap || name == fileRelabel }

func readCurrent(fs FS) (*current, error) {
	c := &current{
		value: map[string]string{}, cipso: map[string]string{}, netmap: map[string]string{}, ipv6: map[string]string{},
		missing: map[string]bool{},
	}
	for _, name := range valueFiles {
		b, err := readFile(fs, name)
		switch {
		case errors.Is(err, unix.ENOENT) && name != fileDoi: // every smackfs has that one
			c.missing[name] = true
		case err != nil:
			return nil, explain(fs, err)
		case listFile(name):
			c.value[name] = sortedList(strings.Fields(string(b)))
		default:
			c.value[name] = string(bytes.TrimRight(b, "\x00\n"))
		}
	}
	for _, f := range []struct {
		name string
		into map[string]string
	}{{fileCipso2, c.cipso}, {fileNetlabel, c.netmap}, {fileIPv6, c.ipv6}} {
		b, err := readFile(fs, f.name)
		if errors.Is(err, unix.ENOENT) { // a kernel without IPv6
			c.missing[f.name] = true
			continue
		}
		if err != nil {
			return nil, explain(fs, err)
		}
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			if len(fields) != 2 {
				return nil, fmt.Errorf("%s shows %q, which is no entry", f.name, line)
			}
			key := fields[0]
			if f.name != fileCipso2 {
				p, err := netip.ParsePrefix(key)
				if err != nil {
					return nil, fmt.Errorf("%s shows %q: %w", f.name, line, err)
				}
				key = p.String()
			}
			f.into[key] = fields[1]
		}
	}
	return c, nil
}

func (c *current) entries(file string) map[string]string {
	switch file {
	case fileCipso2:
		return c.cipso
	case fileNetlabel:
		return c.netmap
	case fileIPv6:
		return c.ipv6
	}
	return nil
}

// get gives the value of an entry and whether there is one.
func (c *current) get(e Entry) (string, bool) {
	if m := c.entries(e.File); m != nil {
		v, ok := m[e.Key]
		return v, ok
	}
	v, ok := c.value[e.File]
	return v, ok
}

// builtIn says whether a label's cipso entry is the one it was made with: its own bytes at the direct level, or its
// number at the mapped one.
func (c *current) builtIn(label string) bool {
	level, cats, _ := strings.Cut(c.cipso[label], "/")
	if len(label) >= oldLabelLen {
		return level == c.value[fileMapped]
	}
	return level == c.value[fileDirect] && cats == categoriesOf(label)
}

func categoriesOf(label string) string {
	var out []byte
	for i := range len(label) * 8 {
		if label[i/8]&(0x80>>(i%8)) != 0 {
			if out != nil {
				out = append(out, ',')
			}
			out = strconv.AppendInt(out, int64(i+1), 10)
		}
	}
	return string(out)
}

func sortedList(labels []string) string {
	return strings.Join(slices.Sorted(slices.Values(labels)), " ")
}

// wantedEntry is an entry with the write that makes it.
type wantedEntry struct {
	Entry
	data []byte
}

// entriesOf gives what settings ask for, in the order of smack.Settings.Writes: onlycap, which may take the writer's
// own privilege away, comes last.
func entriesOf(s *smack.Settings) []wantedEntry {
	if s == nil {
		return nil
	}
	var out []wantedEntry
	writes := s.Writes()
	cipso, net4, net6 := s.Cipso, s.Netlabel, s.IPv6Host
	for _, w := range writes {
		e := wantedEntry{Entry{File: w.File, Value: string(w.Data)}, w.Data}
		switch {
		case w.File == fileCipso2:
			e.Key, e.Value = cipso[0].Label, shownCipso(cipso[0])
			cipso = cipso[1:]
		case w.File == fileNetlabel:
			e.Key, e.Value = net4[0].Prefix.String(), net4[0].Label
			net4 = net4[1:]
		case w.File == fileIPv6:
			e.Key, e.Value = net6[0].Prefix.String(), net6[0].Label
			net6 = net6[1:]
		case listFile(w.File) || w.File == fileUnconf:
			if e.Value = sortedList(strings.Fields(e.Value)); e.Value == "-" {
				e.Value = ""
			}
		}
		out = append(out, e)
	}
	return out
}

// shownCipso is how cipso2 shows an entry.
func shownCipso(c smack.Cipso) string {
	b := strconv.AppendInt(nil, int64(c.Level), 10)
	sep := byte('/')
	for _, n := range slices.Sorted(slices.Values(c.Categories)) {
		b = strconv.AppendInt(append(b, sep), int64(n), 10)
		sep = ','
	}
	return string(b)
}

// parseShownCipso reads what cipso2 shows behind a label.
func parseShownCipso(label, text string) (smack.Cipso, error) {
	c := smack.Cipso{Label: label}
	level, cats, _ := strings.Cut(text, "/")
	var err error
	if c.Level, err = strconv.Atoi(level); err != nil {
		return c, err
	}
	if cats == "" {
		return c, nil
	}
	for s := range strings.SplitSeq(cats, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return c, err
		}
		c.Categories = append(c.Categories, n)
	}
	return c, nil
}

// ipv6Write gives what ipv6host takes for a prefix that it showed.
func ipv6Write(prefix, label string) []byte {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return nil
	}
	return smack.IPv6Host{Prefix: p, Label: label}.Append(nil)
}

// ReadSettings reads the kernel's settings as entries: single values, netlabel and ipv6host, and the cipso entries that
// are not those every label has of itself. By file and key.
func ReadSettings(fs FS) ([]Entry, error) {
	c, err := readCurrent(fs)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for file, v := range c.value {
		out = append(out, Entry{File: file, Value: v})
	}
	for _, file := range []string{fileCipso2, fileNetlabel, fileIPv6} {
		for k, v := range c.entries(file) {
			if file != fileCipso2 || !c.builtIn(k) {
				out = append(out, Entry{file, k, v})
			}
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Key, b.Key)) })
	return out, nil
}
