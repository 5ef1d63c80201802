package policy

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// decoder fills api messages from a YAML tree: keys are JSON names, enum values
// are lower case without their prefix, and a list of words or of parameters may
// be written as its only member. It reports every error it meets and goes on.
type decoder struct{ reporter }

func (d *decoder) node(n *yaml.Node, code string, p *place, format string, args ...any) {
	d.errors.add(d.seg.finding(code, n.Line, n.Column, p.String(), fmt.Sprintf(format, args...)))
}

// document reads the envelope and what is in it; nil when that is not possible.
func (d *decoder) document(n *yaml.Node) *apiv1.Resource {
	if !d.plain(n, nil) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.node(n, codeWrongType, nil, "a document is a mapping with apiVersion, kind, metadata and spec, not %s", describe(n))
		return nil
	}
	version, kind := d.word(n, "apiVersion"), d.word(n, "kind")
	if version == nil || kind == nil {
		return nil
	}
	if version.Value != APIVersion {
		p := (*place)(nil).key("apiVersion")
		d.node(version, codeUnknownKind, &p, "unknown apiVersion %q; this policyd reads %s", clip(version.Value), APIVersion)
		return nil
	}
	if res, m := newResource(kind.Value); res != nil {
		d.message(n, m, nil)
		return res
	}
	p := (*place)(nil).key("kind")
	d.node(kind, codeUnknownKind, &p, "unknown kind %q%s", clip(kind.Value), suggest(kind.Value, Kinds()))
	return nil
}

// word finds a key of the envelope.
func (d *decoder) word(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			p := (*place)(nil).key(key)
			if _, ok := d.text(n.Content[i+1], &p); !ok {
				return nil
			}
			return n.Content[i+1]
		}
	}
	d.node(n, codeMissingKey, nil, "%s is missing", key)
	return nil
}

// message fills a message from a mapping.
func (d *decoder) message(n *yaml.Node, m protoreflect.Message, p *place) {
	if !d.want(n, yaml.MappingNode, p) {
		return
	}
	fields := m.Descriptor().Fields()
	d.pairs(n, p, func(key string, k, v *yaml.Node) {
		if p == nil && (key == "apiVersion" || key == "kind") {
			return
		}
		at := p.key(key)
		field := fields.ByJSONName(key)
		if field == nil {
			known := make([]string, fields.Len())
			for i := range known {
				known[i] = fields.Get(i).JSONName()
			}
			d.node(k, codeUnknownKey, &at, "unknown key %q%s", clip(key), suggest(key, known))
			return
		}
		d.field(v, m, field, &at)
	})
}

// pairs calls f for every key of a mapping, once each.
func (d *decoder) pairs(n *yaml.Node, p *place, f func(key string, k, v *yaml.Node)) {
	var seen map[string]int
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if !d.plain(k, p) {
			continue
		}
		if k.Kind != yaml.ScalarNode {
			d.node(k, codeWrongType, p, "a key is a word, not %s", describe(k))
			continue
		}
		if k.ShortTag() == "!!merge" {
			d.node(k, codeAlias, p, "merge keys are not used here; write a fragment to share rules")
			continue
		}
		first, again := 0, false
		if len(n.Content) <= 16 {
			for j := 0; j < i && !again; j += 2 {
				if n.Content[j].Value == k.Value {
					first, again = n.Content[j].Line, true
				}
			}
		} else {
			if seen == nil {
				seen = make(map[string]int, len(n.Content)/2)
			}
			if first, again = seen[k.Value]; !again {
				seen[k.Value] = k.Line
			}
		}
		if again {
			at := p.key(k.Value)
			d.node(k, codeRepeatedKey, &at, "key %q stands twice, first in line %d", clip(k.Value), first+d.seg.firstLine-1)
			continue
		}
		f(k.Value, k, v)
	}
}

func (d *decoder) field(n *yaml.Node, m protoreflect.Message, field protoreflect.FieldDescriptor, p *place) {
	switch {
	case field.IsMap():
		if !d.want(n, yaml.MappingNode, p) {
			return
		}
		entries := m.Mutable(field).Map()
		d.pairs(n, p, func(key string, _, v *yaml.Node) {
			at := p.key(key)
			if field.MapValue().Kind() == protoreflect.MessageKind {
				value := entries.NewValue()
				d.sub(v, value.Message(), &at)
				entries.Set(protoreflect.ValueOfString(key).MapKey(), value)
				return
			}
			if value, ok := d.scalar(v, field.MapValue(), &at); ok {
				entries.Set(protoreflect.ValueOfString(key).MapKey(), value)
			}
		})
	case field.IsList():
		d.list(n, m.Mutable(field).List(), field, p)
	case field.Kind() == protoreflect.MessageKind:
		d.sub(n, m.Mutable(field).Message(), p)
	default:
		if value, ok := d.scalar(n, field, p); ok {
			m.Set(field, value)
		}
	}
}

