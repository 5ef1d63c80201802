package policy

import (
	"slices"
	"strconv"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// word is what a name of a right or group stands for.
type word struct {
	access profile.Access
	group  bool
	abi    int // of a right: the first that knows it
}

// words holds the names of each kind, from the tables of rights and groups.
var words = func() (w [3]map[string]word) {
	for k := range w {
		w[k] = make(map[string]word)
	}
	for _, r := range profile.Rights() {
		w[r.Kind][r.Name] = word{access: r.Bit, abi: r.ABI}
	}
	for _, g := range profile.Groups() {
		w[g.Kind][g.Name] = word{access: g.Access, group: true, abi: 1}
	}
	return w
}()

// wordNames gives the names of a kind, sorted, for suggestions.
func wordNames(kind profile.Kind) []string {
	names := make([]string, 0, len(words[kind]))
	for n := range words[kind] {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// grant is a list of rights as it was written: those asked for one by one must
// be handled, those of a group are asked for where they are.
type grant struct {
	named, grouped profile.Access
}

func (g grant) all() profile.Access { return g.named | g.grouped }

// rights reads a list of names, groups and masks of a kind. Groups hold what
// abi knows; a single right must be known to it.
func (r *reporter) rights(kind profile.Kind, names []string, abi int, p *place) grant {
	var g grant
	known := profile.Handled(kind, abi)
	for i, name := range names {
		w, ok := words[kind][name]
		if !ok {
			var mask profile.Access
			if mask, ok = parseMask(name); !ok {
				if r.errors.full() {
					r.errors.more++
					continue
				}
				at := p.at(i)
				r.addf(codeUnknownRight, &at, "unknown %s right %q%s", kind, clip(name), r.suggestRight(kind, name))
				continue
			}
			w.access = mask
		}
		if w.group {
			g.grouped |= w.access & known
			continue
		}
		if extra := w.access &^ known; extra != 0 {
			at := p.at(i)
			r.needsABI(kind, name, extra, abi, &at)
			continue
		}
		g.named |= w.access
	}
	return g
}

// needsABI reports rights that abi does not know.
func (r *reporter) needsABI(kind profile.Kind, name string, extra profile.Access, abi int, p *place) {
	needs := 0
	for _, right := range profile.Rights() {
		if right.Kind == kind && right.Bit&extra != 0 {
			needs = max(needs, right.ABI)
			extra &^= right.Bit
		}
	}
	if extra != 0 {
		r.addf(codeUnknownRight, p, "%s mask %s has bits that no ABI up to %d knows: %#x", kind, name, profile.MaxABI, uint32(extra))
		return
	}
	r.addf(codeNeedsABI, p, "%s right %s is of ABI %d (Linux %s), and this document says abi: %d", kind, name, needs, profile.KernelOf(needs), abi)
}

func (r *reporter) suggestRight(kind profile.Kind, name string) string {
	for _, other := range []profile.Kind{profile.FS, profile.Net, profile.Scope} {
		if _, ok := words[other][name]; ok && other != kind {
			return "; it is a " + other.String() + " right"
		}
	}
	return suggest(name, wordNames(kind))
}

// parseMask reads 0x and hexadecimal digits; bit 31 and more never name a right.
func parseMask(s string) (profile.Access, bool) {
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(digits, 16, 31)
	return profile.Access(v), err == nil && v != 0
}
