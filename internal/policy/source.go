package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// segment is the text of one document of a file.
type segment struct {
	file      string
	text      string
	firstLine int // of the file, from 1

	head, foot string // comments that belong to no node of the tree, after load
	lines      []int  // offset of each line of text, made when first needed
}

// splitFile cuts a file at its document markers. YAML forbids a line that
// begins with "---" or "..." inside any scalar, so lines are enough to tell. A
// segment that holds only comments joins the document after it.
func splitFile(file string, src []byte, e *Errors) []*segment {
	if len(src) > MaxFileBytes {
		e.add(&apiv1.Finding{Code: codeTooLarge, File: file, Message: fmt.Sprintf("file of more than %d bytes", MaxFileBytes)})
		return nil
	}
	if !checkEncoding(file, src, e) {
		return nil
	}
	text := strings.TrimPrefix(string(src), "\uFEFF")
	var segs []*segment
	start, line, first := 0, 1, 1
	content := false // the segment so far has more than comments
	cut := func(end int) {
		if content {
			segs = append(segs, &segment{file: file, text: text[start:end], firstLine: first})
			start, first, content = end, line, false
		}
	}
	for at := 0; at < len(text); line++ {
		end := at + strings.IndexByte(text[at:], '\n') + 1
		if end == at {
			end = len(text)
		}
		l := strings.TrimRight(text[at:end], " \t\r\n")
		switch {
		case l == "---" || strings.HasPrefix(l, "--- ") || strings.HasPrefix(l, "---\t"):
			cut(at)
			content = l != "---" && !strings.HasPrefix(strings.TrimLeft(l[3:], " \t"), "#")
		case l == "...":
		case l != "" && strings.TrimLeft(l, " \t")[0] != '#':
			content = true
		}
		at = end
	}
	cut(len(text))
	if len(segs) > 0 && start < len(text) { // comments after the last document
		last := segs[len(segs)-1]
		last.text += text[start:]
	}
	if len(segs) > MaxDocuments {
		e.add(&apiv1.Finding{Code: codeTooLarge, File: file, Message: fmt.Sprintf("file of %d documents, at most %d", len(segs), MaxDocuments)})
		return nil
	}
	return segs
}

// checkEncoding refuses what is not UTF-8 text, at its first place.
func checkEncoding(file string, src []byte, e *Errors) bool {
	bad, what := -1, ""
	if i := bytes.IndexFunc(src, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f }); i >= 0 {
		bad, what = i, fmt.Sprintf("control character %#02x", src[i])
	}
	if !utf8.Valid(src) {
		for i := 0; i < len(src) && (bad < 0 || i < bad); {
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				bad, what = i, fmt.Sprintf("byte %#02x is not UTF-8", src[i])
				break
			}
			i += n
		}
	}
	if bad < 0 {
		return true
	}
	begin := bytes.LastIndexByte(src[:bad], '\n') + 1
	end := len(src)
	if i := bytes.IndexByte(src[bad:], '\n'); i >= 0 {
		end = bad + i
	}
	e.add(&apiv1.Finding{
		Code: codeEncoding, File: file, Message: what,
		Line:    uint32(bytes.Count(src[:bad], []byte("\n")) + 1),
		Column:  uint32(utf8.RuneCount(src[begin:bad]) + 1),
		Excerpt: excerptOf(strings.ToValidUTF8(string(src[begin:end]), "\uFFFD")),
	})
	return false
}

// load gives the tree of the document, or adds an error and gives nil.
func (s *segment) load(e *Errors) *yaml.Node {
	for i, l := range strings.SplitAfter(s.text, "\n") {
		t := strings.TrimSpace(l)
		if strings.HasPrefix(l, "%") {
			e.add(s.finding(codeSyntax, i+1, 1, "", "directives are not used here"))
			return nil
		}
		if t != "" && t[0] != '#' {
			break
		}
	}
	limits := loaderlimits.New(loaderlimits.DepthFunc(func(depth int, _ *loaderlimits.DepthContext) error {
		if depth > MaxDepth {
			return errDepth
		}
		return nil
	}))
	loader, err := yaml.NewLoader(strings.NewReader(s.text), yaml.WithPlugin(limits))
	var root *yaml.Node
	for err == nil {
		var doc yaml.Node
		if err = loader.Load(&doc); err != nil || doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
			break
		}
		n := doc.Content[0]
		s.head, s.foot = joinLines(s.head, doc.HeadComment), joinLines(s.foot, doc.FootComment)
		switch {
		case n.Kind == yaml.ScalarNode && n.Value == "": // nothing between two markers
		case root == nil:
			root = n
		default:
			e.add(s.finding(codeSyntax, n.Line, n.Column, "", "a second document without a line --- before it"))
			return nil
		}
	}
	if root != nil && errors.Is(err, io.EOF) {
		return root
	}
	e.add(s.syntaxError(err))
	return nil
}

func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

var errDepth = fmt.Errorf("nested more than %d deep", MaxDepth)

// yamlHints say what most often is behind an error of the YAML library.
var yamlHints = []struct{ part, hint string }{
	{"cannot start any token", "a tab cannot indent, and % @ ` cannot begin a word without quotes"},
	{"expected alphabetic or numeric character", "* and & cannot begin a word without quotes"},
	{"block sequence entries are not allowed", "a word that is - alone needs quotes"},
	{"mapping keys are not allowed", "a word that is ? alone needs quotes"},
}

// syntaxError is the finding of an error of the YAML library.
func (s *segment) syntaxError(err error) *apiv1.Finding {
	var le *yaml.LoadError
	if !errors.As(err, &le) {
		if err == nil || errors.Is(err, io.EOF) {
			err = errors.New("no document")
		}
		return s.finding(codeSyntax, 1, 0, "", err.Error())
	}
	code, message := codeSyntax, le.Message
	if errors.Is(err, errDepth) || strings.Contains(message, errDepth.Error()) {
		code, message = codeTooLarge, errDepth.Error()
	}
	for _, h := range yamlHints {
		if strings.Contains(message, h.part) {
			message += " (" + h.hint + ")"
		}
	}
	line, col := le.Mark.Line, le.Mark.Column
	if strings.Contains(message, "anchor") {
		code = codeAlias
	}
	return s.finding(code, line, col, "", message)
}

// line returns the n-th line of the document, from 1.
func (s *segment) line(n int) string {
	if s.lines == nil {
		s.lines = []int{0}
		for i := range len(s.text) {
			if s.text[i] == '\n' {
				s.lines = append(s.lines, i+1)
			}
		}
	}
	if n < 1 || n > len(s.lines) {
		return ""
	}
	end := len(s.text)
	if n < len(s.lines) {
		end = s.lines[n]
	}
	return s.text[s.lines[n-1]:end]
}

// finding makes one for a place of the document; line counts within the document.
func (s *segment) finding(code string, line, col int, field, message string) *apiv1.Finding {
	line, col = max(line, 1), max(col, 0)
	if s.line(line) == "" && line > len(s.lines) { // the end of the text
		line = len(s.lines)
		col = utf8.RuneCountInString(s.line(line)) + 1
	}
	f := &apiv1.Finding{Code: code, Message: message, File: s.file, Line: uint32(line + s.firstLine - 1), Column: uint32(col), Field: field}
	f.Excerpt = excerptOf(s.line(line))
	return f
}

// ReadText reads a text for [Parse]: of one that is too large only as much as Parse needs to refuse it, so that what has
// no end (/dev/zero) does no harm.
func ReadText(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
}

// ReadTextFile is ReadText of a file.
func ReadTextFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadText(f)
}
