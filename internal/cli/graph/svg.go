package graph

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Sizes of the picture, pixels. Text is monospaced, and charWidth a little more
// than what fonts have at this size.
const (
	rowHeight  = 18
	charWidth  = 7.3
	indent     = 16
	margin     = 12
	columnGap  = 14
	maxName    = 600 // of the column of paths
	maxColumn  = 300 // of any other, with few layers
	manyLayers = 4
	maxNarrow  = 150
)

const svgStyle = `
text{font:12px ui-monospace,monospace;fill:#1b1f24}
.t{font-weight:bold}.i,.z{fill:#7a828c}.l{stroke:#b6bec8;fill:none}.r{fill:#f3f6f9}.page{fill:#fff}
.ok{fill:#1a7f37}.ch{fill:#9a5b00}.no{fill:#7a828c}
@media (prefers-color-scheme:dark){text{fill:#dfe5ec}.i,.z,.no{fill:#8d96a1}.l{stroke:#48505a}.r{fill:#1b2027}.page{fill:#12161b}.ok{fill:#4cc46a}.ch{fill:#e3a83b}}
`

// svgLine is a row of the picture.
type svgLine struct {
	name   string
	depth  int
	row    Row
	rule   bool
	title  bool
	parent int // index of the line above in the tree, or -1
}

type svgWriter struct {
	w     *bufio.Writer
	g     *Graph
	lines []svgLine
	x     []float64 // where columns begin: paths, allowed, layers; and the end
}

