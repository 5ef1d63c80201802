package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// maxFormatPasses bounds the search for a layout that stays as it is. Comments
// in unusual places may move once.
const maxFormatPasses = 5

// Format gives a text its normal layout, keeping comments and meaning. A text
// with errors is not formatted: the error is Parse's. Shipped fragments can be
// formatted too.
func Format(src []byte) ([]byte, error) {
	for range maxFormatPasses {
		out, err := formatOnce(src)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(out, src) {
			return out, nil
		}
		src = out
	}
	return nil, fmt.Errorf("%w: the comments of this text have no stable place; put them on lines of their own", errs.ErrInvalid)
}

func formatOnce(src []byte) ([]byte, error) {
	before, err := parse("", src, true)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for i, d := range before {
		if i > 0 {
			b.WriteString("---\n")
		}
		text, err := formatDocument(d)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	after, err := parse("", b.Bytes(), true)
	if err != nil || len(after) != len(before) {
		return nil, fmt.Errorf("formatting would break the text: %w", errors.Join(errs.ErrInvalid, err))
	}
	for i := range before {
		if ContentDigest(before[i].Resource, nil) != ContentDigest(after[i].Resource, nil) {
			return nil, fmt.Errorf("%w: formatting would change the meaning of %s", errs.ErrInvalid, before[i].Name)
		}
	}
	return b.Bytes(), nil
}

// formatDocument prints one document and makes sure that no comment was lost.
func formatDocument(d *Document) (string, error) {
	seg := d.origin.seg
	w := &printer{}
	w.comment(seg.head, 0)
	w.document(d.origin.root)
	w.comment(seg.foot, 0)
	out := w.b.String()
	if comments(out) < comments(d.Source) {
		return "", fmt.Errorf("%w: a comment of %s stands where it cannot be kept; put it on a line of its own", errs.ErrInvalid, d.Name)
	}
	return out, nil
}

// comments counts the comments of a text. In one with block scalars ("|", ">")
// they cannot be told from text so simply, and it gives 0.
func comments(text string) int {
	n := 0
	quote := byte(0)
	last := byte('\n') // the character before
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case strings.IndexByte(" \t\n[{,:-", last) < 0: // within a word
		case c == '"' || c == '\'':
			quote = c
		case c == '|' || c == '>':
			return 0
		case c == '#' && (last == ' ' || last == '\t' || last == '\n'):
			n++
			if end := strings.IndexByte(text[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(text)
			}
			last = '\n'
			continue
		}
		last = c
	}
	return n
}

// ToYAML writes a document that has no text of its own.
func ToYAML(r *apiv1.Resource) ([]byte, error) {
	kind, m := contentOf(r)
	if m == nil {
		return nil, fmt.Errorf("%w: the document has no kind", errs.ErrInvalid)
	}
	root := messageNode(m)
	root.Content = append([]*yaml.Node{textNode("apiVersion"), textNode(APIVersion), textNode("kind"), textNode(kind)}, root.Content...)
	w := &printer{}
	w.document(root)
	return []byte(w.b.String()), nil
}

func textNode(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// inBrackets are the messages that are written in brackets where they fit.
var inBrackets = map[protoreflect.Name]bool{"PathRule": true, "PortRule": true, "Parameter": true, "Handles": true, "Quiet": true, "Log": true, "TestEntry": true, "TestExpectation": true, "SmackRule": true, "SmackCipso": true, "SmackHost": true}

// messageNode is the tree of a message, without default values.
func messageNode(m protoreflect.Message) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if inBrackets[m.Descriptor().Name()] {
		n.Style = yaml.FlowStyle
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if m.Has(f) {
			n.Content = append(n.Content, textNode(f.JSONName()), fieldNode(m.Get(f), f))
		}
	}
	return n
}

func fieldNode(v protoreflect.Value, f protoreflect.FieldDescriptor) *yaml.Node {
	switch {
	case f.IsMap():
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		keys := make([]string, 0, v.Map().Len())
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k.String())
			return true
		})
		for _, k := range sorted(keys) {
			n.Content = append(n.Content, textNode(k), valueNode(v.Map().Get(protoreflect.ValueOfString(k).MapKey()), f.MapValue()))
		}
		return n
	case f.IsList():
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if f.Kind() != protoreflect.MessageKind {
			n.Style = yaml.FlowStyle
		}
		for i := range v.List().Len() {
			n.Content = append(n.Content, valueNode(v.List().Get(i), f))
		}
		return n
	}
	return valueNode(v, f)
}

func valueNode(v protoreflect.Value, f protoreflect.FieldDescriptor) *yaml.Node {
	switch f.Kind() {
	case protoreflect.MessageKind:
		if list, ok := v.Message().Interface().(*apiv1.StringList); ok {
			n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
			for _, s := range list.GetValues() {
				n.Content = append(n.Content, textNode(s))
			}
			return n
		}
		if p, ok := v.Message().Interface().(*apiv1.Parameter); ok && len(p.GetWithin()) == 0 {
			return textNode(p.GetName())
		}
		return messageNode(v.Message())
	case protoreflect.EnumKind:
		words := enumWords(f.Enum())
		if i := int(v.Enum()); i >= 1 && i <= len(words) {
			return textNode(words[i-1])
		}
		return textNode(fmt.Sprint(v.Enum()))
	}
	return textNode(v.String())
}
