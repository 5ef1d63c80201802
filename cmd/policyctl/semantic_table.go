package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/graph"
)

// semanticShown is how many lines with the same rights and layers stand in a
// table, of more.
const semanticShown = 10

// toldLine is one line of the table. Lines that are alike but for where, and the
// places of rules that why names, stand together.
type toldLine struct{ sign, rights, where, why, alike string }

// semanticTable shows a comparison to a person; all of it, or what can be read.
func (a *app) semanticTable(t *told, all bool) error {
	if !a.quiet || t.oneOfMany && !t.Equal { // which one it is, was asked for
		fmt.Fprintf(a.out, "A %s -> B %s, on a kernel of ABI %d\n", graph.Visible(t.First.Name), graph.Visible(t.Second.Name), t.ABI)
	}
	var b bytes.Buffer
	rows := cli.NewRows(&b)
	for _, group := range grouped(t.lines()) {
		for i, l := range group {
			if i == semanticShown && len(group) > semanticShown+1 && !all {
				rows.Add(l.sign, l.rights, fmt.Sprintf("and %d more (-o wide)", len(group)-i), graph.Visible(l.alike))
				break
			}
			rows.Add(l.sign, l.rights, graph.Visible(l.where), graph.Visible(l.why))
		}
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	p := a.painter(a.out)
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, "\n ")
		switch line[0] {
		case '+':
			line = p.Paint(line, cli.Green)
		case '-':
			line = p.Paint(line, cli.Red)
		}
		if _, err := io.WriteString(a.out, line+"\n"); err != nil {
			return err
		}
	}
	if !a.quiet {
		fmt.Fprintln(a.out, t.summary())
	}
	return nil
}

func (t *told) summary() string {
	switch {
	case t.Equal:
		return "no difference"
	case t.Gained && t.Lost:
		return "something is gained, something is lost"
	case t.Gained:
		return "something is gained, nothing is lost"
	case t.Lost:
		return "nothing is gained, something is lost"
	}
	return "nothing is gained or lost"
}

