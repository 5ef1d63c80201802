package graph

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"policyd.dev/policyd/enforce/profile"
)

// Visible writes text so that a reader sees what is in it and no more: control
// characters, those that turn the direction of writing or take no room, and
// bytes that are not UTF-8 become Go escapes, a backslash two.
func Visible(s string) string {
	if !strings.ContainsFunc(s, hides) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\\':
			b.WriteString(`\\`)
		case hides(r):
			q := fmt.Sprintf("%+q", r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// hides: a backslash is among them, so that an escape is never mistaken.
func hides(r rune) bool {
	return r == '\\' || r != ' ' && !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zs, r) && r != ' ' || r == utf8.RuneError
}

const (
	harmless = profile.FSReadFile | profile.FSReadDir | profile.FSExecute
	binds    = profile.NetBindTCP | profile.NetBindUDP
)

// text writes rights of a kind: in full by their names, in short with the names
// of groups where all of a group is there that is handled at all.
func text(k profile.Kind, a, handled profile.Access) Text {
	if handled == 0 {
		return Text{}
	}
	if a == 0 {
		return Text{Short: "nothing", Full: "none of what is handled"}
	}
	t := Text{Full: strings.Join(k.Names(a), ","), Changes: k == profile.FS && a&^harmless != 0 || k == profile.Net && a&binds != 0}
	if a == handled && bits.OnesCount32(uint32(a)) > 1 {
		t.Short = "all"
		return t
	}
	t.Short = Short(k, a, handled)
	return t
}

// Short writes rights by the names of groups, as far as all rights of a group
// are there of those that matter, and the rest by their own.
func Short(k profile.Kind, a, matter profile.Access) string {
	groups := profile.Groups()
	slices.SortStableFunc(groups, func(x, y profile.Group) int {
		return bits.OnesCount32(uint32(y.Access)) - bits.OnesCount32(uint32(x.Access))
	})
	var parts []string
	for _, g := range groups {
		of := g.Access & matter
		if g.Kind == k && bits.OnesCount32(uint32(of)) > 1 && a&of == of {
			parts = append(parts, g.Name)
			a &^= of
		}
	}
	names := k.Names(a)
	// As with groups, reading stands before executing.
	slices.SortStableFunc(names, func(x, y string) int {
		switch rx, ry := strings.HasPrefix(x, "read_"), strings.HasPrefix(y, "read_"); {
		case rx && !ry:
			return -1
		case ry && !rx:
			return 1
		}
		return 0
	})
	return strings.Join(append(parts, names...), ",")
}
