package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack"
)

// smackWord is a column of a line of a template.
type smackWord struct {
	template
	column int   // from 1, in bytes
	vars   []int // of the line, for each of template.vars
}

// template adds the rules a template stands for: line by line, each once for
// each combination of the variables it names, the last one turning fastest.
// Columns are told apart before variables are put in, so that no value can
// make a column, a rule or a comment.
func (c *smackCompiler) template(b *smack.LayerBuilder, t *apiv1.SmackTemplate, p *place) {
	if name := p.key("name"); t.GetName() != "" && !isName(t.GetName()) {
		c.addf(codeBadName, &name, "template %q: %s", clip(t.GetName()), nameRule)
	}
	values := c.smackVariables(t.GetFor(), c.values, p, "for")
	at := p.key("rules")
	if strings.TrimSpace(t.GetRules()) == "" {
		c.addf(codeMissingKey, p, "rules is missing: the text of the template")
		return
	}
	file := c.texts.add(at, t.GetRules(), false)
	own := p.key("for")
	number := 0
	for row := range strings.SplitSeq(t.GetRules(), "\n") {
		number++
		if c.errors.full() {
			return
		}
		here := smack.Place{File: file, Line: number, Column: 1}
		row = strings.TrimSuffix(row, "\r")
		if len(row) > smack.MaxLine {
			c.errors.add(c.texts.finding(codeTooLarge, here, fmt.Sprintf("the line has %d bytes, at most %d", len(row), smack.MaxLine)))
			continue
		}
		if words, names, ok := c.words(row, here, values); ok {
			for _, name := range names {
				if t.GetFor()[name] != nil {
					name = own.String() + "." + name
				}
				c.used[name] = true
			}
			if !c.expand(b, words, names, values, here) {
				return
			}
		}
	}
}

// words takes a line of a template apart; ok is false when there is no rule in it.
func (c *smackCompiler) words(row string, at smack.Place, values map[string][]string) (words []smackWord, names []string, ok bool) {
	fail := func(column int, code, format string, args ...any) {
		at.Column = column
		c.errors.add(c.texts.finding(code, at, fmt.Sprintf(format, args...)))
		ok = false
	}
	columns := columnsOf(row)
	if len(columns) == 0 || row[columns[0][0]] == '#' {
		return nil, nil, false
	}
	ok = true
	for i, col := range columns {
		text, column := row[col[0]:col[1]], col[0]+1
		switch {
		case i >= 3 && text[0] == '#':
			fail(column, codeBadRule, "'#' (0x23) behind a rule: a comment stands on a line of its own, because # is legal in labels")
			return words, names, false
		case i == 4:
			fail(column, codeBadRule, "a fifth column, beginning with %q: a rule has 3 or 4", clip(text))
			return words, names, false
		}
		t, err := parseTemplate(text)
		if err != nil {
			fail(column, codeBadTemplate, "%v", err)
			continue
		}
		word := smackWord{template: t, column: column}
		for _, name := range t.vars {
			if _, known := values[name]; !known {
				fail(column, codeUnknownVariable, "there is no variable %s%s", name, suggest(name, sortedKeys(values)))
				continue
			}
			n := slices.Index(names, name)
			if n < 0 {
				n, names = len(names), append(names, name)
			}
			word.vars = append(word.vars, n)
		}
		words = append(words, word)
	}
	if len(columns) < 3 {
		fail(len(row)+1, codeBadRule, "%d of 3 columns: a rule is SUBJECT OBJECT ACCESS, or SUBJECT OBJECT ALLOW DENY, on one line", len(columns))
	}
	return words, names, ok
}

// columnsOf gives the beginning and the end of each column.
func columnsOf(row string) [][2]int {
	var out [][2]int
	for i := 0; i < len(row); {
		if row[i] == ' ' || row[i] == '\t' {
			i++
			continue
		}
		start := i
		for i < len(row) && row[i] != ' ' && row[i] != '\t' {
			i++
		}
		out = append(out, [2]int{start, i})
	}
	return out
}

// expand adds the rules of a line; false when no more can be taken.
func (c *smackCompiler) expand(b *smack.LayerBuilder, words []smackWord, names []string, values map[string][]string, at smack.Place) bool {
	count := 1
	for _, name := range names {
		if count *= len(values[name]); count > c.room {
			at.Column = words[0].column
			c.errors.add(c.texts.finding(codeTooLarge, at, fmt.Sprintf("the templates of a policy stand for at most %d rules, and with this line there are more", MaxSmackExpansion)))
			return false
		}
	}
	c.room -= count
	chosen := make([]string, len(names))
	var turn func(i int) bool // false after the first error of the line
	turn = func(i int) bool {
		if i == len(names) {
			return c.expanded(b, words, names, chosen, at)
		}
		for _, v := range values[names[i]] {
			chosen[i] = v
			if !turn(i + 1) {
				return false
			}
		}
		return true
	}
	turn(0)
	return true
}

// expanded adds one rule of a template.
func (c *smackCompiler) expanded(b *smack.LayerBuilder, words []smackWord, names, chosen []string, at smack.Place) bool {
	var text [4]string
	for i, w := range words {
		text[i] = w.with(chosen)
	}
	fail := func(column int, code string, err string) bool {
		at.Column = column
		if len(names) > 0 {
			with := make([]string, len(names))
			for i := range names {
				with[i] = names[i] + "=" + chosen[i]
			}
			err += ", with " + clip(strings.Join(with, " "))
		}
		c.errors.add(c.texts.finding(code, at, err))
		return false
	}
	for i := range 2 {
		if err := smack.CheckLabel(text[i]); err != nil {
			return fail(words[i].column, codeBadLabel, err.Error())
		}
	}
	var access [2]smack.Access
	for i := 2; i < len(words); i++ {
		a, err := smack.ParseAccess(text[i])
		if err != nil {
			return fail(words[i].column, codeBadAccess, err.Error())
		}
		access[i-2] = a
	}
	var err error
	at.Column = words[0].column
	if len(words) == 4 {
		err = b.Modify(at, text[0], text[1], access[0], access[1])
	} else {
		err = b.Set(at, text[0], text[1], access[0])
	}
	if err != nil {
		c.problems(err)
		return false
	}
	return true
}

// with puts values in.
func (w *smackWord) with(chosen []string) string {
	if len(w.vars) == 0 {
		return w.literals[0]
	}
	n := 0
	for i, v := range w.vars {
		n += len(w.literals[i]) + len(chosen[v])
	}
	var b strings.Builder
	b.Grow(n + len(w.literals[len(w.vars)]))
	for i, v := range w.vars {
		b.WriteString(w.literals[i])
		b.WriteString(chosen[v])
	}
	b.WriteString(w.literals[len(w.vars)])
	return b.String()
}

// characters counts those of the first n bytes of a line.
func characters(line string, n int) int { return utf8.RuneCountInString(line[:min(n, len(line))]) }