// grouped brings lines that are alike together, in the order of the first of each.
func grouped(lines []toldLine) [][]toldLine {
	at := map[toldLine]int{}
	var groups [][]toldLine
	for _, l := range lines {
		key := toldLine{sign: l.sign, rights: l.rights, alike: l.alike}
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	return groups
}

// line makes a line whose why names no place of a rule.
func line(sign, rights, where, why string) toldLine { return toldLine{sign, rights, where, why, why} }

func (t *told) lines() []toldLine {
	var out []toldLine
	var above []*toldPath // those on the way down to the current one
	for i := range t.Paths {
		p := &t.Paths[i]
		for len(above) > 0 && !beneath(p.Path, above[len(above)-1].Path) {
			above = above[:len(above)-1]
		}
		where, than := p.Path, ""
		if k := len(above) - 1; k >= 0 && len(above[k].Gained)+len(above[k].Lost) > 0 {
			than = ", other than on " + above[k].Path
		}
		above = append(above, p)
		if len(p.Gained)+len(p.Lost) == 0 {
			out = append(out, line("=", "", where, "the same in both from here down"+than))
			continue
		}
		where += than
		out = append(out, p.toldChange.lines(where, t.ABI)...)
	}
	for i := range t.Ports {
		p := &t.Ports[i]
		what := "port "
		if p.First != p.Last {
			what = "ports "
		}
		out = append(out, p.toldChange.lines(what+portText(p.First, p.Last), t.ABI)...)
	}
	out = append(out, t.Scopes.lines("processes outside", t.ABI)...)
	switch t.Mount {
	case "gained":
		out = append(out, line("+", "mount", "everywhere", "B: no layer handles any right of files"))
	case "lost":
		out = append(out, line("-", "mount", "everywhere", "B: a layer handles rights of files"))
	}
	out = append(out, t.Moves.lines()...)
	for _, l := range t.Log {
		out = append(out, l.line())
	}
	for _, s := range t.Settings {
		where := s.Path
		if where == "" {
			where = "policy"
		}
		out = append(out, line("~", s.Name, where, fmt.Sprintf("%s -> %s", orNone(s.First), orNone(s.Second))))
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// beneath tells whether a path is strictly beneath a folder.
func beneath(path, folder string) bool {
	return path != folder && (folder == "/" || strings.HasPrefix(path, folder+"/"))
}

// lines has one line for gained and for lost rights, or one for each of several reasons.
func (c *toldChange) lines(where string, abi int) []toldLine {
	var out []toldLine
	for _, part := range []struct {
		sign            string
		rights          []string
		allows, refuses string // which side
	}{{"+", c.Gained, "second", "first"}, {"-", c.Lost, "first", "second"}} {
		var parts []toldLine
		masks := map[toldLine]profile.Access{}
		for _, right := range part.rights {
			l := toldLine{sign: part.sign, where: where}
			l.why, l.alike = c.why(right, part.allows, part.refuses)
			if _, ok := masks[l]; !ok {
				parts = append(parts, l)
			}
			r, _ := profile.RightByName(c.kind, right)
			masks[l] |= r.Bit
		}
		for _, l := range parts {
			rights := graph.Short(c.kind, masks[l], profile.Handled(c.kind, abi))
			out = append(out, toldLine{l.sign, rights, l.where, l.why, l.alike})
		}
	}
	return out
}

// why says what made the difference; alike is the same without places of rules.
func (c *toldChange) why(right, allows, refuses string) (why, alike string) {
	var yes, short, no []string
	for _, r := range c.Reasons {
		switch {
		case !slices.Contains(r.Rights, right):
		case r.Side == allows && r.Effect == "unhandled":
			yes, short = append(yes, "no layer handles it"), append(short, "no layer handles it")
		case r.Side == allows && r.Effect == "grants":
			grants := "layer " + r.Layer + " grants it"
			yes, short = append(yes, grants+" ("+r.place()+")"), append(short, grants)
		case r.Side == refuses && r.Effect == "refuses":
			no = append(no, r.Layer)
		}
	}
	letter := map[string]string{"first": "A", "second": "B"}
	rest := fmt.Sprintf("; %s: layer %s refuses it", letter[refuses], strings.Join(no, ", "))
	begin := letter[allows] + ": "
	return begin + strings.Join(yes, ", ") + rest, begin + strings.Join(short, ", ") + rest
}

// place says where a rule stands, or what it is for where that is not known.
func (r *toldReason) place() string {
	var places []string
	for _, o := range r.Origin {
		place := o.Field
		if o.File != "" && o.Line > 0 {
			place = fmt.Sprintf("%s:%d", o.File, o.Line)
		}
		if o.Fragment != "" {
			place += " in fragment " + o.Fragment
		}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if len(places) == 0 {
		return "rule for " + r.Rule
	}
	return strings.Join(places, ", ")
}

func (m *toldMoves) lines() []toldLine {
	if m.Unknown {
		return []toldLine{line("?", "moves", "between folders", "too many different places to compare; taken as gained and lost")}
	}
	var out []toldLine
	for _, c := range m.Changes {
		where := fmt.Sprintf("from %s to %s", m.Groups[c.From].text(), m.Groups[c.To].text())
		const more, less = "the object gains no right in any layer now", "the object would gain a right in a layer now"
		add := func(sign string, rights []string, where, why string) {
			if len(rights) > 0 {
				out = append(out, line(sign, "move "+movedText(rights), where, why))
			}
		}
		if slices.Equal(c.Gained, c.MountedGained) && slices.Equal(c.Lost, c.MountedLost) {
			add("+", c.Gained, where, more)
			add("-", c.Lost, where, less)
			continue
		}
		add("+", c.Gained, where+", in the mount of /", more)
		add("-", c.Lost, where+", in the mount of /", less)
		add("+", c.MountedGained, where+", in other mounts", more)
		add("-", c.MountedLost, where+", in other mounts", less)
	}
	return out
}

// movedText names what is moved by its rights to make.
func movedText(rights []string) string {
	if len(rights) == 7 {
		return "anything"
	}
	words := map[string]string{
		"make_char": "character devices", "make_dir": "folders", "make_reg": "files", "make_sock": "sockets",
		"make_fifo": "pipes", "make_block": "block devices", "make_sym": "links",
	}
	var out []string
	for _, r := range rights {
		out = append(out, words[r])
	}
	return strings.Join(out, ",")
}

// text names the places of a group, the first of many.
func (g *toldGroup) text() string {
	var parts []string
	for _, p := range g.In {
		parts = append(parts, strings.TrimSuffix(p, "/")+"/*")
	}
	parts = append(parts, g.Itself...)
	s := someOf(parts)
	var but []string
	for _, p := range g.Except {
		but = append(but, p+"/*")
	}
	if but = append(but, g.NotItself...); len(but) > 0 {
		s += " (but not " + someOf(but) + ")"
	}
	return s
}

func someOf(s []string) string {
	const show = 3
	if len(s) <= show {
		return strings.Join(s, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(s[:show], ", "), len(s)-show)
}

func (l *toldLog) line() toldLine {
	where := "processes outside"
	switch {
	case l.Path != "":
		where = l.Path
	case l.Kind == "net":
		where = "ports " + portText(l.First, l.Last)
	}
	if len(l.Rights) == 0 {
		return line("~", "log", where, "the same in both from here down")
	}
	return line("~", "log", where, fmt.Sprintf("denials of %s: %s -> %s", strings.Join(l.Rights, ","), l.Before.text(), l.After.text()))
}

func (s *toldLogState) text() string {
	var parts []string
	for _, p := range []struct {
		what   string
		rights []string
	}{{"not logged", s.Silent}, {"same_exec_off", s.SameExecOff}, {"new_exec_on", s.NewExecOn}} {
		if len(p.rights) > 0 {
			parts = append(parts, p.what+" for "+strings.Join(p.rights, ","))
		}
	}
	if len(parts) == 0 {
		return "logged"
	}
	return strings.Join(parts, ", ")
}
