package decide

import (
	"fmt"
	"strings"
)

// ParseLine reads a question from a line of text. Words are split at blanks;
// '...' keeps all in it, "..." keeps blanks, a backslash the next byte (inside
// "..." only before " and \). # at the start of a word begins a comment. A line
// without words is [ErrNoQuestion].
func ParseLine(line string) (Question, error) {
	words, err := split(line)
	if err != nil {
		return Question{}, err
	}
	if len(words) == 0 {
		return Question{}, ErrNoQuestion
	}
	return Parse(words)
}

const blanks = " \t\r\n"

func split(line string) ([]string, error) {
	if !strings.ContainsAny(line, `'"\#`) {
		return strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(blanks, r) }), nil
	}
	var words []string
	var word []byte
	in := false // inside a word
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case strings.IndexByte(blanks, c) >= 0:
			if in {
				words, word, in = append(words, string(word)), word[:0], false
			}
			continue
		case c == '#' && !in:
			return words, nil
		case c == '\\':
			if i++; i == len(line) {
				return nil, fmt.Errorf("%w: a backslash at the end of the line", ErrQuestion)
			}
			word = append(word, line[i])
		case c == '\'' || c == '"':
			end := quoted(line[i+1:], c, &word)
			if end < 0 {
				return nil, fmt.Errorf("%w: a quote (%c) that is not closed", ErrQuestion, c)
			}
			i += end + 1
		default:
			word = append(word, c)
		}
		in = true
	}
	if in {
		words = append(words, string(word))
	}
	return words, nil
}

// quoted appends what stands before the closing quote and gives the place of
// that, or -1.
func quoted(s string, quote byte, word *[]byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return i
		case quote == '"' && s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
		}
		*word = append(*word, s[i])
	}
	return -1
}

// quote writes a word so that split gives it back.
func quote(s string) string {
	if s != "" && !strings.ContainsAny(s, blanks+`'"\`) && s[0] != '#' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
