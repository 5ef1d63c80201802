package graph

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Style is how a part of a line is set off on a terminal.
type Style int

// The styles of a tree.
const (
	Plain   Style = iota
	Title         // of a part
	Rule          // a path that a layer has a rule for
	Allowed       // rights that all layers together allow
	Nothing       // none
	Faint         // the lines of the tree, and where rules stand
)

// TreeOptions are what the terminal can show.
type TreeOptions struct {
	ASCII bool
	Paint func(s string, style Style) string // nil: as it is
}

// UTF8 tells whether the locale of the environment writes UTF-8 (locale(7)).
func UTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// widest is how wide the column of paths grows, runes.
const widest = 60

type treeWriter struct {
	w     *bufio.Writer
	o     TreeOptions
	width [2]int    // of the columns of paths and of what is allowed
	lines [4]string // to one of several, to the last, past others, past none
	names []string  // of layers
}

// Tree writes the picture for a terminal: a line for each path, with what all
// layers together allow there and the rules of each layer.
func (g *Graph) Tree(w io.Writer, o TreeOptions) error {
	t := &treeWriter{w: bufio.NewWriter(w), o: o, lines: [4]string{"├── ", "└── ", "│   ", "    "}}
	if o.ASCII {
		t.lines = [4]string{"|-- ", "`-- ", "|   ", "    "}
	}
	if o.Paint == nil {
		t.o.Paint = func(s string, _ Style) string { return s }
	}
	for _, l := range g.Layers {
		t.names = append(t.names, l.Name)
	}
	t.head(g)
	g.Root.measure(t, 0)
	t.measure("all others", "ALLOWED")
	for _, r := range slices.Concat(g.Ports, g.Scopes) {
		t.measure(r.What, r.Allowed.Short)
	}
	t.line("", "PATH", Title, "ALLOWED", Title, "RULES BY LAYER")
	t.node(g.Root, "", "")
	t.table("PORTS", g.Ports, g.Other)
	t.table("SCOPES", g.Scopes, "")
	return t.w.Flush()
}

func (t *treeWriter) head(g *Graph) {
	fmt.Fprintf(t.w, "%s, written for ABI %d, %s\n", t.o.Paint(t.written(g.Name), Title), g.ABI, counted(g.Rules))
	for _, l := range g.Layers {
		fmt.Fprintf(t.w, "layer %s handles %s\n", t.o.Paint(t.written(l.Name), Title), orNothing(l.Handles.Short))
	}
	for _, f := range g.Free {
		fmt.Fprintf(t.w, "no layer handles, so all may (%s): %s\n", f.Kind, f.Rights)
	}
	for _, f := range g.Folded {
		fmt.Fprintf(t.w, "fragment %s, not shown (--fragments)\n", t.written(f.String()))
	}
	if g.Mount {
		fmt.Fprintln(t.w, "mounts may be changed: no layer handles any right of files")
	}
	fmt.Fprintln(t.w)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

func counted(n int) string {
	if n == 1 {
		return "1 rule for a path"
	}
	return fmt.Sprintf("%d rules for paths", n)
}

func (t *treeWriter) measure(path, allowed string) {
	t.width[0] = min(max(t.width[0], utf8.RuneCountInString(t.written(path))), widest)
	t.width[1] = min(max(t.width[1], utf8.RuneCountInString(allowed)), widest)
}

func (n *Node) measure(t *treeWriter, depth int) {
	t.measure(strings.Repeat(" ", 4*depth)+n.Name, n.Allowed.Short)
	for _, c := range n.Nodes {
		c.measure(t, depth+1)
	}
}

func (t *treeWriter) node(n *Node, first, rest string) {
	style := Plain
	if n.Rule {
		style = Rule
	}
	t.line(first, n.Name, style, orNothing(n.Allowed.Short), allowedStyle(n.Allowed), t.cells(n.Row))
	for i, c := range n.Nodes {
		if i == len(n.Nodes)-1 && n.Below == 0 {
			t.node(c, rest+t.lines[1], rest+t.lines[3])
		} else {
			t.node(c, rest+t.lines[0], rest+t.lines[2])
		}
	}
	if n.Below > 0 {
		t.line(rest+t.lines[1], "("+counted(n.Below)+" further down)", Faint, "", Plain, "")
	}
}

func allowedStyle(a Text) Style {
	if a.Short == "" || a.Short == "nothing" {
		return Nothing
	}
	return Allowed
}

// cells are the rules right here: "host: read (web.yaml:12)".
func (t *treeWriter) cells(r Row) string {
	var parts []string
	for i, c := range r.Cells {
		if c.Own.Short == "" || c.Own.Short == "nothing" {
			continue
		}
		part := t.names[i] + ": " + c.Own.Short
		if c.Place != "" {
			part += t.o.Paint(" ("+c.Place+")", Faint)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func (t *treeWriter) line(branch, name string, style Style, allowed string, allowedIn Style, rules string) {
	var b strings.Builder
	name, rules = t.written(name), t.written(rules)
	b.WriteString(t.o.Paint(branch, Faint))
	b.WriteString(t.o.Paint(name, style))
	b.WriteString(pad(branch+name, t.width[0]))
	b.WriteString("  ")
	b.WriteString(t.o.Paint(allowed, allowedIn))
	b.WriteString(pad(allowed, t.width[1]))
	b.WriteString("  ")
	b.WriteString(rules)
	fmt.Fprintln(t.w, strings.TrimRight(b.String(), " "))
}

// written is text as the locale can write it.
func (t *treeWriter) written(s string) string {
	if !t.o.ASCII {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

func pad(s string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

func (t *treeWriter) table(title string, rows []Row, other string) {
	if len(rows) == 0 && other == "" {
		return
	}
	fmt.Fprintln(t.w)
	t.line("", title, Title, "", Plain, "")
	for _, r := range rows {
		t.line("", r.What, Rule, orNothing(r.Allowed.Short), allowedStyle(r.Allowed), t.cells(r))
	}
	if other != "" {
		t.line("", "all others", Plain, other, allowedStyle(Text{Short: other}), "")
	}
}
