package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// flowWidth is how wide a line with a list or mapping in brackets may become.
const flowWidth = 100

// printer writes a YAML tree in the normal layout: two spaces a level, keys in
// the order of the api messages, lists and mappings in brackets where they were
// written so, fit on a line and hold no comment.
type printer struct{ b strings.Builder }

// document writes a document without its markers.
func (w *printer) document(n *yaml.Node) {
	w.mapping(n, resourceKeys(n), 0, "")
}

// resourceKeys is the message of a document: its fields give the order of keys.
func resourceKeys(n *yaml.Node) protoreflect.MessageDescriptor {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "kind" {
			continue
		}
		if md := messageOf(n.Content[i+1].Value); md != nil {
			return md
		}
	}
	return messageOf(KindPolicy)
}

// pair is a key of a mapping with its value.
type pair struct {
	key, value *yaml.Node
	rank       int
	field      protoreflect.FieldDescriptor // nil in maps
}

// ordered gives the pairs of a mapping in the normal order.
func ordered(n *yaml.Node, md protoreflect.MessageDescriptor) []pair {
	pairs := make([]pair, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := pair{key: n.Content[i], value: n.Content[i+1]}
		if md != nil {
			if p.field = md.Fields().ByJSONName(p.key.Value); p.field != nil {
				p.rank = p.field.Index() + 1
			} else if p.key.Value == "apiVersion" {
				p.rank = -1
			}
		}
		pairs = append(pairs, p)
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return a.rank - b.rank })
	return pairs
}

// inner is the message that the values of a field are, or nil.
func inner(f protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if f == nil || f.IsMap() {
		return nil
	}
	return f.Message()
}

func (w *printer) comment(text string, indent int) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			w.indent(indent)
			w.b.WriteString(line + "\n")
		}
	}
}

func (w *printer) indent(n int) {
	for range n {
		w.b.WriteString("  ")
	}
}

// mapping writes the pairs of a mapping in block style; first, when not empty,
// stands for the indent of the first line ("- " of a list is written already).
func (w *printer) mapping(n *yaml.Node, md protoreflect.MessageDescriptor, indent int, first string) {
	for i, p := range ordered(n, md) {
		if i > 0 || first == "" {
			w.comment(p.key.HeadComment, indent)
			w.indent(indent)
		}
		w.b.WriteString(scalar(p.key) + ":")
		w.value(p.value, inner(p.field), indent, p.key.LineComment)
		w.comment(p.key.FootComment, indent)
	}
}

// value writes what stands behind "key:" or "-", with the end of its line.
func (w *printer) value(n *yaml.Node, md protoreflect.MessageDescriptor, indent int, lineComment string) {
	line := joinComments(lineComment, n.LineComment)
	if head, ok := literal(n); ok {
		w.b.WriteString(" " + head + line + "\n")
		w.text(n.Value, indent+1)
		w.comment(n.HeadComment, indent+1)
		w.comment(n.FootComment, indent)
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		w.b.WriteString(" " + wordOf(n, true) + line + "\n")
		w.comment(n.HeadComment, indent+1)
		w.comment(n.FootComment, indent+1)
		return
	}
	if s, ok := inline(n, md); ok && (n.Kind == yaml.ScalarNode || len(n.Content) == 0 || 2*indent+len(s) <= flowWidth) {
		w.b.WriteString(" " + s + line + "\n")
		w.comment(n.HeadComment, indent+1)
		w.comment(n.FootComment, indent+1)
		return
	}
	w.b.WriteString(line + "\n")
	w.comment(n.HeadComment, indent+1)
	if parts, ok := manyWords(n); ok {
		w.fill(parts, indent+1)
	} else if n.Kind == yaml.MappingNode {
		w.mapping(n, md, indent+1, "")
	} else {
		w.sequence(n, md, indent+1)
	}
	w.comment(n.FootComment, indent+1)
}

func (w *printer) sequence(n *yaml.Node, md protoreflect.MessageDescriptor, indent int) {
	for _, item := range n.Content {
		s, ok := inline(item, md)
		if item.Kind == yaml.ScalarNode && item.ShortTag() != "!!null" {
			s = wordOf(item, true)
		}
		if ok = ok && (item.Kind == yaml.ScalarNode || len(item.Content) == 0 || 2*indent+len(s) <= flowWidth); ok {
			w.comment(item.HeadComment, indent)
			w.indent(indent)
			w.b.WriteString("- " + s + joinComments(item.LineComment) + "\n")
			w.comment(item.FootComment, indent)
			continue
		}
		w.comment(item.HeadComment, indent)
		if item.Kind == yaml.MappingNode {
			pairs := ordered(item, md)
			w.comment(pairs[0].key.HeadComment, indent)
			if item.LineComment != "" {
				w.comment(item.LineComment, indent)
			}
			w.indent(indent)
			w.b.WriteString("- ")
			w.mapping(item, md, indent+1, "-")
		} else { // a list in a list: no message has one
			w.indent(indent)
			w.b.WriteString("-")
			w.value(item, md, indent, "")
			continue
		}
		w.comment(item.FootComment, indent)
	}
}

