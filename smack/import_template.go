package smack

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
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
	maxExpandedText = MaxText // bytes of them
	maxVisits       = 1 << 21 // rows looked at, again at every turn of the sections around them
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
		if n := strings.TrimSpace(strings.TrimLeft(name, "#^/")); n != "" && name[0] != '!' && name[0] != '/' && n != "." {
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
	ends map[int]int // of the row that begins a section: the row that ends it
	set  map[string][]string

	counts map[string]int // of section names: how often they are repeated

	out    []row
	size   int  // bytes of out
	visits int  // rows looked at
	full   bool // a limit is reached, and told
	errs   Problems
}

// scope is the sections that stand open around a line, and which turn each is at.
type scope []struct {
	name string
	turn int
}

// expand gives the rows of a template with the values put in.
func expand(f File, set map[string][]string) ([]row, Problems) {
	t := template{file: f.Name, set: set, counts: map[string]int{}}
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
		text = bytes.TrimRight(text, "\r\n")
		if skipBlanks(text, 0) == len(text) {
			continue
		}
		if len(t.rows) == maxExpandedRows {
			t.limit(number, "more than %d lines", maxExpandedRows)
			return nil, t.errs
		}
		t.rows = append(t.rows, row{number, string(text)})
	}
	if t.sections(); len(t.errs) == 0 {
		t.block(0, len(t.rows), nil)
	}
	if t.full {
		return nil, t.errs // a part says nothing
	}
	return t.out, t.errs
}

// sections finds the end of each section.
func (t *template) sections() {
	t.ends = map[int]int{}
	var open []int
	var names []string
	for i, r := range t.rows {
		name, isTag := standalone(strings.TrimSpace(r.text))
		switch {
		case !isTag || name[0] == '!':
		case !isVariable(name[1:]):
			t.fail(r.number, 1, ErrSyntax, "{{%s}}: a section has a name, without blanks and signs", name)
			return
		case name[0] != '/':
			if len(open) == maxSections {
				t.limit(r.number, "more than %d sections one in another", maxSections)
				return
			}
			open, names = append(open, i), append(names, name)
		case len(open) == 0 || names[len(open)-1][1:] != name[1:]:
			t.fail(r.number, 1, ErrSyntax, "{{%s}} ends a section that is not open, or not the innermost", name)
			return
		default:
			last := len(open) - 1
			t.ends[open[last]] = i
			open, names = open[:last], names[:last]
		}
	}
	for n, i := range open {
		t.fail(t.rows[i].number, 1, ErrSyntax, "the section {{%s}} has no end {{/%s}}", names[n], names[n][1:])
	}
}

// isVariable reports whether a text can name a variable.
func isVariable(name string) bool { return name != "" && !strings.ContainsAny(name, "#^/!&{} \t") }

// limit ends the expansion.
func (t *template) limit(line int, format string, args ...any) {
	if !t.full {
		t.fail(line, 1, ErrLimit, format, args...)
	}
	t.full = true
}

func (t *template) fail(line, column int, err error, format string, args ...any) {
	if len(t.errs) < MaxProblems {
		t.errs = append(t.errs, Problem{Place: Place{t.file, line, column}, Text: fmt.Sprintf(format, args...), Err: err})
	}
}

// block expands the rows from lo to hi.
func (t *template) block(lo, hi int, in scope) {
	for i := lo; i < hi && !t.stopped(); i++ {
		r := t.rows[i]
		t.visit(r)
		text := strings.TrimSpace(r.text)
		name, isTag := standalone(text)
		switch {
		case text != "" && text[0] == '#':
			t.emit(r)
		case !isTag:
			if text, ok := t.fill(r, in); ok {
				t.emit(row{r.number, text})
			}
		case name[0] != '!': // ends are skipped with their sections
			t.section(i+1, t.ends[i], name, in)
			i = t.ends[i]
		}
	}
}

func (t *template) stopped() bool { return t.full || len(t.errs) >= MaxProblems }

// visit counts a look at a row.
func (t *template) visit(r row) {
	if t.visits++; t.visits > maxVisits {
		t.limit(r.number, "the repeated sections make more than %d lines to look at", maxVisits)
	}
}

// standalone gives the name of a tag of a section, or of a comment, that is alone
// on its line: the sign and the name, without blanks between.
func standalone(text string) (string, bool) {
	before, name, after, ok := nextVariable(text)
	if !ok || before != "" || after != "" || name == "" || !strings.HasPrefix(text, "{{") || !strings.ContainsRune("#^/!", rune(name[0])) {
		return "", false
	}
	return name[:1] + strings.TrimSpace(name[1:]), true
}

func (t *template) section(lo, hi int, tag string, in scope) {
	name := tag[1:]
	turns := t.turns(name)
	if tag[0] == '^' {
		if turns == 0 {
			t.block(lo, hi, in)
		}
		return
	}
	for turn := 0; turn < turns && !t.stopped(); turn++ {
		t.visit(t.rows[lo-1])
		t.block(lo, hi, append(in[:len(in):len(in)], struct {
			name string
			turn int
		}{name, turn}))
	}
}

// turns gives how often a section is repeated: for each value of its name, or of
// name.something.
func (t *template) turns(name string) int {
	if n, ok := t.counts[name]; ok {
		return n
	}
	values := t.set[name]
	n := len(values)
	for key, values := range t.set {
		if strings.HasPrefix(key, name+".") {
			n = max(n, len(values))
		}
	}
	if len(values) == 1 && values[0] == "false" {
		n = 0
	}
	t.counts[name] = n
	return n
}

// fill puts values into a row. It is false when one is missing: what is left of the row is no rule.
func (t *template) fill(r row, in scope) (string, bool) {
	var b strings.Builder
	for rest := r.text; ; {
		before, name, after, ok := nextVariable(rest)
		b.WriteString(before)
		if !ok {
			return b.String(), true
		}
		value, err := t.value(name, in)
		if err != "" {
			t.fail(r.number, len(r.text)-len(rest)+len(before)+1, ErrInvalid, "%s", err)
			return "", false
		}
		if b.Len()+len(value) > MaxLine {
			t.limit(r.number, "with its values the line has more than %d bytes, at most %d", MaxLine, MaxLine)
			return "", false
		}
		b.WriteString(value)
		rest = after
	}
}

// value gives what a variable stands for, or why nothing.
func (t *template) value(name string, in scope) (value, err string) {
	if !isVariable(name) {
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
	t.size += len(r.text)
	switch {
	case len(t.out) == maxExpandedRows:
		t.limit(r.number, "more than %d lines", maxExpandedRows)
	case t.size > maxExpandedText:
		t.limit(r.number, "more than %d bytes of lines", maxExpandedText)
	case !t.full:
		t.out = append(t.out, r)
	}
}

// unnamed gives the values of Set that no template names, in order: a section that is
// misspelt there would be left out without a word.
func unnamed(files []File, set map[string][]string) []string {
	if len(set) == 0 {
		return nil
	}
	named := map[string]bool{}
	for _, name := range Variables(files) {
		named[name] = true
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		found := named[key]
		for i := 1; i < len(key) && !found; i++ {
			found = key[i] == '.' && named[key[:i]] && named[key[i+1:]]
		}
		if !found {
			out = append(out, key)
		}
	}
	return out
}
