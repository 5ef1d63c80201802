package policy

import (
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// literal tells whether a word of several lines can stand as a literal block, and
// gives the block's head: "|", with a digit where the text begins with a blank, "-" where
// it does not end in a line feed and "+" where it ends in several.
func literal(n *yaml.Node) (head string, ok bool) {
	s := n.Value
	if n.Kind != yaml.ScalarNode || !strings.Contains(s, "\n") || strings.Trim(s, "\n") == "" {
		return "", false
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == 0xFEFF || r == unicode.ReplacementChar {
			return "", false
		}
	}
	head = "|"
	if first := strings.TrimLeft(s, "\n")[0]; first == ' ' || first == '\t' {
		head += "2" // the step of a level
	}
	switch body := strings.TrimRight(s, "\n"); {
	case len(body) == len(s):
		head += "-"
	case len(body) < len(s)-1:
		head += "+"
	}
	return head, true
}

// text writes the lines of a literal block.
func (w *printer) text(s string, indent int) {
	for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
		if line != "" {
			w.indent(indent)
		}
		w.b.WriteString(line + "\n")
	}
}