// fewWords is up to how many members a list that does not fit on a line gets a line for each.
const fewWords = 16

// manyWords gives the members of a list in brackets that is filled into lines.
func manyWords(n *yaml.Node) (parts []string, ok bool) {
	if n.Kind != yaml.SequenceNode || n.Style&yaml.FlowStyle == 0 || len(n.Content) <= fewWords {
		return nil, false
	}
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || commented(item) {
			return nil, false
		}
		parts = append(parts, scalar(item))
	}
	return parts, true
}

// fill writes a list in brackets on as many lines as it takes.
func (w *printer) fill(parts []string, indent int) {
	w.indent(indent)
	w.b.WriteByte('[')
	width := 2*indent + 1
	for i, s := range parts {
		if i > 0 {
			w.b.WriteByte(',')
			if width += len(s) + 2; width > flowWidth {
				w.b.WriteByte('\n')
				w.indent(indent)
				width = 2*indent + len(s) + 1
			}
			w.b.WriteByte(' ')
		} else {
			width += len(s)
		}
		w.b.WriteString(s)
	}
	w.b.WriteString("]\n")
}

func joinComments(comments ...string) string {
	var out string
	for _, c := range comments {
		for line := range strings.SplitSeq(c, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				out += " " + line
			}
		}
	}
	return out
}

// inline gives a node on one line; ok is false when it was written in block
// style or holds a comment.
func inline(n *yaml.Node, md protoreflect.MessageDescriptor) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode:
		return scalar(n), true
	case len(n.Content) == 0 && n.Kind == yaml.MappingNode:
		return "{}", true
	case len(n.Content) == 0:
		return "[]", true
	case n.Style&yaml.FlowStyle == 0:
		return "", false
	}
	var parts []string
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			s, ok := inline(item, md)
			if !ok || commented(item) {
				return "", false
			}
			parts = append(parts, s)
		}
		return "[" + strings.Join(parts, ", ") + "]", true
	}
	for _, p := range ordered(n, md) {
		s, ok := inline(p.value, inner(p.field))
		if !ok || commented(p.key) || commented(p.value) {
			return "", false
		}
		parts = append(parts, scalar(p.key)+": "+s)
	}
	return "{" + strings.Join(parts, ", ") + "}", true
}

func commented(n *yaml.Node) bool {
	return n.HeadComment+n.LineComment+n.FootComment != ""
}

// scalar writes a word: plain where that is safe in every place, else in double quotes.
func scalar(n *yaml.Node) string {
	if n.ShortTag() == "!!null" {
		return "null"
	}
	return wordOf(n, false)
}

// wordOf writes a scalar. One that was written in quotes and would be a number or
// a truth value to other readers of YAML keeps them.
func wordOf(n *yaml.Node, block bool) string {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && isPlain(n.Value, block) {
		plain := yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}
		if plain.ShortTag() != "!!str" {
			return `"` + n.Value + `"`
		}
	}
	return quoteUnlessPlain(n.Value, block)
}

// quoteUnlessPlain writes a word; block is a place outside of brackets, where more is safe.
func quoteUnlessPlain(s string, block bool) string {
	if isPlain(s, block) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r == 0xFEFF || !unicode.IsPrint(r) && r != ' ' || r == utf8.RuneError:
			if r > 0xFFFF {
				fmt.Fprintf(&b, `\U%08x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// isPlain is narrower than YAML: words, numbers, paths and simple sentences.
func isPlain(s string, block bool) bool {
	switch strings.ToLower(s) {
	case "", "null", "~", "...":
		return false
	}
	if c := s[0]; !isPlainByte(c) || strings.IndexByte("-@%+= ", c) >= 0 || s[len(s)-1] == ' ' {
		return false
	}
	for i := range len(s) {
		if !isPlainByte(s[i]) && !(block && strings.IndexByte(",;'()", s[i]) >= 0) {
			return false
		}
	}
	return true
}

func isPlainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(" _./-@%+=", c) >= 0
}
