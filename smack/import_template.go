package smack

import (
	"bytes"
	"fmt"
	"strings"
)

// Templates are rules with variables: ~NAME~ as in Tizen's, or {{name}} with
// sections {{#name}}, {{^name}} and {{/name}} as in mustache's language.

// row is a line of an expanded template and the number of the line it came from.
type row struct {
	number int
	text   string
}

const (
	maxSections     = 16      // one inside the other
	maxExpandedRows = 1 << 20 // of one template
)

// isTemplate reports whether a text has a variable.
func isTemplate(text []byte) bool {
	found := false
	for row := range bytes.Lines(text) {
		if row[0] != '#' {
			variables(row, func(string) { found = true })
		}
	}
	return found
}

// variables calls f with the names of the variables in a line.
func variables(row []byte, f func(name string)) {
	for rest := string(row); rest != ""; {
		_, name, after, ok := nextVariable(rest)
		if !ok {
			return
		}
		if n := strings.TrimLeft(name, "#^/"); n != "" && name[0] != '!' && name[0] != '/' && n != "." {
			f(n)
		}
		rest = after
	}
}

// nextVariable gives the text before the next variable, its name, with the sign of
// a section, and the text behind it.
func nextVariable(s string) (before, name, after string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "{{"):
			if end := strings.Index(s[i:], "}}"); end > 0 {
				return s[:i], strings.TrimSpace(s[i+2 : i+end]), s[i+end+2:], true
			}
		case s[i] == '~':
			end := i + 1
			for end < len(s) && (s[end] >= 'A' && s[end] <= 'Z' || s[end] == '_' || end > i+1 && s[end] >= '0' && s[end] <= '9') {
				end++
			}
			if end > i+1 && end < len(s) && s[end] == '~' {
				return s[:i], s[i+1 : end], s[end+1:], true
			}
		}
	}
	return s, "", "", false
}

// template expands one file.
type template struct {
	file string
	rows []row
	set  map[string][]string
	out  []row
	errs Problems
}

// scope is the sections that stand open around a line, and which turn each is at.
type scope []struct {
	name string
	turn int
}

// expand gives the rows of a template with the values put in.
func expand(f File, set map[string][]string) ([]row, Problems) {
	t := template{file: f.Name, set: set}
	for name, values := range set {
		for _, v := range values {
			for i := range len(v) {
				if class[v[i]] != classLabel {
					t.fail(0, 0, ErrInvalid, "the value %s of %s: %s cannot stand in a rule", quote(v), name, byteName(v[i]))
					return nil, t.errs
				}
			}
		}
	}
	if len(f.Data) > MaxText {
		t.fail(0, 0, ErrLimit, "%d bytes, at most %d", len(f.Data), MaxText)
		return nil, t.errs
	}
	number := 0
	for text := range bytes.Lines(f.Data) {
		number++
		t.rows = append(t.rows, row{number, strings.TrimRight(string(text), "\r\n")})
	}
	t.block(0, len(t.rows), nil)
	return t.out, t.errs
}

func (t *template) fail(line, column int, err error, format string, args ...any) {
	if len(t.errs) < MaxProblems {
		t.errs = append(t.errs, Problem{Place: Place{t.file, line, column}, Text: fmt.Sprintf(format, args...), Err: err})
	}
}

// block expands the rows from lo to hi.
func (t *template) block(lo, hi int, in scope) {
	for i := lo; i < hi && len(t.errs) < MaxProblems; i++ {
		r := t.rows[i]
		text := strings.TrimSpace(r.text)
		name, isTag := standalone(text)
		switch {
		case text != "" && text[0] == '#':
			t.emit(r)
		case !isTag:
			t.emit(row{r.number, t.fill(r, in)})
		case name[0] == '!':
		case name[0] == '/':
			t.fail(r.number, 1, ErrSyntax, "{{%s}} ends a section that is not open", name)
		default:
			end := t.sectionEnd(i, hi, name[1:])
			if end < 0 {
				t.fail(r.number, 1, ErrSyntax, "the section {{%s}} has no end {{/%s}}", name, name[1:])
				return
			}
			t.section(i+1, end, name, in)
			i = end
		}
	}
}

// standalone gives the name of a tag of a section, or of a comment, that is alone
// on its line.
func standalone(text string) (string, bool) {
	before, name, after, ok := nextVariable(text)
	if !ok || before != "" || after != "" || len(name) < 2 || !strings.HasPrefix(text, "{{") {
		return "", false
	}
	return name, strings.ContainsRune("#^/!", rune(name[0]))
}

// sectionEnd finds the end of the section that begins in row i.
func (t *template) sectionEnd(i, hi int, name string) int {
	depth := 0
	for ; i < hi; i++ {
		tag, ok := standalone(strings.TrimSpace(t.rows[i].text))
		if !ok || tag[1:] != name {
			continue
		}
		switch tag[0] {
		case '#', '^':
			depth++
		case '/':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func (t *template) section(lo, hi int, tag string, in scope) {
	name := tag[1:]
	turns := t.turns(name)
	switch {
	case len(in) == maxSections:
		t.fail(t.rows[lo-1].number, 1, ErrLimit, "more than %d sections one in another", maxSections)
	case tag[0] == '^':
		if turns == 0 {
			t.block(lo, hi, in)
		}
	default:
		for turn := range turns {
			t.block(lo, hi, append(in[:len(in):len(in)], struct {
				name string
				turn int
			}{name, turn}))
		}
	}
}

// turns gives how often a section is repeated: for each value of its name, or of
// name.something.
func (t *template) turns(name string) int {
	values := t.set[name]
	if len(values) == 1 && values[0] == "false" {
		return 0
	}
	n := len(values)
	for key, values := range t.set {
		if strings.HasPrefix(key, name+".") {
			n = max(n, len(values))
		}
	}
	return n
}

// fill puts values into a row.
func (t *template) fill(r row, in scope) string {
	var b strings.Builder
	for rest := r.text; ; {
		before, name, after, ok := nextVariable(rest)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		value, err := t.value(name, in)
		if err != "" {
			t.fail(r.number, len(r.text)-len(rest)+len(before)+1, ErrInvalid, "%s", err)
		}
		b.WriteString(value)
		rest = after
	}
}

// value gives what a variable stands for, or why nothing.
func (t *template) value(name string, in scope) (value, err string) {
	if name == "" || strings.ContainsAny(name, "#^/!&{} \t") {
		return "", fmt.Sprintf("{{%s}}: only names stand inside a line; a section stands on lines of its own", name)
	}
	for i := len(in) - 1; i >= 0; i-- {
		key := in[i].name + "." + name
		if name == "." || name == in[i].name {
			key = in[i].name
		}
		if values, ok := t.set[key]; ok {
			if in[i].turn >= len(values) {
				return "", fmt.Sprintf("%s has %d values and its section is repeated more often", key, len(values))
			}
			return values[in[i].turn], ""
		}
	}
	switch values := t.set[name]; len(values) {
	case 1:
		return values[0], ""
	case 0:
		return "", fmt.Sprintf("the variable %s has no value", name)
	default:
		return "", fmt.Sprintf("the variable %s has %d values: only a section {{#%s}} is repeated", name, len(values), name)
	}
}

// emit adds a row.
func (t *template) emit(r row) {
	if len(t.out) == maxExpandedRows {
		t.fail(r.number, 1, ErrLimit, "more than %d lines", maxExpandedRows)
		return
	}
	t.out = append(t.out, r)
}
