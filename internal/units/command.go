package units

import (
	"fmt"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Command is one command of an Exec line.
type Command struct {
	// Prefix is what stands before the path, without @: the flags -, :, +, ! and !!.
	Prefix string
	// Program is the path, or the name that systemd looks for, its specifiers not expanded.
	Program string
	// Argv0 is the raw word of what the program is told as its name.
	Argv0 string
	// Rest are the other arguments, as they stand there; "" for none.
	Rest string
}

// ParseCommands reads the value of an Exec line as config_parse_exec of systemd's
// src/core/load-fragment.c does: the prefixes in any order, and several commands
// where a ; stands alone. Errors wrap errs.ErrInvalid; systemd would leave out the line.
func ParseCommands(value string) ([]Command, error) {
	var list []Command
	rest := strings.Trim(value, space)
	for rest != "" {
		raw, first, after, err := word(rest)
		if err != nil {
			return nil, err
		}
		if raw == ";" {
			rest = after
			continue
		}
		c := Command{}
		program, named := c.prefixes(first)
		if err := checkProgram(program); err != nil {
			return nil, err
		}
		c.Program = program
		c.Argv0 = quote(program)
		rest = after
		if named {
			if isSeparator(rest) || rest == "" {
				return nil, fmt.Errorf("%w: @ wants the name of the program after its path %s", errs.ErrInvalid, program)
			}
			if c.Argv0, _, rest, err = argument(rest); err != nil {
				return nil, err
			}
		}
		var words []string
		for rest != "" {
			if isSeparator(rest) {
				rest = strings.TrimLeft(rest[1:], space)
				break
			}
			var raw string
			if raw, _, rest, err = argument(rest); err != nil {
				return nil, err
			}
			words = append(words, raw)
		}
		c.Rest = strings.Join(words, " ")
		list = append(list, c)
	}
	return list, nil
}

// argument is word, but for \; which is a ; that separates nothing.
func argument(s string) (raw, value, rest string, err error) {
	if after, ok := strings.CutPrefix(s, `\;`); ok && (after == "" || strings.IndexByte(space, after[0]) >= 0) {
		return `\;`, ";", strings.TrimLeft(after, space), nil
	}
	return word(s)
}

func isSeparator(s string) bool {
	return s[:min(1, len(s))] == ";" && (len(s) == 1 || strings.IndexByte(space, s[1]) >= 0)
}

// prefixes takes the flags off the first word.
func (c *Command) prefixes(s string) (program string, named bool) {
	has := func(p string) bool { return strings.Contains(c.Prefix, p) }
	for s != "" {
		switch p := s[:1]; {
		case p == "-" && !has("-"), p == ":" && !has(":"), p == "+" && !has("+") && !has("!"):
			c.Prefix += p
		case p == "@" && !named:
			named = true
		case p == "!" && !has("+") && !has("!!"):
			c.Prefix += p
		default:
			return s, named
		}
		s = s[1:]
	}
	return s, named
}

func checkProgram(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: no program", errs.ErrInvalid)
	case s[0] == '|':
		return fmt.Errorf("%w: %s: the prefix | (by the user's shell) is not understood; write the shell's path", errs.ErrInvalid, s)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%w: %q: control characters in the path of a program", errs.ErrInvalid, s)
	case strings.ContainsRune("-@:+!", rune(s[0])):
		return fmt.Errorf("%w: %s: a prefix that stands there twice, or beside one that excludes it", errs.ErrInvalid, s)
	case strings.HasSuffix(s, "/"):
		return fmt.Errorf("%w: %s is a folder", errs.ErrInvalid, s)
	// What a specifier gives may well be absolute: systemd says once it has expanded it.
	case s[0] != '/' && s[0] != '%' && strings.Contains(s, "/"), s == ".", s == "..":
		return fmt.Errorf("%w: %s: neither an absolute path nor the name of a program", errs.ErrInvalid, s)
	}
	return nil
}

// Privileged tells that systemd starts it without the unit's namespaces, credentials
// and Smack label.
func (c *Command) Privileged() bool { return strings.Contains(c.Prefix, "+") }

// expands tells that $VARIABLES are expanded in it.
func (c *Command) expands() bool { return !strings.Contains(c.Prefix, ":") }

// String is the command as it can stand in a line again; programs named by @ keep that.
func (c *Command) String() string {
	s := c.Prefix
	if c.Argv0 != quote(c.Program) {
		s += "@" + c.Program + " " + c.Argv0
		if p := quote(c.Prefix + "@" + c.Program); p[0] == '"' {
			s = p + " " + c.Argv0
		}
	} else {
		s = quote(c.Prefix + c.Program)
	}
	if c.Rest != "" {
		s += " " + c.Rest
	}
	return s
}

// through is the command with the launcher before it. The launcher gets what systemd
// made of argv[0] and of all arguments behind --, and the path besides.
func (c *Command) through(launcher string, options []string) string {
	var b strings.Builder
	// The path itself is not expanded, only specifiers are.
	b.WriteString(quote(c.Prefix + strings.ReplaceAll(launcher, "%", "%%")))
	b.WriteString(" unit")
	for _, o := range options {
		b.WriteString(" " + literal(o, c.expands()))
	}
	program := c.Program
	if c.expands() {
		program = strings.ReplaceAll(program, "$", "$$")
	}
	b.WriteString(" --program " + quote(program) + " -- " + c.Argv0)
	if c.Rest != "" {
		b.WriteString(" " + c.Rest)
	}
	return b.String()
}
