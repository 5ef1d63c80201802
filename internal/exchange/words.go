package exchange

import (
	"strings"
)

// word is a word of a command line.
type word struct {
	text string
	at   spot
}

// words splits a text as a shell does, one list for each line that has a word. What a shell would replace or act on is
// an error: the value it had is not known here.
func (r *report) words(s *source) (lines [][]word, ok bool) {
	if !r.text(s) {
		return nil, false
	}
	w := &wordReader{report: r, source: s}
	for w.i < len(s.Data) {
		line, ok := w.line()
		if !ok {
			return nil, false
		}
		if len(line) > 0 {
			lines = append(lines, line)
		}
	}
	return lines, true
}

type wordReader struct {
	*report
	source *source
	i      int
}

// line reads the words up to the end of a line.
func (w *wordReader) line() (line []word, ok bool) {
	for w.i < len(w.source.Data) {
		switch c := w.source.Data[w.i]; {
		case c == '\n':
			w.i++
			return line, true
		case c == ' ' || c == '\t' || c == '\r':
			w.i++
		case w.continued():
			w.i += 2
		case c == '#':
			for w.i < len(w.source.Data) && w.source.Data[w.i] != '\n' {
				w.i++
			}
		default:
			at := w.source.at(w.i)
			text, ok := w.word()
			if !ok {
				return nil, false
			}
			line = append(line, word{text, at})
		}
	}
	return line, true
}

// continued tells whether a backslash with the end of the line stands here.
func (w *wordReader) continued() bool {
	return strings.HasPrefix(string(w.source.Data[w.i:min(w.i+2, len(w.source.Data))]), "\\\n")
}

// acts are the characters on which a shell does something when they stand without quotes.
const acts = "$`*?[]{}~;&|<>()"

func (w *wordReader) word() (string, bool) {
	var b strings.Builder
	for w.i < len(w.source.Data) {
		c := w.source.Data[w.i]
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			return b.String(), true
		case w.continued():
			w.i += 2
		case c == '\\':
			if w.i+1 == len(w.source.Data) {
				w.errorf(w.source.at(w.i), codeSyntax, "a backslash at the end")
				return "", false
			}
			b.WriteByte(w.source.Data[w.i+1])
			w.i += 2
		case c == '\'' || c == '"':
			if !w.quoted(c, &b) {
				return "", false
			}
		case strings.IndexByte(acts, c) >= 0:
			w.errorf(w.source.at(w.i), codeSyntax, "a shell acts on %c here: write what it makes of it, or quote it", c)
			return "", false
		default:
			b.WriteByte(c)
			w.i++
		}
	}
	return b.String(), true
}

// quoted reads up to the closing quote.
func (w *wordReader) quoted(quote byte, b *strings.Builder) bool {
	begin := w.i
	for w.i++; w.i < len(w.source.Data); w.i++ {
		c := w.source.Data[w.i]
		switch {
		case c == quote:
			w.i++
			return true
		case quote == '"' && (c == '$' || c == '`'):
			w.errorf(w.source.at(w.i), codeSyntax, "a shell acts on %c here: write what it makes of it, or put the word in '...'", c)
			return false
		case quote == '"' && c == '\\' && w.i+1 < len(w.source.Data) && strings.IndexByte("$`\"\\\n", w.source.Data[w.i+1]) >= 0:
			w.i++
			if w.source.Data[w.i] != '\n' {
				b.WriteByte(w.source.Data[w.i])
			}
		default:
			b.WriteByte(c)
		}
	}
	w.errorf(w.source.at(begin), codeSyntax, "a quote that is not closed")
	return false
}

// commandLine reads a file with the command line of a program, and gives the words after its name. Variables set before
// the name are errors.
func (r *report) commandLine(f File, program string) (args []word, at spot, ok bool) {
	s := newSource(f)
	lines, ok := r.words(s)
	switch {
	case !ok:
		return nil, spot{}, false
	case len(lines) == 0:
		r.errorf(s.whole(), codeSyntax, "there is no command line in it")
		return nil, spot{}, false
	case len(lines) > 1:
		r.errorf(lines[1][0].at, codeSyntax, "a second command line; end lines that go on with a backslash")
		return nil, spot{}, false
	}
	first := lines[0][0]
	if base := first.text[strings.LastIndexByte(first.text, '/')+1:]; base != program {
		r.errorf(first.at, codeUnknownKind, "want a command line that begins with %s, not %q", program, clip(first.text))
		return nil, spot{}, false
	}
	return lines[0][1:], first.at, true
}

// option is one option of a command line with its value.
type option struct {
	name  string
	value string
	given bool // a value was given as --name=value, or is the next word
	at    spot
	from  spot // of the value
}

// options reads the options before the command; takes tells which have a value. It gives the words of the command.
func (r *report) options(args []word, takes map[string]bool) (opts []option, command []word, ok bool) {
	ok = true
	for i := 0; i < len(args); i++ {
		w := args[i]
		if w.text == "--" {
			return opts, args[i+1:], ok
		}
		if !strings.HasPrefix(w.text, "-") || w.text == "-" {
			return opts, args[i:], ok
		}
		name, value, given := strings.Cut(w.text, "=")
		o := option{name: name, value: value, given: given, at: w.at, from: w.at}
		o.from.col += len([]rune(name)) + 1
		wants, known := takes[name]
		switch {
		case !known:
			r.errorf(w.at, codeUnknownOption, "unknown option %s", clip(name))
			ok = false
			continue
		case wants && !given:
			if i++; i == len(args) {
				r.errorf(w.at, codeBadValue, "%s needs a value", name)
				return opts, nil, false
			}
			o.value, o.from, o.given = args[i].text, args[i].at, true
		case !wants && given:
			if value != "true" && value != "false" {
				r.errorf(w.at, codeBadValue, "%s takes no value", name)
				ok = false
			}
		}
		opts = append(opts, o)
	}
	return opts, nil, ok
}