// SVG writes a self-contained picture: the tree of paths with a column for what
// all layers together allow and one for each layer. What a layer has no rule for
// right here, but above, is pale.
func (g *Graph) SVG(w io.Writer) error {
	s := &svgWriter{w: bufio.NewWriter(w), g: g}
	s.node(g.Root, -1)
	s.table("ports", g.Ports, g.Other)
	s.table("scopes", g.Scopes, "")
	s.measure()
	head := s.head()
	top := float64(margin + rowHeight*(len(head)+2))
	width, height := s.x[len(s.x)-1]+margin, top+float64(rowHeight*(len(s.lines)+1))+margin
	fmt.Fprintf(s.w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`+"\n", width, height, width, height)
	fmt.Fprintf(s.w, "<title>%s</title>\n<style>%s</style>\n", escape(g.Name), svgStyle)
	fmt.Fprintf(s.w, `<rect class="page" width="100%%" height="100%%"/>`+"\n")
	for i, line := range head {
		class := "i"
		if i == 0 {
			class = "t"
		}
		s.text(margin, margin+rowHeight*float64(i+1)-5, class, line, "")
	}
	x := float64(margin)
	for _, l := range legend {
		s.text(x, margin+rowHeight*float64(len(head)+1)-5, l.class, l.text, "")
		x += charWidth * float64(utf8.RuneCountInString(l.text)+2)
	}
	titles := []string{"path", "allowed"}
	for _, l := range g.Layers {
		titles = append(titles, l.Name)
	}
	for i, t := range titles {
		s.text(s.x[i], top+rowHeight-5, "t", s.fit(i, t, 0), t)
	}
	for i := range s.lines {
		s.line(i, top+float64(rowHeight*(i+1)), width)
	}
	fmt.Fprintf(s.w, "</svg>\n")
	return s.w.Flush()
}

// legend says what the colours of rights mean.
var legend = []struct{ class, text string }{
	{"ok", "allowed: to read or execute"}, {"ch", "allowed: to change files or be reached"}, {"no", "nothing allowed"}, {"i", "pale in a layer: granted further up"},
}

func (s *svgWriter) head() []string {
	lines := []string{fmt.Sprintf("%s, written for ABI %d, %s", s.g.Name, s.g.ABI, counted(s.g.Rules))}
	for _, l := range s.g.Layers {
		lines = append(lines, "layer "+l.Name+" handles "+orNothing(l.Handles.Short))
	}
	for _, f := range s.g.Free {
		lines = append(lines, "no layer handles, so all may ("+f.Kind+"): "+f.Rights)
	}
	for _, f := range s.g.Folded {
		lines = append(lines, "fragment "+f.String()+", not shown")
	}
	if s.g.Mount {
		lines = append(lines, "mounts may be changed: no layer handles any right of files")
	}
	return lines
}

func (s *svgWriter) node(n *Node, parent int) {
	at := len(s.lines)
	s.lines = append(s.lines, svgLine{name: n.Name, depth: n.Depth, row: n.Row, rule: n.Rule, parent: parent})
	for _, c := range n.Nodes {
		s.node(c, at)
	}
	if n.Below > 0 {
		s.lines = append(s.lines, svgLine{name: "(" + counted(n.Below) + " further down)", depth: n.Depth + 1, parent: at})
	}
}

func (s *svgWriter) table(title string, rows []Row, other string) {
	if len(rows) == 0 && other == "" {
		return
	}
	s.lines = append(s.lines, svgLine{parent: -1}, svgLine{name: title, title: true, parent: -1})
	for _, r := range rows {
		s.lines = append(s.lines, svgLine{name: r.What, row: r, rule: true, parent: -1})
	}
	if other != "" {
		s.lines = append(s.lines, svgLine{name: "all others", row: Row{What: "all others", Allowed: Text{Short: other, Full: other}}, parent: -1})
	}
}

func (s *svgWriter) measure() {
	columns := 2 + len(s.g.Layers)
	widths := make([]float64, columns)
	limit := float64(maxColumn)
	if len(s.g.Layers) > manyLayers {
		limit = maxNarrow
	}
	grow := func(i int, text string, more, limit float64) {
		widths[i] = min(max(widths[i], more+charWidth*float64(utf8.RuneCountInString(text))), limit)
	}
	grow(1, "allowed", 0, limit)
	for i, l := range s.g.Layers {
		grow(2+i, l.Name, 0, limit)
	}
	for _, l := range s.lines {
		grow(0, l.name, float64(indent*l.depth), maxName+float64(indent*l.depth))
		grow(1, l.row.Allowed.Short, 0, limit)
		for i, c := range l.row.Cells {
			grow(2+i, c.Granted.Short, 0, limit)
		}
	}
	x := float64(margin)
	for _, w := range widths {
		s.x = append(s.x, x)
		x += w + columnGap
	}
	s.x = append(s.x, x)
	var all strings.Builder
	for _, l := range legend {
		all.WriteString(l.text + "  ")
	}
	for _, l := range append(s.head(), all.String()) {
		s.x[columns] = max(s.x[columns], margin+charWidth*float64(utf8.RuneCountInString(l)))
	}
}

// fit cuts text to the width of a column.
func (s *svgWriter) fit(column int, text string, used float64) string {
	room := int((s.x[column+1] - s.x[column] - columnGap - used) / charWidth)
	runes := []rune(text)
	if len(runes) <= room+1 {
		return text
	}
	return string(runes[:max(room-1, 1)]) + "…"
}

func (s *svgWriter) line(i int, y, width float64) {
	l := &s.lines[i]
	if i%2 == 1 && l.name != "" {
		fmt.Fprintf(s.w, `<rect class="r" x="0" y="%.0f" width="%.0f" height="%d"/>`+"\n", y, width, rowHeight)
	}
	base := y + rowHeight - 5
	x := s.x[0] + float64(indent*l.depth)
	if l.parent >= 0 {
		from := s.x[0] + float64(indent*s.lines[l.parent].depth) + 4
		fmt.Fprintf(s.w, `<path class="l" d="M%.0f %.0fV%.0fH%.0f"/>`+"\n", from, y-float64(rowHeight*(i-l.parent-1)), y+rowHeight/2, x-2)
	}
	class := "z"
	if l.rule || l.title {
		class = "t"
	}
	s.text(x, base, class, s.fit(0, l.name, x-s.x[0]), l.row.What)
	class = "ok"
	switch {
	case allowedStyle(l.row.Allowed) == Nothing:
		class = "no"
	case l.row.Allowed.Changes:
		class = "ch"
	}
	s.text(s.x[1], base, class, s.fit(1, l.row.Allowed.Short, 0), l.row.Allowed.Full)
	for k, c := range l.row.Cells {
		class = "i"
		if allowedStyle(c.Own) == Allowed {
			class = ""
		}
		s.text(s.x[2+k], base, class, s.fit(2+k, c.Granted.Short, 0), strings.TrimSpace(c.Granted.Full+" "+c.Place))
	}
}

// text writes text with a title that shows when it is pointed at.
func (s *svgWriter) text(x, y float64, class, text, title string) {
	if text == "" {
		return
	}
	fmt.Fprintf(s.w, `<text x="%.1f" y="%.1f"`, x, y)
	if class != "" {
		fmt.Fprintf(s.w, ` class="%s"`, class)
	}
	fmt.Fprintf(s.w, " xml:space=\"preserve\">")
	if title != "" && title != text {
		fmt.Fprintf(s.w, "<title>%s</title>", escape(title))
	}
	fmt.Fprintf(s.w, "%s</text>\n", escape(text))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder gives no error
	return b.String()
}
