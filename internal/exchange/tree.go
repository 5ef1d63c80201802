package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep lists and mappings may be nested.
const maxDepth = 24

// kind is what a node is.
type kind uint8

const (
	object kind = iota
	list
	text
	number
	other // true, null, a date: no format here has them
	truth
)

var kindNames = [...]string{"a mapping", "a list", "a text", "a number", "something else", "true or false"}

// node is a value of a JSON, TOML or YAML text with its place.
type node struct {
	kind    kind
	at      spot
	text    string // of a text; as it was written of a number, true, false
	items   []*node
	members []member // in the order of the text, no key twice
	index   map[string]int
}

type member struct {
	key   string
	at    spot
	value *node
}

func (n *node) get(key string) *node {
	if i, ok := n.index[key]; ok {
		return n.members[i].value
	}
	return nil
}

// put adds a member.
func (n *node) put(key string, at spot, value *node) {
	if n.index == nil {
		n.index = map[string]int{}
	}
	n.index[key] = len(n.members)
	n.members = append(n.members, member{key, at, value})
}

// integer gives a whole number of 0 or more; ok is false when the node is none.
func (n *node) integer() (v uint64, ok bool) {
	if n.kind != number {
		return 0, false
	}
	v, err := strconv.ParseUint(n.text, 10, 64)
	return v, err == nil
}

// want tells whether a node has a kind, and reports when not.
func (r *report) want(n *node, k kind, what string) bool {
	if n.kind != k {
		r.errorf(n.at, codeWrongType, "%s: want %s, not %s", what, kindNames[k], kindNames[n.kind])
		return false
	}
	return true
}

// keys reports members that have none of the names, and gives those that are there.
func (r *report) keys(n *node, what string, names ...string) (found map[string]*node, ok bool) {
	if !r.want(n, object, what) {
		return nil, false
	}
	found = make(map[string]*node, len(n.members))
	ok = true
	for _, m := range n.members {
		known := false
		for _, name := range names {
			known = known || m.key == name
		}
		if !known {
			r.errorf(m.at, codeUnknownKey, "%s: unknown key %q; known are %s", what, clip(m.key), strings.Join(names, ", "))
			ok = false
			continue
		}
		found[m.key] = m.value
	}
	return found, ok
}

// json reads a JSON text. nil when it has errors, which are reported.
func (r *report) json(s *source) *node {
	if !r.text(s) {
		return nil
	}
	var whole json.RawMessage
	if err := json.Unmarshal(s.Data, &whole); err != nil {
		at := s.whole()
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = s.at(int(syntax.Offset) - 1)
		}
		r.errorf(at, codeSyntax, "not JSON: %v", err)
		return nil
	}
	d := &jsonReader{report: r, source: s, dec: json.NewDecoder(bytes.NewReader(s.Data))}
	d.dec.UseNumber()
	n, ok := d.value(0)
	if !ok {
		return nil
	}
	return n
}

type jsonReader struct {
	*report
	source *source
	dec    *json.Decoder
}

// token gives the next token and the place where it begins.
func (d *jsonReader) token() (json.Token, spot, bool) {
	begin := int(d.dec.InputOffset())
	for begin < len(d.source.Data) && strings.IndexByte(" \t\r\n,:", d.source.Data[begin]) >= 0 {
		begin++
	}
	at := d.source.at(begin)
	t, err := d.dec.Token()
	if err != nil {
		d.errorf(at, codeSyntax, "not JSON: %v", err)
		return nil, at, false
	}
	// A surrogate without its other half would become another text.
	if s, ok := t.(string); ok && strings.ContainsRune(s, utf8.RuneError) && !bytes.ContainsRune(d.source.Data[begin:d.dec.InputOffset()], utf8.RuneError) {
		d.errorf(at, codeEncoding, "a text with half of a character")
		return nil, at, false
	}
	return t, at, true
}

func (d *jsonReader) value(depth int) (*node, bool) {
	t, at, ok := d.token()
	if !ok {
		return nil, false
	}
	n := &node{at: at}
	if depth > maxDepth {
		d.errorf(at, codeTooLarge, "nested more than %d deep", maxDepth)
		return nil, false
	}
	switch t := t.(type) {
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = number, t.String()
	case bool:
		n.kind, n.text = truth, fmt.Sprint(t)
	case json.Delim:
		if t == '[' {
			n.kind = list
		}
		return n, d.inside(n, depth+1)
	default:
		n.kind = other
	}
	return n, true
}

func (d *jsonReader) inside(n *node, depth int) bool {
	for d.dec.More() {
		if n.kind == list {
			item, ok := d.value(depth)
			if !ok {
				return false
			}
			n.items = append(n.items, item)
			continue
		}
		t, at, ok := d.token()
		if !ok {
			return false
		}
		key, _ := t.(string)
		value, ok := d.value(depth)
		if !ok {
			return false
		}
		if i, twice := n.index[key]; twice {
			line, _ := n.members[i].at.where()
			d.errorf(at, codeRepeatedKey, "key %q stands twice, first in line %d", clip(key), line)
			continue
		}
		n.put(key, at, value)
	}
	_, _, ok := d.token()
	return ok
}
