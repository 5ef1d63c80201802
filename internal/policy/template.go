package policy

import (
	"fmt"
	"slices"
	"strings"
)

// template is a text with variables: literal[0] ${vars[0]} literal[1] ...
type template struct {
	literals []string // one more than vars
	vars     []string
}

// parseTemplate reads ${name} and $$.
func parseTemplate(s string) (template, error) {
	var t template
	var lit strings.Builder
	for i := 0; i < len(s); {
		c := strings.IndexByte(s[i:], '$')
		if c < 0 {
			lit.WriteString(s[i:])
			break
		}
		lit.WriteString(s[i : i+c])
		i += c
		switch {
		case strings.HasPrefix(s[i:], "$$"):
			lit.WriteByte('$')
			i += 2
		case strings.HasPrefix(s[i:], "${"):
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return t, fmt.Errorf("${ at character %d is not closed", len([]rune(s[:i]))+1)
			}
			name := s[i+2 : i+end]
			if !isVariableName(name) {
				return t, fmt.Errorf("%q is not the name of a variable", clip(name))
			}
			t.literals = append(t.literals, lit.String())
			lit.Reset()
			t.vars = append(t.vars, name)
			i += end + 1
		default:
			return t, fmt.Errorf("a lone $ at character %d; write ${name} for a variable and $$ for a dollar", len([]rune(s[:i]))+1)
		}
	}
	t.literals = append(t.literals, lit.String())
	return t, nil
}

// expand calls f with every text the template stands for, the last variable
// turning fastest; f ends it by returning false. A variable that stands twice
// has one value at a time.
// It is also given the values of vars.
func (t template) expand(values map[string][]string, f func(text string, chosen []string) bool) bool {
	return t.expandFrom(make([]string, len(t.vars)), 0, t.literals[0], values, f)
}

func (t template) expandFrom(chosen []string, i int, head string, values map[string][]string, f func(string, []string) bool) bool {
	if i == len(t.vars) {
		return f(head, chosen)
	}
	choices := values[t.vars[i]]
	if j := slices.Index(t.vars[:i], t.vars[i]); j >= 0 {
		choices = chosen[j : j+1]
	}
	for _, v := range choices {
		chosen[i] = v
		if !t.expandFrom(chosen, i+1, head+v+t.literals[i+1], values, f) {
			return false
		}
	}
	return true
}

// within gives the folder of one text of the template that a bounded value keeps it in, "" for none: what stands
// before the value and the value's folder. Of several the longest.
func (t template) within(chosen []string, bounds map[string]string) string {
	if len(bounds) == 0 {
		return ""
	}
	longest, head := "", ""
	for i, name := range t.vars {
		head += t.literals[i]
		if dir, ok := bounds[name]; ok {
			if clean, err := cleanPath(head + dir); err == nil && len(clean) > len(longest) {
				longest = clean
			}
		}
		head += chosen[i]
	}
	return longest
}

// count tells how many texts the template stands for, at most limit+1.
func (t template) count(values map[string][]string, limit int) int {
	n := 1
	for i, v := range t.vars {
		if slices.Contains(t.vars[:i], v) {
			continue
		}
		if n *= len(values[v]); n > limit {
			return limit + 1
		}
	}
	return n
}

func isVariableName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}
