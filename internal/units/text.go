package units

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// maxLine is systemd's LONG_LINE_MAX, bytes.
const maxLine = 1 << 20

// Setting is one assignment in a unit's file.
type Setting struct {
	Section, Key, Value string
	File                string
	Line                int // the first one of it
}

// space is WHITESPACE of systemd's src/basic/string-util.h.
const space = " \t\n\r"

// lineEnds are those of read_line_full in systemd's src/basic/fileio.c.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\n\r", "\n", "\r", "\n")

// ParseFile reads the text of a unit's file or drop-in as config_parse of systemd's
// src/shared/conf-parser.c does: a line ends in an odd number of backslashes to go
// on, comments begin with # or ; also in between, and what is no assignment is
// passed over. Errors wrap errs.ErrInvalid.
func ParseFile(name, text string) ([]Setting, error) {
	var all []Setting
	section, pending, pendingLine := "", "", 0
	goesOn := false
	r := bufio.NewReader(strings.NewReader(lineEnds.Replace(strings.TrimPrefix(text, "\ufeff"))))
	for n := 1; ; n++ {
		line, err := r.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		line = strings.TrimSuffix(line, "\n")
		l := strings.TrimLeft(line, space)
		if strings.ContainsRune(l, 0) || len(pending)+len(line) > maxLine {
			return nil, fmt.Errorf("%s:%d: %w: a NUL, or more than %d bytes", name, n, errs.ErrInvalid, maxLine)
		}
		if l != "" && (l[0] == '#' || l[0] == ';') {
			continue
		}
		if !goesOn {
			pending, pendingLine = "", n
		}
		pending += line
		if goesOn = odd(pending); goesOn {
			pending = pending[:len(pending)-1] + " "
			continue
		}
		section, all = assign(all, section, pending, name, pendingLine)
	}
	if goesOn {
		_, all = assign(all, section, pending, name, pendingLine)
	}
	return all, nil
}

// odd tells whether a line ends in a backslash that escapes its end.
func odd(l string) bool {
	return (len(l)-len(strings.TrimRight(l, `\`)))%2 == 1
}

func assign(all []Setting, section, line, file string, n int) (string, []Setting) {
	l := strings.Trim(line, space)
	if strings.HasPrefix(l, "[") {
		return strings.TrimSuffix(l[1:], "]"), all
	}
	key, value, ok := strings.Cut(l, "=")
	if !ok {
		return section, all
	}
	return section, append(all, Setting{section, strings.TrimRight(key, space), strings.TrimLeft(value, space), file, n})
}

// Commands gives the commands of a key, ExecStart say, that hold in the end: an
// empty assignment resets the list. Errors name the place.
func Commands(settings []Setting, key string) ([]Command, error) {
	var list []Command
	for _, s := range settings {
		if s.Section != "Service" || s.Key != key {
			continue
		}
		if s.Value == "" {
			list = nil
			continue
		}
		c, err := ParseCommands(s.Value)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", s.File, s.Line, key, err)
		}
		list = append(list, c...)
	}
	return list, nil
}
