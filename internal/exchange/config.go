package exchange

import (
	"maps"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// maxConfigABI is the newest ABI that landlockconfig knows: its groups hold nothing newer.
const maxConfigABI = 6

// Config is one landlockconfig file with its groups expanded.
type Config struct {
	Name           string
	ABI            int                 // 0: not given. It only expands groups
	Variables      map[string][]string // in the order of the text, without doubles
	FS, Net, Scope profile.Access      // handled: what the file lists, and all that its rules grant
	Paths          []ConfigPath        // one for each template
	Ports          map[uint16]profile.Access

	source *source
	index  map[string]int // of Paths, by template
}

// ConfigPath is what a file grants on the paths of a template.
type ConfigPath struct {
	Parent template
	Access profile.Access
	at     spot
}

// template is a path with variables: literals[0] ${vars[0]} literals[1] ...
type template struct {
	literals []string // one more than vars
	vars     []string
}

// String gives the template as both landlockconfig and policyd read it.
func (t template) String() string {
	var b strings.Builder
	for i, l := range t.literals {
		b.WriteString(escape(l))
		if i < len(t.vars) {
			b.WriteString("${" + t.vars[i] + "}")
		}
	}
	return b.String()
}

// parseTemplate reads ${name} and $$; a lone $ stands for itself.
func parseTemplate(s string) (template, error) {
	var t template
	var lit strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '$' || i+1 == len(s):
			lit.WriteByte(s[i])
		case s[i+1] == '$':
			lit.WriteByte('$')
			i++
		case s[i+1] == '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return t, templateError{"a ${ that is not closed"}
			}
			name := s[i+2 : i+end]
			if !isConfigVariable(name) {
				return t, templateError{"${" + clip(name) + "}: a variable's name is letters, digits and _, and begins with a letter"}
			}
			t.literals = append(t.literals, lit.String())
			t.vars = append(t.vars, name)
			lit.Reset()
			i += end
		default:
			lit.WriteByte('$')
		}
	}
	t.literals = append(t.literals, lit.String())
	return t, nil
}

type templateError struct{ text string }

func (e templateError) Error() string { return e.text }

// isConfigVariable is landlockconfig's rule of names of variables.
func isConfigVariable(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if letter := c >= 'a' && c <= 'z'; !letter && (i == 0 || s[i] != '_' && (s[i] < '0' || s[i] > '9')) {
			return false
		}
	}
	return s != ""
}

// expand calls f with every text the template stands for, until it gives false. A variable that stands twice has one
// value at a time.
func (t template) expand(values map[string][]string, f func(string) bool) bool {
	chosen := make(map[string]string, len(t.vars))
	var from func(i int, head string) bool
	from = func(i int, head string) bool {
		if i == len(t.vars) {
			return f(head)
		}
		name := t.vars[i]
		if v, ok := chosen[name]; ok {
			return from(i+1, head+v+t.literals[i+1])
		}
		defer delete(chosen, name)
		for _, v := range values[name] {
			chosen[name] = v
			if !from(i+1, head+v+t.literals[i+1]) {
				return false
			}
		}
		return true
	}
	return from(0, t.literals[0])
}

// count is how many texts the template stands for, at most limit+1.
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

// add grants more on a template.
func (c *Config) add(t template, access profile.Access, at spot) {
	key := t.String()
	if i, ok := c.index[key]; ok {
		c.Paths[i].Access |= access
		return
	}
	if c.index == nil {
		c.index = map[string]int{}
	}
	c.index[key] = len(c.Paths)
	c.Paths = append(c.Paths, ConfigPath{t, access, at})
}

// extend adds literals to a variable.
func (c *Config) extend(name string, values []string) {
	if c.Variables == nil {
		c.Variables = map[string][]string{}
	}
	c.Variables[name] = unique(append(slices.Clone(c.Variables[name]), values...))
}

// Handles tells whether the configuration restricts anything.
func (c *Config) Handles() bool { return c.FS|c.Net|c.Scope != 0 }

// Compose gives what landlockconfig's compose makes of configurations, in any order: it handles what all of them
// handle, grants what any of them grants of that, and has the variables of all. So it is never stricter than one of
// them.
func Compose(configs []*Config) *Config {
	out := &Config{FS: ^profile.Access(0), Net: ^profile.Access(0), Scope: ^profile.Access(0), Ports: map[uint16]profile.Access{}}
	for _, c := range configs {
		out.FS, out.Net, out.Scope = out.FS&c.FS, out.Net&c.Net, out.Scope&c.Scope
		if c.ABI > 0 && (out.ABI == 0 || c.ABI < out.ABI) {
			out.ABI = c.ABI
		}
	}
	for _, c := range configs {
		for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
			out.extend(name, c.Variables[name])
		}
		for _, p := range c.Paths {
			if a := p.Access & out.FS; a != 0 {
				out.add(p.Parent, a, p.at)
			}
		}
		for port, a := range c.Ports {
			if a &= out.Net; a != 0 {
				out.Ports[port] |= a
			}
		}
	}
	return out
}
