package policy

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// place is the path of a field, as a chain from the field up to the document.
// Chains live on the stack; text is made only for a finding.
type place struct {
	parent *place
	name   string
	index  int // of a list; -1: name counts
}

func (p *place) key(name string) place { return place{parent: p, name: name, index: -1} }
func (p *place) at(i int) place        { return place{parent: p, index: i} }

// String gives "spec.layers[0].paths[2].at[0]".
func (p *place) String() string {
	if p == nil {
		return ""
	}
	head := p.parent.String()
	switch {
	case p.index >= 0:
		return head + "[" + strconv.Itoa(p.index) + "]"
	case !isWord(p.name):
		return head + "[" + strconv.Quote(clip(p.name)) + "]"
	case head == "":
		return strings.Clone(p.name) // a copy, so that chains of places stay on the stack
	}
	return head + "." + p.name
}

func isWord(s string) bool {
	return s != "" && len(s) <= MaxNameBytes && strings.IndexFunc(s, func(r rune) bool {
		return !(r == '_' || r == '-' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9')
	}) < 0
}

// locate finds the node of a field, or the nearest one around it.
func locate(root *yaml.Node, p *place) *yaml.Node {
	if p == nil {
		return root
	}
	n := locate(root, p.parent)
	if n == nil {
		return nil
	}
	switch {
	case p.index >= 0 && n.Kind == yaml.SequenceNode && p.index < len(n.Content):
		return n.Content[p.index]
	case p.index < 0 && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == p.name {
				return n.Content[i+1]
			}
		}
	}
	return n
}

// origin is where a document came from; without a text only fields are named.
type origin struct {
	seg  *segment
	root *yaml.Node
}

// finding makes one for a field.
func (o origin) finding(code string, p *place, message string) *apiv1.Finding {
	if o.seg == nil {
		return &apiv1.Finding{Code: code, Message: message, Field: p.String()}
	}
	line, col := 1, 0
	if n := locate(o.root, p); n != nil {
		line, col = n.Line, n.Column
	}
	return o.seg.finding(code, line, col, p.String(), message)
}

// reporter collects errors on one document.
type reporter struct {
	origin
	errors *Errors
}

func (r *reporter) addf(code string, p *place, format string, args ...any) {
	r.errors.add(r.finding(code, p, fmt.Sprintf(format, args...)))
}

// suggest gives `; did you mean "x"?` for the nearest known word, or lists the
// known ones when there are few.
func suggest(word string, known []string) string {
	best, least := "", len(word)/3+2
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k), least); d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	if n := len(known); n > 0 && n <= 12 {
		return "; known are " + strings.Join(known, ", ")
	}
	return ""
}

// distance is the number of edits (insert, remove, replace, swap neighbours)
// between two words, or limit when there are at least so many.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return min(prev[len(b)], limit)
}
