package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Dot writes the picture in the language of Graphviz: a box for each path, from
// left to right, with what all layers allow and the rules of each. `dot -Tsvg`
// draws it.
func (g *Graph) Dot(w io.Writer) error {
	d := &dotWriter{w: bufio.NewWriter(w), g: g}
	fmt.Fprintf(d.w, "digraph policy {\n")
	fmt.Fprintf(d.w, "  graph [rankdir=LR, nodesep=0.08, ranksep=0.5, label=%s, labelloc=t, fontname=\"sans-serif\"];\n", quoteDot(d.title()))
	fmt.Fprintf(d.w, "  node [shape=box, style=filled, fillcolor=\"#ffffff\", color=\"#888888\", fontname=\"monospace\", fontsize=10, height=0.2, margin=\"0.08,0.04\"];\n")
	fmt.Fprintf(d.w, "  edge [color=\"#888888\", arrowhead=none];\n")
	d.node(g.Root)
	d.rows("ports", g.Ports, g.Other)
	d.rows("scopes", g.Scopes, "")
	fmt.Fprintf(d.w, "}\n")
	return d.w.Flush()
}

type dotWriter struct {
	w *bufio.Writer
	g *Graph
	n int // nodes so far
}

func (d *dotWriter) title() []string {
	lines := []string{fmt.Sprintf("%s, ABI %d", d.g.Name, d.g.ABI)}
	for _, l := range d.g.Layers {
		lines = append(lines, "layer "+l.Name+" handles "+orNothing(l.Handles.Short))
	}
	for _, f := range d.g.Folded {
		lines = append(lines, "fragment "+f.String()+", not shown")
	}
	if d.g.Mount {
		lines = append(lines, "mounts may be changed")
	}
	return lines
}

func (d *dotWriter) next() int {
	d.n++
	return d.n
}

func (d *dotWriter) node(n *Node) int {
	id := d.next()
	name := n.Name
	if n.Below > 0 {
		name += fmt.Sprintf("  (and %s further down)", counted(n.Below))
	}
	d.box(id, name, n.Row, n.Rule)
	for _, c := range n.Nodes {
		fmt.Fprintf(d.w, "  n%d -> n%d;\n", id, d.node(c))
	}
	return id
}

func (d *dotWriter) box(id int, name string, r Row, rule bool) {
	lines := []string{name}
	tooltip := []string{r.What, "allowed: " + orNothing(r.Allowed.Full)}
	fill := "#eeeeee"
	if rule {
		fill = "#dceefb"
		lines = append(lines, "allowed: "+orNothing(r.Allowed.Short))
	}
	for i, c := range r.Cells {
		if c.Own.Short == "" || c.Own.Short == "nothing" {
			continue
		}
		lines = append(lines, d.g.Layers[i].Name+": "+c.Own.Short)
		tooltip = append(tooltip, strings.TrimRight(d.g.Layers[i].Name+": "+c.Own.Full+" "+c.Place, " "))
	}
	fmt.Fprintf(d.w, "  n%d [label=%s, tooltip=%s, fillcolor=\"%s\"];\n", id, quoteDot(lines), quoteDot(tooltip), fill)
}

func (d *dotWriter) rows(title string, rows []Row, other string) {
	if len(rows) == 0 && other == "" {
		return
	}
	head := d.next()
	fmt.Fprintf(d.w, "  n%d [label=\"%s\", shape=plaintext, style=solid];\n", head, title)
	for _, r := range rows {
		id := d.next()
		d.box(id, r.What, r, true)
		fmt.Fprintf(d.w, "  n%d -> n%d;\n", head, id)
	}
	if other != "" {
		id := d.next()
		d.box(id, "all others", Row{What: "all others", Allowed: Text{Short: other, Full: other}}, true)
		fmt.Fprintf(d.w, "  n%d -> n%d;\n", head, id)
	}
}

// quoteDot writes lines as a string of dot, each set to the left. A backslash
// begins an escape (\N, \G, \n), so one of the text is doubled.
func quoteDot(lines []string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, l := range lines {
		l = strings.ReplaceAll(l, `\`, `\\`)
		// Graphviz reads entities of HTML in labels too.
		l = strings.ReplaceAll(l, "&", "&amp;")
		b.WriteString(strings.ReplaceAll(l, `"`, `\"`))
		if len(lines) > 1 || i > 0 {
			b.WriteString(`\l`)
		}
	}
	b.WriteByte('"')
	return b.String()
}