func (d *decoder) list(n *yaml.Node, l protoreflect.List, field protoreflect.FieldDescriptor, p *place) {
	members := n.Content
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && takesWord(field) {
		members = []*yaml.Node{n} // a list of one, written without brackets
	} else if !d.want(n, yaml.SequenceNode, p) {
		return
	}
	for i, member := range members {
		at := p.at(i)
		if field.Kind() == protoreflect.MessageKind {
			d.sub(member, l.AppendMutable().Message(), &at)
			continue
		}
		if value, ok := d.scalar(member, field, &at); ok {
			l.Append(value)
		}
	}
}

// takesWord tells whether a member of a list may be one word.
func takesWord(field protoreflect.FieldDescriptor) bool {
	return field.Kind() == protoreflect.StringKind
}

// sub reads a message, in its short form where it has one.
func (d *decoder) sub(n *yaml.Node, m protoreflect.Message, p *place) {
	switch v := m.Interface().(type) {
	case *apiv1.StringList:
		if n.Kind != yaml.MappingNode {
			d.list(n, m.Mutable(m.Descriptor().Fields().ByName("values")).List(), m.Descriptor().Fields().ByName("values"), p)
			return
		}
		d.want(n, yaml.SequenceNode, p)
		return
	case *apiv1.Parameter:
		if n.Kind == yaml.ScalarNode {
			v.Name, _ = d.text(n, p)
			return
		}
	}
	d.message(n, m, p)
}

func (d *decoder) scalar(n *yaml.Node, field protoreflect.FieldDescriptor, p *place) (protoreflect.Value, bool) {
	s, ok := d.text(n, p)
	if !ok {
		return protoreflect.Value{}, false
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(s), true
	case protoreflect.BoolKind:
		if !quoted && (s == "true" || s == "false") {
			return protoreflect.ValueOfBool(s == "true"), true
		}
		d.node(n, codeWrongType, p, "want true or false, not %q", clip(s))
	case protoreflect.Uint32Kind:
		if v, err := strconv.ParseUint(s, 10, 32); err == nil && !quoted {
			return protoreflect.ValueOfUint32(uint32(v)), true
		}
		d.node(n, codeWrongType, p, "want a number, not %s", describe(n))
	case protoreflect.EnumKind:
		words := enumWords(field.Enum())
		for i, w := range words {
			if w == s {
				return protoreflect.ValueOfEnum(field.Enum().Values().Get(i + 1).Number()), true
			}
		}
		d.node(n, codeBadValue, p, "unknown word %q%s", clip(s), suggest(s, words))
	}
	return protoreflect.Value{}, false
}

// enumWords gives the words of an enum, without its first value, which stands for none.
func enumWords(e protoreflect.EnumDescriptor) []string {
	prefix := strings.TrimSuffix(string(e.Values().Get(0).Name()), "UNSPECIFIED")
	words := make([]string, 0, e.Values().Len()-1)
	for i := 1; i < e.Values().Len(); i++ {
		words = append(words, strings.ToLower(strings.TrimPrefix(string(e.Values().Get(i).Name()), prefix)))
	}
	return words
}

// text gives a scalar as it was written.
func (d *decoder) text(n *yaml.Node, p *place) (string, bool) {
	if !d.plain(n, p) {
		return "", false
	}
	if n.Kind != yaml.ScalarNode {
		d.node(n, codeWrongType, p, "want a word, not %s", describe(n))
		return "", false
	}
	if n.ShortTag() == "!!null" {
		d.node(n, codeWrongType, p, "there is no value")
		return "", false
	}
	return n.Value, true
}

// want checks that a node is a list or a mapping.
func (d *decoder) want(n *yaml.Node, kind yaml.Kind, p *place) bool {
	if !d.plain(n, p) {
		return false
	}
	if n.Kind == kind {
		return true
	}
	what := "a list"
	if kind == yaml.MappingNode {
		what = "a mapping"
	}
	d.node(n, codeWrongType, p, "want %s, not %s", what, describe(n))
	return false
}

// plain refuses what could make a small text large or mean something else than it says.
func (d *decoder) plain(n *yaml.Node, p *place) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.node(n, codeAlias, p, "aliases are not used here; use a variable or a fragment")
	case n.Anchor != "":
		d.node(n, codeAlias, p, "anchors are not used here; use a variable or a fragment")
	case n.Style&yaml.TaggedStyle != 0:
		d.node(n, codeAlias, p, "tags are not used here")
	default:
		return true
	}
	return false
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.ShortTag() == "!!null" {
		return "nothing"
	}
	return strconv.Quote(clip(n.Value))
}
