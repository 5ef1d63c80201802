package smack

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Templates that would take for ever, or more memory than there is, are refused.
func TestTemplateBombs(t *testing.T) {
	ten := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
	nested := func(depth int, inside string) (string, map[string][]string) {
		var b strings.Builder
		set := map[string][]string{}
		for i := range depth {
			fmt.Fprintf(&b, "{{#a%d}}\n", i)
			set[fmt.Sprintf("a%d", i)] = ten
		}
		b.WriteString(inside)
		for i := depth - 1; i >= 0; i-- {
			fmt.Fprintf(&b, "{{/a%d}}\n", i)
		}
		return b.String(), set
	}
	for _, c := range []struct {
		name, inside string
		depth        int
		set          map[string][]string
		err          string
	}{
		{"nothing inside", "", 15, nil, "lines to look at"},
		{"sections that are left out inside", "{{#none}}\n" + strings.Repeat("A B r\n", 1000) + "{{/none}}\n", 15, nil, "lines to look at"},
		{"rules inside", "A B r\n", 15, nil, "lines"},
		{"long values", strings.Repeat("{{v}}", 500) + " B r\n", 4, map[string][]string{"v": {strings.Repeat("v", 1<<20)}}, "at most 4095"},
		{"long lines", strings.Repeat("x", 4000) + " B r\n", 5, nil, "bytes"},
		{"too deep", "A B r\n", 17, nil, "more than 16 sections"},
	} {
		text, set := nested(c.depth, c.inside)
		for k, v := range c.set {
			set[k] = v
		}
		_, err := ImportFiles([]File{{"f", []byte(text)}}, ImportOptions{Dialect: DialectTemplate, Set: set})
		var ps Problems
		if !errors.As(err, &ps) || !strings.Contains(ps[0].Text, c.err) || !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %.300v, want %q", c.name, err, c.err)
		}
		if len(ps) > 2 {
			t.Errorf("%s: the limit is told %d times", c.name, len(ps))
		}
	}
	// Lines of a template that say nothing cost nothing.
	blank := append([]byte("~A~ B r\n"), bytes.Repeat([]byte("\n"), 1<<20)...)
	if n := testing.AllocsPerRun(1, func() {
		if _, err := ImportFiles([]File{{"f", blank}}, ImportOptions{Dialect: DialectTemplate, Set: map[string][]string{"A": {"x"}}}); err != nil {
			t.Error(err)
		}
	}); n > 1000 {
		t.Errorf("%v allocations for blank lines", n)
	}
}

