package smack

import (
	"fmt"
	"path"
	"strings"
)

// exportName is the name of the files in the folders of an export.
const exportName = "policyd"

// ExportLibsmack gives the files of libsmack's folder (/etc/smack) that say what
// the set and the settings say, and what they cannot say. Rules come in order,
// with 3 columns.
func ExportLibsmack(s *Set, settings *Settings) ([]File, []string) {
	e := exporter{settings: settings.Canonical()}
	var b []byte
	for r := range s.All() {
		if r.Access&Bringup != 0 {
			e.lose("the letter b of the rule %s %s %s: libsmack refuses it", r.Subject, r.Object, r.Access)
			r.Access &^= Bringup
		}
		if isSystemdComment(r.Subject) {
			e.lose("the rule %s %s %s, should systemd read the file: it takes the line for a comment", r.Subject, r.Object, r.Access)
		}
		b = r.Append(b)
	}
	e.file(path.Join("accesses.d", exportName), b)
	b = nil
	for _, c := range e.settings.Cipso {
		b = append(append(b, c.libsmack()...), '\n')
	}
	e.file(path.Join("cipso.d", exportName), b)
	if n := len(e.settings.Netlabel); n > 0 {
		e.lose("%d entries of netlabel: libsmack has no file for them", n)
	}
	e.common()
	if e.settings.Unconfined != "" || e.settings.ClearUnconfined {
		e.lose("unconfined: libsmack has no file for it")
	}
	return e.files, e.lost
}

// ExportSystemd gives the files of /etc/smack that systemd loads at boot, and what
// they cannot say. A rule that does not fit into systemd's lines is lost, since
// the line would stop the load of all that follow.
func ExportSystemd(s *Set, settings *Settings) ([]File, []string) {
	e := exporter{settings: settings.Canonical()}
	var b []byte
	for r := range s.All() {
		from := len(b)
		if isSystemdComment(r.Subject) {
			b = append(b, ' ') // in the first column the line would be a comment
		}
		b = r.Append(b)
		if n := len(b) - 1 - from; n >= systemdLine {
			b = b[:from]
			e.lose("the rule %s %s %s: its line has %d bytes, and systemd stops at %d", r.Subject, r.Object, r.Access, n, systemdLine)
		}
	}
	e.file(path.Join("accesses.d", exportName), b)
	b = nil
	for _, c := range e.settings.Cipso {
		line := c.Append(nil)
		if isSystemdComment(c.Label) {
			e.lose("the cipso entry of %s: systemd takes its line for a comment, and the kernel takes no blank before it", c.Label)
			continue
		}
		if len(line) >= systemdLine {
			e.lose("the cipso entry of %s: its line has %d bytes, and systemd stops at %d", c.Label, len(line), systemdLine)
			continue
		}
		b = append(append(b, line...), '\n')
	}
	e.file(path.Join("cipso.d", exportName), b)
	b = nil
	for _, n := range e.settings.Netlabel {
		line := n.Append(nil)
		if len(line) >= systemdLine {
			e.lose("the netlabel entry of %s: its line has %d bytes, and systemd stops at %d", n.Prefix, len(line), systemdLine)
			continue
		}
		b = append(append(b, line...), '\n')
	}
	e.file(path.Join("netlabel.d", exportName), b)
	e.common()
	if e.settings.Unconfined != "" || e.settings.ClearUnconfined {
		e.lose("unconfined: only a patched systemd has a file for it")
	}
	return e.files, e.lost
}

// isSystemdComment reports whether systemd takes a line of accesses.d or cipso.d for a comment.
func isSystemdComment(line string) bool { return line[0] == '#' || line[0] == ';' }

type exporter struct {
	settings Settings
	files    []File
	lost     []string
}

func (e *exporter) lose(format string, args ...any) {
	if len(e.lost) < MaxProblems {
		e.lost = append(e.lost, fmt.Sprintf(format, args...))
	}
}

// file adds a file that is not empty.
func (e *exporter) file(name string, data []byte) {
	if len(data) > 0 {
		e.files = append(e.files, File{name, data})
	}
}

// common writes onlycap and tells what neither format has a file for.
func (e *exporter) common() {
	s := &e.settings
	if len(s.Onlycap) > 0 {
		e.file("onlycap", []byte(strings.Join(s.Onlycap, "\n")+"\n"))
	}
	if s.ClearOnlycap {
		e.lose("that onlycap is emptied")
	}
	if n := len(s.IPv6Host); n > 0 {
		e.lose("%d entries of ipv6host: there is no file for them", n)
	}
	rest := *s
	rest.Cipso, rest.Netlabel, rest.IPv6Host, rest.Onlycap, rest.Unconfined = nil, nil, nil, nil, ""
	rest.ClearOnlycap, rest.ClearUnconfined = false, false
	for _, w := range rest.Writes() {
		e.lose("%s %s: there is no file for it", w.File, w.Data)
	}
}
