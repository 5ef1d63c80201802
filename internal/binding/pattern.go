package binding

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// pattern is a text with wildcards, cut at each *: the pieces must stand in this order, the first at the beginning and
// the last at the end.
type pattern struct {
	pieces []piece
	score
}

// piece is a text in which any marks what ? stands for; nil: nothing.
type piece struct {
	text string
	any  []bool
}

// CheckPattern says what is wrong with a pattern.
func CheckPattern(s string) error {
	_, err := parsePattern(s)
	return err
}

// IsOpen tells whether a pattern matches every text.
func IsOpen(s string) bool { return s != "" && strings.Trim(s, "*") == "" }

func parsePattern(s string) (*pattern, error) {
	if s == "" {
		return nil, errors.New("is empty")
	}
	p := &pattern{score: score{keys: 1, exact: 1}}
	var text []byte
	var wild []bool
	questions := false
	end := func() {
		one := piece{text: string(text)}
		if questions {
			one.any = append([]bool(nil), wild...)
		}
		p.pieces = append(p.pieces, one)
		text, wild, questions = text[:0], wild[:0], false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '*':
			p.exact = 0
			end()
		case '?':
			p.exact, questions = 0, true
			text, wild = append(text, c), append(wild, true)
		default:
			if c == '\\' {
				if i++; i == len(s) {
					return nil, errors.New(`ends with a \ that takes nothing as it is`)
				}
			}
			p.literal++
			text, wild = append(text, s[i]), append(wild, false)
		}
	}
	end()
	return p, nil
}

// prefix is the text that everything it matches begins with.
func (p *pattern) prefix() string {
	first := p.pieces[0]
	for i := range first.any {
		if first.any[i] {
			return first.text[:i]
		}
	}
	return first.text
}

// match takes time of len(s) times the length of the pattern at most. A ? stands for one character of UTF-8, or for one
// byte that is no part of one.
func (p *pattern) match(s string) bool {
	first, rest := p.pieces[0], p.pieces[1:]
	n, ok := first.at(s)
	if !ok {
		return false
	}
	s = s[n:]
	if len(rest) == 0 {
		return s == ""
	}
	for _, one := range rest[:len(rest)-1] {
		if s, ok = one.after(s); !ok {
			return false
		}
	}
	return rest[len(rest)-1].ends(s)
}

// at tells whether s begins with the piece, and how many bytes it takes there.
func (p piece) at(s string) (int, bool) {
	if p.any == nil {
		return len(p.text), strings.HasPrefix(s, p.text)
	}
	n := 0
	for i := range len(p.text) {
		switch {
		case n == len(s):
			return 0, false
		case p.any[i]:
			n += width(s[n:])
		case p.text[i] != s[n]:
			return 0, false
		default:
			n++
		}
	}
	return n, true
}

// after gives what follows the first place in s where the piece stands.
func (p piece) after(s string) (string, bool) {
	if p.any == nil {
		_, rest, ok := strings.Cut(s, p.text)
		return rest, ok
	}
	for i := 0; ; i += width(s[i:]) {
		if n, ok := p.at(s[i:]); ok {
			return s[i+n:], true
		}
		if i >= len(s) {
			return "", false
		}
	}
}

// ends tells whether s ends with the piece.
func (p piece) ends(s string) bool {
	if p.any == nil {
		return strings.HasSuffix(s, p.text)
	}
	for i := 0; ; i += width(s[i:]) {
		if n, ok := p.at(s[i:]); ok && i+n == len(s) {
			return true
		}
		if i >= len(s) {
			return false
		}
	}
}

// uids is a number of a user or a range.
type uids struct{ low, high uint32 }

// CheckUID says what is wrong with a number of a user or a range LOW-HIGH.
func CheckUID(s string) error {
	_, err := parseUIDs(s)
	return err
}

// noUID is (uid_t)-1, which is no user.
const noUID = 1<<32 - 1

func parseUIDs(s string) (uids, error) {
	low, high, ranged := strings.Cut(s, "-")
	if !ranged {
		high = low
	}
	a, err := strconv.ParseUint(low, 10, 32)
	b, err2 := strconv.ParseUint(high, 10, 32)
	switch {
	case err != nil || err2 != nil || a == noUID || b == noUID:
		return uids{}, fmt.Errorf("is no number of a user (0 to %d) and no range LOW-HIGH", noUID-1)
	case a > b:
		return uids{}, errors.New("is a range that runs backwards")
	}
	return uids{uint32(a), uint32(b)}, nil
}

func (u uids) score() score {
	s := score{keys: 1, literal: -int64(u.high - u.low)}
	if u.low == u.high {
		s.exact = 1
	}
	return s
}
