package smack

import (
	"bytes"
	"fmt"
	"strings"
)

// text reads rules as libsmack or systemd do. What they would have done
// otherwise becomes a note, what cannot be read an error.
func (im *importer) text(f File, dialect Dialect) {
	at := Place{File: f.Name}
	data := f.Data
	if len(data) > MaxText {
		im.fail(at, ErrLimit, "%d bytes, at most %d", len(data), MaxText)
		return
	}
	if skip, name := byteOrderMark(data); skip > 0 {
		im.fail(Place{f.Name, 1, 1}, ErrSyntax, "the text begins with a byte order mark (%s): %s", name, elsewhere(dialect))
		data = data[skip:]
	}
	for row := range bytes.Lines(data) {
		at.Line++
		if im.stopped() {
			return
		}
		im.line(at, bytes.TrimSuffix(row, newline), dialect)
	}
}

// line reads a line, without its end.
func (im *importer) line(at Place, row []byte, dialect Dialect) {
	at.Column = 1
	switch dialect {
	case DialectSystemd:
		if len(row) >= systemdLine {
			im.note(at, WarnLongLine, "the line has %d bytes: systemd stops at a line of %d and loads nothing behind it", len(row), systemdLine)
		}
	case DialectLibsmack:
		if why := libsmackRefuses(row); why != "" {
			im.note(at, WarnDialect, "libsmack refuses the line, and loads nothing of any file: %s", why)
		}
	}
	row = bytes.TrimSuffix(row, []byte("\r"))
	if len(row) > MaxLine {
		im.fail(at, ErrLimit, "the line has %d bytes, at most %d", len(row), MaxLine)
		return
	}
	start := skipBlanks(row, 0)
	if start == len(row) {
		return
	}
	at.Column = start + 1
	rule, f, bad := scanRule(row)
	if row[start] == '#' || row[start] == ';' && start == 0 && dialect == DialectSystemd {
		if !im.comment(at, row[start], start, f == faultNone, dialect) {
			return
		}
	}
	if f != faultNone {
		what, err := explain(row, rule, f, bad)
		at.Column = bad + 1
		im.fail(at, err, "%s; %s", what, elsewhere(dialect))
		return
	}
	im.add(ImportedRule{
		At: at, Subject: string(rule.subject), Object: string(rule.object),
		Modify: rule.deny&threeColumns == 0, Allow: rule.allow, Deny: denied(rule.deny),
	})
}

// denied gives the letters of a fourth column.
func denied(deny Access) Access {
	if deny&threeColumns != 0 {
		return 0
	}
	return deny
}

// comment notes what a line that begins with a comment's sign is for whom, and
// tells whether it is a rule in the dialect.
func (im *importer) comment(at Place, sign byte, start int, isRule bool, dialect Dialect) bool {
	switch dialect {
	case DialectLibsmack:
		if isRule {
			im.note(at, WarnComment, "the line is a rule of a subject that begins with %s: libsmack knows no comments; systemd leaves it out", byteName(sign))
		}
		return isRule // otherwise the note that libsmack refuses it stands already
	case DialectSystemd:
		if start > 0 {
			if isRule {
				im.note(at, WarnComment, "the line is a rule of a subject that begins with %s: for systemd a comment has its sign in the first column", byteName(sign))
			} else {
				im.note(at, WarnComment, "the line is left out as a comment; systemd, for which a comment has its sign in the first column, hands it to the kernel as a rule")
			}
			return isRule
		}
	}
	if isRule {
		im.note(at, WarnComment, "the line is left out as a comment; for libsmack and the kernel it is a rule of a subject that begins with %s", byteName(sign))
	}
	return false
}

// elsewhere says what becomes of a line that is refused here.
func elsewhere(dialect Dialect) string {
	switch dialect {
	case DialectLibsmack:
		return "libsmack refuses it, and loads nothing of any file"
	case DialectSystemd:
		return "systemd hands the line to the kernel as it is, and when the kernel refuses it skips cipso.d, netlabel.d and onlycap"
	}
	return "a loader that does not check hands it to the kernel as it is"
}

// libsmackRefuses says why libsmack's smack_accesses_add_from_file refuses a line,
// "" when it does not.
func libsmackRefuses(row []byte) string {
	if len(row) == 0 {
		return ""
	}
	words := bytes.FieldsFunc(row, func(r rune) bool { return r == ' ' || r == '\t' })
	switch {
	case len(words) == 0:
		return "a line of blanks alone"
	case len(words) != 3 && len(words) != 4:
		return fmt.Sprintf("%d columns", len(words))
	}
	for _, label := range words[:2] {
		if err := CheckLabel(string(label)); err != nil {
			return err.Error()
		}
	}
	for _, a := range words[2:] {
		for _, c := range a {
			if !strings.ContainsRune("rwxatlRWXATL-", rune(c)) {
				return byteName(c) + " in the access"
			}
		}
	}
	return ""
}
