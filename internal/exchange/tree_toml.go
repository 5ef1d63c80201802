package exchange

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// toml reads a TOML text. nil when it has errors, which are reported. The library's decoder checks the text, tables and
// keys that stand twice among it; its syntax tree, which has places, is then known to be a proper one.
func (r *report) toml(s *source) *node {
	if !r.text(s) {
		return nil
	}
	var checked map[string]any
	if err := toml.Unmarshal(s.Data, &checked); err != nil {
		at, code, message := s.whole(), codeSyntax, strings.TrimPrefix(err.Error(), "toml: ")
		if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
			at = s.cell(decode.Position())
		}
		if strings.Contains(message, "already") {
			code = codeRepeatedKey
		}
		r.errorf(at, code, "not TOML: %s", message)
		return nil
	}
	d := &tomlReader{report: r, source: s}
	d.parser.Reset(s.Data)
	root := &node{kind: object, at: s.at(0)}
	table, ok := root, true
	for ok && d.parser.NextExpression() {
		e := d.parser.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, ok = d.table(root, e)
		case unstable.KeyValue:
			ok = d.keyValue(table, e, 0)
		}
	}
	if err := d.parser.Error(); err != nil && ok {
		r.errorf(s.whole(), codeSyntax, "not TOML: %v", err)
		return nil
	}
	if !ok {
		return nil
	}
	return root
}

type tomlReader struct {
	*report
	source *source
	parser unstable.Parser
}

func (d *tomlReader) place(n *unstable.Node) spot { return d.source.at(int(n.Raw.Offset)) }

// table finds or makes the table of a header.
func (d *tomlReader) table(root *node, e *unstable.Node) (*node, bool) {
	n := root
	keys := e.Key()
	for keys.Next() {
		key := keys.Node()
		last := keys.IsLast() && e.Kind == unstable.ArrayTable
		n = d.child(n, key, last)
		if n == nil {
			return nil, false
		}
	}
	return n, true
}

// child is the mapping of a key, the last one where it is a list of them; add appends one to the list.
func (d *tomlReader) child(n *node, key *unstable.Node, add bool) *node {
	name, at := string(key.Data), d.place(key)
	c := n.get(name)
	if c == nil {
		c = &node{kind: object, at: at}
		if add {
			c.kind = list
		}
		n.put(name, at, c)
	}
	if add {
		c.items = append(c.items, &node{kind: object, at: at})
	}
	if c.kind == list && len(c.items) > 0 {
		c = c.items[len(c.items)-1]
	}
	if c.kind != object {
		d.errorf(at, codeWrongType, "key %q is no table", clip(name))
		return nil
	}
	return c
}

// keyValue puts a key with its value, which may be dotted, into a table.
func (d *tomlReader) keyValue(n *node, e *unstable.Node, depth int) bool {
	keys := e.Key()
	for keys.Next() {
		key := keys.Node()
		if !keys.IsLast() {
			if n = d.child(n, key, false); n == nil {
				return false
			}
			continue
		}
		v, ok := d.value(e.Value(), d.place(key), depth)
		if !ok {
			return false
		}
		n.put(string(key.Data), d.place(key), v)
	}
	return true
}

// value reads one; near is its place where the library has none.
func (d *tomlReader) value(v *unstable.Node, near spot, depth int) (*node, bool) {
	n := &node{kind: other, at: near}
	if v.Raw.Length > 0 {
		n.at = d.place(v)
	}
	if depth > maxDepth {
		d.errorf(n.at, codeTooLarge, "nested more than %d deep", maxDepth)
		return nil, false
	}
	switch v.Kind {
	case unstable.String:
		n.kind, n.text = text, string(v.Data)
	case unstable.Bool:
		n.kind, n.text = truth, string(v.Data)
	case unstable.Integer:
		n.kind, n.text = number, string(v.Data)
		if i, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64); err == nil {
			n.text = strconv.FormatInt(i, 10)
		}
	case unstable.Array:
		n.kind = list
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			item, ok := d.value(it.Node(), n.at, depth+1)
			if !ok {
				return nil, false
			}
			n.items = append(n.items, item)
		}
	case unstable.InlineTable:
		n.kind = object
		for it := v.Children(); it.Next(); {
			if !d.keyValue(n, it.Node(), depth+1) {
				return nil, false
			}
		}
	}
	return n, true
}
