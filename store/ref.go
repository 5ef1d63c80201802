package store

import (
	"fmt"
	"strconv"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Limits of names.
const (
	maxNameLen   = 63
	minDigestHex = 8
	digestPrefix = "sha256:"
	digestHexLen = 64
)

// Ref is a parsed reference to a version of a document:
//
//	ref      = name [ "@" selector ]
//	selector = number | tag | "sha256:" 8*64hex
//	number   = "1".."9" *digit                        fits 64 bits
//	tag      = letter *62( letter | digit | "." | "_" | "-" ), not ending in a sign
//	name     = part | part "/" part                   the second form for fragments only; 63 characters at most
//	part     = ( letter | digit ) [ *( letter | digit | "-" | "." ) ( letter | digit ) ]
//
// Letters are a-z. At most one of Number, Tag and Digest is set; none means the newest version.
type Ref struct {
	Name   string
	Number uint64
	Tag    string
	// Digest is "sha256:" with 8 to 64 hex digits, the beginning of a digest.
	Digest string
}

// String gives the text that parses to r.
func (r Ref) String() string {
	switch {
	case r.Number != 0:
		return r.Name + "@" + strconv.FormatUint(r.Number, 10)
	case r.Tag != "":
		return r.Name + "@" + r.Tag
	case r.Digest != "":
		return r.Name + "@" + r.Digest
	}
	return r.Name
}

// ParseRef parses a reference to a document of a kind. Errors wrap errs.ErrInvalid.
func ParseRef(kind, s string) (Ref, error) {
	if err := checkKind(kind); err != nil {
		return Ref{}, err
	}
	return parseRef(kind, s)
}

// parseRef is ParseRef for a kind that is known; the table of kinds uses it.
func parseRef(kind, s string) (Ref, error) {
	name, selector, selected := strings.Cut(s, "@")
	if err := checkName(kind, name); err != nil {
		return Ref{}, err
	}
	r := Ref{Name: name}
	switch {
	case !selected:
	case strings.HasPrefix(selector, digestPrefix):
		hex := selector[len(digestPrefix):]
		if len(hex) < minDigestHex || len(hex) > digestHexLen || !isHex(hex) {
			return Ref{}, fmt.Errorf("%w: digest in reference %s must have %d to %d digits 0-9 a-f",
				errs.ErrInvalid, quote(s), minDigestHex, digestHexLen)
		}
		r.Digest = selector
	case selector != "" && isDigit(selector[0]):
		n, err := strconv.ParseUint(selector, 10, 64)
		if err != nil || selector[0] == '0' {
			return Ref{}, fmt.Errorf("%w: version number in reference %s must be 1 to 2^64-1 without leading zeros",
				errs.ErrInvalid, quote(s))
		}
		r.Number = n
	default:
		if err := CheckTag(selector); err != nil {
			return Ref{}, err
		}
		r.Tag = selector
	}
	return r, nil
}

// CheckName tells whether name is a good name for a document of a kind. Errors wrap errs.ErrInvalid.
func CheckName(kind, name string) error {
	if err := checkKind(kind); err != nil {
		return err
	}
	return checkName(kind, name)
}

func checkName(kind, name string) error {
	if name == "" || len(name) > maxNameLen {
		return fmt.Errorf("%w: name %s must have 1 to %d characters", errs.ErrInvalid, quote(name), maxNameLen)
	}
	part, rest, two := strings.Cut(name, "/")
	if two && kind != KindFragment {
		return fmt.Errorf("%w: name %s: only names of fragments may hold a \"/\"", errs.ErrInvalid, quote(name))
	}
	if !isPart(part) || two && !isPart(rest) {
		return fmt.Errorf("%w: name %s must be of a-z 0-9 - . and begin and end with a letter or digit", errs.ErrInvalid, quote(name))
	}
	return nil
}

// CheckTag tells whether tag is a good tag. Errors wrap errs.ErrInvalid.
func CheckTag(tag string) error {
	good := tag != "" && len(tag) <= maxNameLen && isLetter(tag[0]) && isAlnum(tag[len(tag)-1])
	for i := 0; good && i < len(tag); i++ {
		good = isAlnum(tag[i]) || tag[i] == '.' || tag[i] == '_' || tag[i] == '-'
	}
	if !good {
		return fmt.Errorf("%w: tag %s must be 1 to %d characters of a-z 0-9 . _ -, begin with a letter and end with a letter or digit",
			errs.ErrInvalid, quote(tag), maxNameLen)
	}
	return nil
}

func checkDigest(digest string) error {
	hex, ok := strings.CutPrefix(digest, digestPrefix)
	if !ok || len(hex) != digestHexLen || !isHex(hex) {
		return fmt.Errorf("%w: digest %s must be sha256: with %d digits 0-9 a-f", errs.ErrInvalid, quote(digest), digestHexLen)
	}
	return nil
}

func isPart(s string) bool {
	if s == "" || !isAlnum(s[0]) || !isAlnum(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isAlnum(s[i]) && s[i] != '-' && s[i] != '.' {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' }
func isAlnum(c byte) bool  { return isDigit(c) || isLetter(c) }

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

// quote is %q with a bound, so that a megabyte sent as a name does not come back as a message.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return strconv.Quote(s)
}
