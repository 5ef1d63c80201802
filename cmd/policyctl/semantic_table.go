package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/cli"
)

// semanticShown is how many lines that say the same of many places stand in a table.
const semanticShown = 10

// toldLine is one line of the table.
type toldLine struct{ sign, rights, where, why string }

// semanticTable shows a comparison to a person, what has one reason together.
func (a *app) semanticTable(t *told) error {
	if !a.quiet {
		fmt.Fprintf(a.out, "A %s -> B %s, on a kernel of ABI %d\n", cli.Clean(t.First.Name), cli.Clean(t.Second.Name), t.ABI)
	}
	var b bytes.Buffer
	rows := cli.NewRows(&b)
	for _, group := range grouped(t.lines()) {
		for i, l := range group {
			if i == semanticShown && len(group) > semanticShown+1 {
				rows.Add(l.sign, l.rights, fmt.Sprintf("and %d more (-o json lists all)", len(group)-i), l.why)
				break
			}
			rows.Add(l.sign, l.rights, l.where, l.why)
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

// grouped brings lines that differ in the place alone together, in the order of
// the first of each.
func grouped(lines []toldLine) [][]toldLine {
	at := map[toldLine]int{}
	var groups [][]toldLine
	for _, l := range lines {
		key := l
		key.where = ""
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

func (t *told) lines() []toldLine {
	var out []toldLine
	var above []*toldPath // those on the way down to the current one
	for i := range t.Paths {
		p := &t.Paths[i]
		for len(above) > 0 && !beneath(p.Path, above[len(above)-1].Path) {
			above = above[:len(above)-1]
		}
		where := p.Path
		if k := len(above) - 1; k >= 0 && len(above[k].Gained)+len(above[k].Lost) > 0 {
			where += ", other than on " + above[k].Path
		}
		above = append(above, p)
		if len(p.Gained)+len(p.Lost) == 0 {
			out = append(out, toldLine{"=", "", where, "the same in both from here down"})
			continue
		}
		out = append(out, p.toldChange.lines(where)...)
	}
	for i := range t.Ports {
		p := &t.Ports[i]
		what := "port "
		if p.First != p.Last {
			what = "ports "
		}
		out = append(out, p.toldChange.lines(what+portText(p.First, p.Last))...)
	}
	out = append(out, t.Scopes.lines("processes outside")...)
	switch t.Mount {
	case "gained":
		out = append(out, toldLine{"+", "mount", "everywhere", "B: no layer handles any right of files"})
	case "lost":
		out = append(out, toldLine{"-", "mount", "everywhere", "B: a layer handles rights of files"})
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
		out = append(out, toldLine{"~", s.Name, where, fmt.Sprintf("%s -> %s", orNone(s.First), orNone(s.Second))})
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
func (c *toldChange) lines(where string) []toldLine {
	var out []toldLine
	for _, part := range []struct {
		sign            string
		rights          []string
		allows, refuses string // which side
	}{{"+", c.Gained, "second", "first"}, {"-", c.Lost, "first", "second"}} {
		var whys []string
		byWhy := map[string][]string{}
		for _, right := range part.rights {
			why := c.why(right, part.allows, part.refuses)
			if !slices.Contains(whys, why) {
				whys = append(whys, why)
			}
			byWhy[why] = append(byWhy[why], right)
		}
		for _, why := range whys {
			out = append(out, toldLine{part.sign, strings.Join(byWhy[why], ","), where, why})
		}
	}
	return out
}

func (c *toldChange) why(right, allows, refuses string) string {
	var yes, no []string
	for _, r := range c.Reasons {
		switch {
		case !slices.Contains(r.Rights, right):
		case r.Side == allows && r.Effect == "unhandled":
			yes = append(yes, "no layer handles it")
		case r.Side == allows && r.Effect == "grants":
			yes = append(yes, fmt.Sprintf("layer %s grants it (%s)", r.Layer, r.place()))
		case r.Side == refuses && r.Effect == "refuses":
			no = append(no, r.Layer)
		}
	}
	refused := "layer " + strings.Join(no, ", ") + " refuses it"
	letter := map[string]string{"first": "A", "second": "B"}
	return fmt.Sprintf("%s: %s; %s: %s", letter[allows], strings.Join(yes, ", "), letter[refuses], refused)
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
		return []toldLine{{"?", "moves", "between folders", "too many different places to compare; taken as gained and lost"}}
	}
	var out []toldLine
	for _, c := range m.Changes {
		where := fmt.Sprintf("moved from %s to %s", m.Groups[c.From].text(), m.Groups[c.To].text())
		const more, less = "the object gains no right in any layer now", "the object would gain a right in a layer now"
		add := func(sign string, rights []string, where, why string) {
			if len(rights) > 0 {
				out = append(out, toldLine{sign, strings.Join(rights, ","), where, why})
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
		return toldLine{"~", "log", where, "the same in both from here down"}
	}
	return toldLine{"~", "log", where, fmt.Sprintf("denials of %s: %s -> %s", strings.Join(l.Rights, ","), l.Before.text(), l.After.text())}
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
