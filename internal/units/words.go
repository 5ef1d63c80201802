package units

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"policyd.dev/policyd/internal/errs"
)

// word takes the first word off a line as extract_first_word of systemd's
// src/basic/extract-word.c does with EXTRACT_UNQUOTE and EXTRACT_CUNESCAPE: quotes
// may stand anywhere in it, escapes hold within both kinds of quotes, and unknown
// escapes stay as they are (systemd warns). raw is its text, value what it means.
func word(line string) (raw, value, rest string, err error) {
	var v strings.Builder
	quote := byte(0)
	i := 0
	for i < len(line) {
		c := line[i]
		switch {
		case c == '\\':
			text, n := unescape(line[i:])
			if n == 0 {
				return "", "", "", fmt.Errorf("%w: a backslash at the end", errs.ErrInvalid)
			}
			if strings.ContainsRune(text, 0) {
				return "", "", "", fmt.Errorf("%w: a NUL in %q", errs.ErrInvalid, line)
			}
			v.WriteString(text)
			i += n
			continue
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				v.WriteByte(c)
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(space, c) >= 0:
			return line[:i], v.String(), strings.TrimLeft(line[i:], space), nil
		default:
			v.WriteByte(c)
		}
		i++
	}
	if quote != 0 {
		return "", "", "", fmt.Errorf("%w: a quote (%c) that is not closed", errs.ErrInvalid, quote)
	}
	return line, v.String(), "", nil
}

// unescape reads an escape of cunescape_one in systemd's src/basic/escape.c: what it
// means and how long it is. A length of 0 is a lone backslash at the end.
func unescape(s string) (string, int) {
	if len(s) < 2 {
		return "", 0
	}
	digits := func(from, n, base int) (uint64, bool) {
		if len(s) < from+n {
			return 0, false
		}
		if strings.ContainsAny(s[from:from+n], "+-_") {
			return 0, false
		}
		u, err := strconv.ParseUint(s[from:from+n], base, 32)
		return u, err == nil
	}
	switch c := s[1]; c {
	case 'a', 'b', 'f', 'n', 'r', 't', 'v', 's':
		return string("\a\b\f\n\r\t\v "[strings.IndexByte("abfnrtvs", c)]), 2
	case '\\', '"', '\'':
		return string(c), 2
	case 'x':
		if u, ok := digits(2, 2, 16); ok {
			return string([]byte{byte(u)}), 4
		}
	case 'u':
		if u, ok := digits(2, 4, 16); ok {
			return string(rune(u)), 6
		}
	case 'U':
		if u, ok := digits(2, 8, 16); ok && u <= utf8.MaxRune {
			return string(rune(u)), 10
		}
	case '0', '1', '2', '3', '4', '5', '6', '7':
		if u, ok := digits(1, 3, 8); ok && u <= 255 {
			return string([]byte{byte(u)}), 4
		}
	}
	return s[:2], 2
}

// quote writes a word so that systemd reads it back as it is: plain when it may.
// Specifiers (%) and variables ($) are not touched, see literal.
func quote(s string) string {
	if s != "" && s != ";" && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '\'' || r == '"' || r == '\\' || r <= ' ' || r >= 0x7f
	}) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// literal writes a word in which nothing is a specifier, nor a variable where
// variables are expanded.
func literal(s string, variables bool) string {
	s = strings.ReplaceAll(s, "%", "%%")
	if variables {
		s = strings.ReplaceAll(s, "$", "$$")
	}
	return quote(s)
}