// A section counts whatever blanks stand in its tag, and a value for a variable that
// nothing names is an error: rules would be missing without a word.
func TestTemplateNames(t *testing.T) {
	const spaced = "{{# plugs }}\nX {{ impid }} r\n{{/plugs}}\n{{^ none}}\nY Z r\n{{/ none }}\n"
	im, err := ImportFiles([]File{{"f", []byte(spaced)}}, ImportOptions{Dialect: DialectTemplate, Set: map[string][]string{"plugs.impid": {"a", "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ruleTexts(im), ";"); got != "2:1 X a r;2:1 X b r;5:1 Y Z r" {
		t.Errorf("rules %s", got)
	}
	if got := strings.Join(Variables([]File{{"f", []byte(spaced)}}), " "); got != "impid none plugs" {
		t.Errorf("variables %s", got)
	}
	for _, name := range []string{"plug", "plugs.imp", "other.impid"} {
		_, err := ImportFiles([]File{{"f", []byte(spaced)}}, ImportOptions{Dialect: DialectTemplate, Set: map[string][]string{"plugs.impid": {"a"}, name: {"a"}}})
		if err == nil || !strings.Contains(err.Error(), "no template names "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		"{{#a b}}\nA B r\n{{/a b}}\n":             "f:1:1",
		"{{# }}\nA B r\n{{/ }}\n":                 "f:1:1",
		"{{#a}}\n{{#b}}\n{{/a}}\n{{/b}}\nA B r\n": "{{/a}}",
	} {
		if _, err := ImportFiles([]File{{"f", []byte(text)}}, ImportOptions{Dialect: DialectTemplate}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Manifests that other readers of XML refuse, or take for something else.
func TestManifestOdd(t *testing.T) {
	const rule = `<define><domain name="D"/><request><smack request="O" type="r"/></request></define>`
	for _, c := range []struct{ text, err string }{
		{`<manifest><define><domain name="D"/><request><smack request="O" request="P" type="r"/></request></define></manifest>`, "request twice"},
		{`<manifest><define><domain name="D" name="E"/></define></manifest>`, "name twice"},
		{"<manifest/><manifest>" + rule + "</manifest>", "a second outermost element"},
		{"<manifest/>A B rwx", "text"},
		{"A B rwx<manifest/>", "text"},
		{"<manifest>A B rwx</manifest>", "text"},
		{`<manifest xmlns:z="u"><define><domain name="D"/><request><smack z:request="O" request="P" type="r"/></request></define></manifest>`, "request of another namespace"},
		{"<manifest><profile>" + rule + "</profile></manifest>", "<define> stands in <profile>"},
		{`<manifest><smack request="O" type="r"/></manifest>`, "<smack>"},
		{`<manifest><define><domain name="D"/><smack request="O" type="r"/></define></manifest>`, "<smack>"},
		{`<manifest><define><domain name="D"/><request><smack request="O" permit="P" type="r"/></request></define></manifest>`, "permit"},
		{`<manifest><define><domain name="D"/><permit><smack request="O" permit="P" type="r"/></permit></define></manifest>`, "request"},
	} {
		_, err := ImportFiles([]File{{"m", []byte(c.text)}}, ImportOptions{Dialect: DialectTizenManifest})
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.text, err, c.err)
		}
	}
	for _, text := range []string{
		"\xef\xbb\xbf<?xml version=\"1.0\"?>\n<manifest xmlns=\"http://tizen.org/ns/packages\">" + rule + "</manifest>\n<!-- end -->\n",
		"<manifest>\n\t" + rule + "<profile name=\"wearable\"/></manifest>",
	} {
		im, err := ImportFiles([]File{{"m", []byte(text)}}, ImportOptions{})
		if err != nil || len(im.Rules) != 1 || im.Rules[0].Object != "O" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Settings that come twice, and lines that one reader takes for comments, are told
// with their places.
func TestImportSettingsOdd(t *testing.T) {
	for _, c := range []struct {
		files []File
		err   string
	}{
		{[]File{{"a/onlycap", []byte("X\n")}, {"b/onlycap", []byte("Y\n")}}, "b/onlycap: a/onlycap"},
		{[]File{{"a/unconfined", []byte("X\n")}, {"b/unconfined", []byte("Y\n")}}, "b/unconfined: a/unconfined"},
		{[]File{{"cipso.d/a", []byte("X 7\n")}, {"cipso.d/b", []byte("\nX 8\n")}}, "cipso.d/b:2:1: invalid: X has an entry at cipso.d/a:1:1"},
		{[]File{{"netlabel.d/a", []byte("10.0.0.0/8 X\n")}, {"netlabel.d/b", []byte("10.0.0.0/8 X\n")}}, "netlabel.d/b:1:1: invalid: 10.0.0.0/8 has an entry at netlabel.d/a:1:1"},
	} {
		_, err := ImportFiles(c.files, ImportOptions{})
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.files[1].Name, err, c.err)
		}
	}
	for _, c := range []struct{ name, text, want string }{
		{"onlycap", "#admin\nX\n", "onlycap:1:1: the line is left out as a comment; libsmack and systemd"},
		{"cipso.d/x", "#admin 7\nX 7\n", "cipso.d/x:1:1: the line is left out as a comment; libsmack"},
		{"onlycap", "\n\n", "onlycap: there is no label in it"},
	} {
		im, err := ImportFiles([]File{{c.name, []byte(c.text)}}, ImportOptions{})
		if err != nil || !strings.Contains(im.Notes.Error(), c.want) {
			t.Errorf("%s %q: %v %v, want %q", c.name, c.text, err, im, c.want)
		}
	}
}

// An export says what it cannot say, and what its own reader would take for something else.
func TestExportOdd(t *testing.T) {
	s, _, err := ParseRules("f", []byte(";x Y r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, lost := ExportLibsmack(s, &Settings{}); len(lost) != 1 || !strings.Contains(lost[0], ";x Y r") {
		t.Errorf("libsmack: %q", lost)
	}
	for name, export := range map[string]func(*Set, *Settings) ([]File, []string){"libsmack": ExportLibsmack, "systemd": ExportSystemd} {
		if _, lost := export(&Set{}, &Settings{ClearUnconfined: true}); len(lost) != 1 || !strings.Contains(lost[0], "unconfined") {
			t.Errorf("%s: clearing unconfined: %q", name, lost)
		}
	}
	// systemd leaves lines of cipso.d out that begin as comments.
	files, lost := ExportSystemd(&Set{}, &Settings{Cipso: []Cipso{{Label: "#x", Level: 7}, {Label: ";y", Level: 7}}})
	if len(lost) != 2 || len(files) != 0 {
		t.Errorf("%q %q", files, lost)
	}
}

// TestTemplateOneError: a line whose variable has no value is one error, not two.
func TestTemplateOneError(t *testing.T) {
	text := "App:{{id}} Sys r\n~APP~ B r\nA B q\n"
	_, err := ImportFiles([]File{{"f", []byte(text)}}, ImportOptions{Dialect: DialectTemplate})
	layerErr := NewBuilder("").Layer("l", AllAccess).Template("f", []byte(text), nil)
	for _, err := range []error{err, layerErr} {
		ps, ok := errors.AsType[Problems](err)
		if !ok || len(ps) != 3 || ps[0].Place.Line != 1 || ps[1].Place.Line != 2 || ps[2].Place.Line != 3 {
			t.Errorf("%v", err)
		}
	}
}

// Rules take many times their text, so their number ends with what may be made of them.
func TestImportBounds(t *testing.T) {
	rules := []byte(strings.Repeat("A B r\n", 1000))
	for _, files := range [][]File{
		{{"a", rules}},
		{{"a", rules[:3000]}, {"b", rules[:3000]}},
		{{"m", []byte(`<manifest><define><domain name="D"/><request>` + strings.Repeat(`<smack request="O" type="r"/>`, 1000) + `</request></define></manifest>`)}},
		{{"t", []byte("~A~ B r\n" + string(rules))}},
	} {
		o := ImportOptions{MaxRules: 5999, Set: map[string][]string{"A": {"A"}}}
		if files[0].Name != "t" {
			o.Set = nil
		}
		_, err := ImportFiles(files, o)
		var ps Problems
		if !errors.As(err, &ps) || !errors.Is(err, ErrLimit) || len(ps) != 1 {
			t.Errorf("%s: %.200v", files[0].Name, err)
		}
		o.MaxRules = 6006
		if im, err := ImportFiles(files, o); err != nil || len(im.Rules) < 1000 {
			t.Errorf("%s: %.200v", files[0].Name, err)
		}
	}
	im, err := ImportFiles([]File{{"a", []byte(strings.Repeat("# A B r\n", 250))}}, ImportOptions{Dialect: DialectSystemd})
	if err != nil || len(im.Notes) != MaxProblems+1 || im.Notes[MaxProblems].Text != "150 more remarks on the file" {
		t.Errorf("%d notes, %v", len(im.Notes), err)
	}
}
