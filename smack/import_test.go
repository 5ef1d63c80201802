package smack

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ruleTexts gives imported rules as "line:column text".
func ruleTexts(im *Import) []string {
	var out []string
	for _, r := range im.Rules {
		text, plain := r.Text()
		if !plain {
			text += " (list)"
		}
		out = append(out, fmt.Sprintf("%d:%d %s", r.At.Line, r.At.Column, text))
	}
	return out
}

// One line as each of two readers takes it.
func TestImportDialects(t *testing.T) {
	long := strings.Repeat("x", 250)
	for _, c := range []struct {
		name, text string
		dialect    Dialect
		rules      []string
		note       string // a part of the one note, "" for none
		err        string // a part of the one error
	}{
		{"plain", "A B rw\n", DialectLibsmack, []string{"1:1 A B rw"}, "", ""},
		{"plain", "A B rw\n", DialectSystemd, []string{"1:1 A B rw"}, "", ""},
		{"four columns", "A B r w\n", DialectSystemd, []string{"1:1 A B r w"}, "", ""},
		{"explicit nothing", "A B -\n", DialectLibsmack, []string{"1:1 A B -"}, "", ""},
		{"CRLF", "A B r\r\n", DialectLibsmack, []string{"1:1 A B r"}, "libsmack refuses the line, and loads nothing of any file: carriage return", ""},
		{"CRLF", "A B r\r\n", DialectSystemd, []string{"1:1 A B r"}, "", ""},
		{"comment", "# a comment of words\n", DialectLibsmack, nil, "libsmack refuses the line, and loads nothing of any file: 5 columns", ""},
		{"comment", "# a comment of words\n", DialectSystemd, nil, "", ""},
		{"comment that is a rule", "# foo rwx\n", DialectLibsmack, []string{"1:1 # foo rwx (list)"}, "libsmack knows no comments", ""},
		{"comment that is a rule", "# foo rwx\n", DialectSystemd, nil, "for libsmack and the kernel it is a rule", ""},
		{"semicolon", "; foo rwx\n", DialectLibsmack, []string{"1:1 ; foo rwx"}, "", ""},
		{"semicolon", "; foo rwx\n", DialectSystemd, nil, "it is a rule of a subject that begins with ';'", ""},
		{"semicolon", "; some words here and there\n", DialectSystemd, nil, "", ""},
		{"indented comment", "  # some words and more\n", DialectLibsmack, nil, "libsmack refuses the line", ""},
		{"indented comment", "  # some words and more\n", DialectSystemd, nil, "hands it to the kernel as a rule", ""},
		{"indented rule", "  # foo rwx\n", DialectSystemd, []string{"1:3 # foo rwx (list)"}, "has its sign in the first column", ""},
		{"comment behind", "A B r # c\n", DialectLibsmack, nil, "", "f:1:7: '#' (0x23) behind a rule: a comment stands on a line of its own, because # is legal in labels; libsmack refuses it"},
		{"comment behind", "A B r # c\n", DialectSystemd, nil, "", "systemd hands the line to the kernel as it is"},
		{"blank", "\n", DialectLibsmack, nil, "", ""},
		{"blanks", "  \n", DialectLibsmack, nil, "a line of blanks alone", ""},
		{"blanks", "  \n", DialectSystemd, nil, "", ""},
		{"b", "A B rb\n", DialectLibsmack, []string{"1:1 A B rb"}, "'b' (0x62) in the access", ""},
		{"b", "A B rb\n", DialectSystemd, []string{"1:1 A B rb"}, "", ""},
		{"waxbeans", "A B waxbeans\n", DialectSystemd, nil, "", `take "wxab"`},
		{"bad label", "a/b B r\n", DialectSystemd, nil, "", `the kernel would cut it to "a"`},
		{"bad label", "a/b B r\n", DialectLibsmack, nil, "", "libsmack refuses it"},
		{"long line", long + " B rwx\n", DialectSystemd, []string{"1:1 " + long + " B rwx"}, "systemd stops at a line of 255", ""},
		{"long line", long + " B rwx\n", DialectLibsmack, []string{"1:1 " + long + " B rwx"}, "", ""},
		{"two columns", "A B\n", DialectLibsmack, nil, "", "2 of 3 columns"},
		{"byte order mark", "\xef\xbb\xbfA B r\n", DialectSystemd, nil, "", "f:1:1: the text begins with a byte order mark"},
		{"no final newline", "A B r\nC D w", DialectSystemd, []string{"1:1 A B r", "2:1 C D w"}, "", ""},
	} {
		im, err := ImportFiles([]File{{"f", []byte(c.text)}}, ImportOptions{Dialect: c.dialect})
		at := fmt.Sprintf("%s by %s", c.name, c.dialect)
		if c.err != "" {
			var ps Problems
			if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", at, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		if got := ruleTexts(im); !slices.Equal(got, c.rules) {
			t.Errorf("%s: rules %q, want %q", at, got, c.rules)
		}
		notes := len(im.Notes)
		if c.name == "comment that is a rule" || c.name == "indented comment" {
			notes = min(notes, 1) // libsmack's refusal may stand beside
		}
		if c.note == "" && notes != 0 || c.note != "" && (notes != 1 || !strings.Contains(im.Notes.Error(), c.note)) {
			t.Errorf("%s: notes %v, want %q", at, im.Notes, c.note)
		}
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Dialect
	}{
		{"a", "A B rw\nA C r w\n", DialectLibsmack},
		{"a", "", DialectLibsmack},
		{"a", "# comment\nA B rw\n", DialectSystemd},
		{"a", "A B rw\r\n", DialectSystemd},
		{"a", "A B rwb\n", DialectSystemd},
		{"a.manifest", "<?xml version=\"1.0\"?>\n<manifest/>", DialectTizenManifest},
		{"a", "\n <manifest></manifest>", DialectTizenManifest},
		{"a", "<A B r\n", DialectLibsmack},
		{"a", "~APP~ ail::db rwxa-\n", DialectTemplate},
		{"a", "~ B r\n~a~ B r\n", DialectLibsmack},
		{"a", "App:{{id}} System rx\n", DialectTemplate},
		{"a", "# ~APP~\nA B r\n", DialectSystemd},
	} {
		if got := Detect(File{c.name, []byte(c.text)}); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
	for _, d := range []Dialect{DialectAuto, DialectLibsmack, DialectSystemd, DialectTizenManifest, DialectTemplate} {
		if got, err := ParseDialect(string(d)); err != nil || got != d {
			t.Errorf("%s: %v", d, err)
		}
	}
	if _, err := ParseDialect("selinux"); !errors.Is(err, ErrInvalid) {
		t.Errorf("selinux is a dialect: %v", err)
	}
}

func TestImportFolder(t *testing.T) {
	im, err := ImportFiles([]File{
		{"etc/smack/onlycap", []byte("_ System")},
		{"etc/smack/unconfined", []byte("Lab\n")},
		{"etc/smack/netlabel.d/n", []byte("10.0.0.0/8 Intern\n# c\n::1 Self\n")},
		{"etc/smack/cipso.d/words", []byte("TopSecret 7\n")},
		{"etc/smack/cipso.d/columns", []byte("X 7   2   1   2   \n")},
		{"etc/smack/accesses.d/b", []byte("A B w\nX Y r\n")},
		{"etc/smack/accesses.d/a", []byte("# first\nA B r\nX Y r\n")},
		{"etc/smack/accesses.d/a~", []byte("not a rule at all\n")},
		{"etc/smack/accesses.d/.swp", []byte("\x00")},
	}, ImportOptions{Dialect: DialectAuto})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ruleTexts(im), []string{"2:1 A B r", "3:1 X Y r", "1:1 A B w", "2:1 X Y r"}; !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
	s := im.Settings
	if !slices.Equal(s.Onlycap, []string{"_", "System"}) || s.Unconfined != "Lab" || len(s.Cipso) != 2 || len(s.Netlabel) != 1 || len(s.IPv6Host) != 1 {
		t.Errorf("settings %+v", s)
	}
	var kinds []string
	for _, f := range im.Files {
		kinds = append(kinds, f.Kind+" "+string(f.Dialect))
	}
	if want := []string{"rules systemd", "rules libsmack", "cipso ", "cipso ", "netlabel ", "onlycap ", "unconfined "}; !slices.Equal(kinds, want) {
		t.Errorf("files %q, want %q", kinds, want)
	}
	for _, part := range []string{
		"accesses.d/.swp: the file is left out", "accesses.d/a~: the file is left out",
		"accesses.d/b:1:1: A B has a rule at etc/smack/accesses.d/a:2:1 too",
		"cipso.d/words: 1 entries in libsmack's form", "cipso.d/columns: 1 entries in the kernel's form",
		"netlabel.d/n:2:1: netlabel.d knows no comments", "netlabel.d/n: the file has IPv6",
		"unconfined: only a patched systemd",
	} {
		if !strings.Contains(im.Notes.Error(), part) {
			t.Errorf("no note %q in\n%v", part, im.Notes)
		}
	}
	if len(im.Notes) != 8 {
		t.Errorf("%d notes:\n%v", len(im.Notes), im.Notes)
	}
	b := NewBuilder("p")
	if err := im.AddTo(b.Layer("imported", AllAccess)); err != nil {
		t.Fatal(err)
	}
	p, _, err := b.Build()
	if err != nil || !slices.Equal(lines(p.Effective()), []string{"A B w", "X Y r"}) {
		t.Errorf("%v", err)
	}
}

func TestImportErrors(t *testing.T) {
	_, err := ImportFiles([]File{
		{"accesses.d/a", []byte("A B 7\n")},
		{"cipso.d/a", []byte("X 7\n")},
		{"cipso.d/b", []byte("Y 256\n")},
		{"netlabel.d/a", []byte("300.1.1.1 X\n")},
		{"onlycap", []byte("-typo\n")},
		{"unconfined", []byte("A B\n")},
	}, ImportOptions{})
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 5 {
		t.Errorf("%d errors: %v", len(ps), err)
	}
	_, err = ImportFiles([]File{{"cipso.d/a", []byte("X 7\n")}, {"cipso.d/b", []byte("X 8\n")}}, ImportOptions{})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "cipso.d/b:1:1: invalid: X has an entry at cipso.d/a:1:1") {
		t.Errorf("two files for one label: %v", err)
	}
	_, err = ImportFiles([]File{{"a", []byte(strings.Repeat("A B 7\n", 1000))}, {"b", []byte(strings.Repeat("A B 7\n", 1000))}}, ImportOptions{})
	if !errors.As(err, &ps) || len(ps) > MaxProblems+1 {
		t.Errorf("%d errors, at most %d", len(ps), MaxProblems+1)
	}
}

func TestTemplates(t *testing.T) {
	const redpesk = "System App:{{id}} rwxa\nApp:{{id}} App:{{id}}:Lib rx\n{{#has-plugs}}\nApp:{{id}} App:{{id}}:Plug rx\n{{/has-plugs}}\n{{#plugs}}\nApp:{{impid}} App:{{id}}:Plug rx\n{{/plugs}}\n"
	for _, c := range []struct {
		name, text string
		set        map[string][]string
		want       []string
		err        string
	}{
		{"tizen 2", "~APP~ ail::db rwxa-\n", map[string][]string{"APP": {"org.x"}}, []string{"1:1 org.x ail::db rwxa"}, ""},
		{
			"tizen 3", "~PROCESS~ ~PATH_RW~ rwxat\nSystem ~PROCESS~ wx -\n",
			map[string][]string{"PROCESS": {"User::Pkg::p"}, "PATH_RW": {"User::Pkg::p::RW"}},
			[]string{"1:1 User::Pkg::p User::Pkg::p::RW rwxat", "2:1 System User::Pkg::p wx -"},
			"",
		},
		{"not a variable", "~app~ ~ r\n~X y r\n", nil, []string{"1:1 ~app~ ~ r", "2:1 ~X y r"}, ""},
		{"redpesk without", redpesk, map[string][]string{"id": {"me"}}, []string{"1:1 System App:me rwxa", "2:1 App:me App:me:Lib rx"}, ""},
		{
			"redpesk with", redpesk,
			map[string][]string{"id": {"me"}, "has-plugs": {"true"}, "plugs.impid": {"one", "two"}},
			[]string{"1:1 System App:me rwxa", "2:1 App:me App:me:Lib rx", "4:1 App:me App:me:Plug rx", "7:1 App:one App:me:Plug rx", "7:1 App:two App:me:Plug rx"},
			"",
		},
		{"false", redpesk, map[string][]string{"id": {"me"}, "has-plugs": {"false"}}, []string{"1:1 System App:me rwxa", "2:1 App:me App:me:Lib rx"}, ""},
		{
			"item", "{{#a}}\n  {{#b}}\n{{a}} {{.}} r\n  {{/b}}\n{{/a}}\n{{^a}}\nNone X r\n{{/a}}\n{{^c}}\nC X r\n{{/c}}\n{{! a comment }}\n",
			map[string][]string{"a": {"1", "2"}, "b": {"x"}},
			[]string{"3:1 1 x r", "3:1 2 x r", "10:1 C X r"},
			"",
		},
		{"comment", "# {{id}}\n{{id}} B r\n", map[string][]string{"id": {"A"}}, []string{"2:1 A B r"}, ""},

		{"no value", "A B r\n~APP~ B r\n", nil, nil, "f:2:1: the variable APP has no value"},
		{"no value", "A {{id}} r\n", nil, nil, "f:1:3: the variable id has no value"},
		{"many values", "A {{id}} r\n", map[string][]string{"id": {"a", "b"}}, nil, "the variable id has 2 values"},
		{"value with a blank", "A {{id}} r\n", map[string][]string{"id": {"x r\nB C"}}, nil, "space (0x20) cannot stand in a rule"},
		{"value with a slash", "A {{id}} r\n", map[string][]string{"id": {"a/b"}}, nil, "'/' (0x2f) cannot stand"},
		{"open section", "{{#a}}\nA B r\n", nil, nil, "f:1:1: the section {{#a}} has no end {{/a}}"},
		{"closed section", "A B r\n{{/a}}\n", nil, nil, "f:2:1: {{/a}} ends a section that is not open"},
		{"section in a line", "A {{#a}}x{{/a}} r\n", nil, nil, "f:1:3: {{#a}}: only names stand inside a line"},
		{"uneven", "{{#p}}\n{{x}} {{y}} r\n{{/p}}\n", map[string][]string{"p.x": {"1", "2"}, "p.y": {"1"}}, nil, "p.y has 1 values and its section is repeated more often"},
		{"deep", strings.Repeat("{{#a}}\n", 1) + strings.Repeat("{{#b}}\n", 1) + "A B r\n{{/b}}\n{{/a}}\n", map[string][]string{"a": {"1"}, "b": {"1"}}, []string{"3:1 A B r"}, ""},
		{"bad rule", "{{id}} B 7\n", map[string][]string{"id": {"A"}}, nil, `f:1:5: access "7"`},
	} {
		im, err := ImportFiles([]File{{"f", []byte(c.text)}}, ImportOptions{Dialect: DialectTemplate, Set: c.set})
		// A layer reads the same from the template as an import.
		b, imported := NewBuilder(""), NewBuilder("")
		layerErr := b.Layer("l", AllAccess).Template("f", []byte(c.text), c.set)
		if c.err != "" {
			for _, err := range []error{err, layerErr} {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: %v, want %q", c.name, err, c.err)
				}
			}
			continue
		}
		if err != nil || layerErr != nil {
			t.Errorf("%s: %v, %v", c.name, err, layerErr)
			continue
		}
		if got := ruleTexts(im); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if err := im.AddTo(imported.Layer("l", AllAccess)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		one, _, err1 := b.Build()
		other, _, err2 := imported.Build()
		if err1 != nil || err2 != nil || !bytes.Equal(one.Encode(), other.Encode()) {
			t.Errorf("%s: the layer differs from the import (%v, %v)", c.name, err1, err2)
		}
	}
	if got := Variables([]File{{"f", []byte(redpesk + "~APP~ B r\n{{.}} {{! no }}\n")}}); !slices.Equal(got, []string{"APP", "has-plugs", "id", "impid", "plugs"}) {
		t.Errorf("variables %q", got)
	}
}

func TestManifest(t *testing.T) {
	const good = `<?xml version="1.0" encoding="utf-8"?>
<!-- a package -->
<manifest>
  <define>
    <domain name="ail" policy="shared"/>
    <provide><label name="ail::db"/></provide>
    <request>
      <smack request="system::vconf" type="rwxat"/>
    </request>
    <permit>
      <smack permit="User" type="w"/>
      <smack permit="User" to="ail::db" type="R-"/>
    </permit>
  </define>
  <request><domain name="_"/></request>
  <assign>
    <filesystem path="/usr/bin/ail" label="_" exec_label="none"/>
    <filesystem path="/opt/dbspace" label="ail::db" type="transmutable"/>
    <dbus/>
  </assign>
</manifest>
`
	im, err := ImportFiles([]File{{"ail.manifest", []byte(good)}}, ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ruleTexts(im), []string{"8:7 ail system::vconf rwxat", "11:7 User ail w", "12:7 User ail::db r"}; !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
	if len(im.Assignments) != 2 || !im.Assignments[1].Transmute || im.Assignments[0].ExecLabel != "none" || !slices.Equal(im.Domains, []string{"_"}) {
		t.Errorf("%+v %q", im.Assignments, im.Domains)
	}
	if len(im.Notes) != 1 || !strings.Contains(im.Notes[0].Text, "<dbus>") {
		t.Errorf("notes %v", im.Notes)
	}
	wrap := func(s string) string { return "<manifest><define>" + s + "</define></manifest>" }
	for _, c := range []struct{ text, err string }{
		{"", "no element <manifest>"},
		{"<manifest>", "unexpected EOF"},
		{"<manifest></other>", "element <manifest> closed by </other>"},
		{"<other/>", "the outermost element is <other>"},
		{"<!DOCTYPE m [<!ENTITY a \"b\">]><manifest/>", "a document type"},
		{"<manifest>&a;</manifest>", "invalid character entity"},
		{"<?xml version=\"1.0\" encoding=\"latin1\"?><manifest/>", "encoding"},
		{wrap(`<request><smack request="O" type="r"/></request>`), "<define> without <domain>"},
		{wrap(`<domain name="D"/><domain name="E"/>`), "a second domain"},
		{wrap(`<domain name="a/b"/>`), "'/' (0x2f)"},
		{wrap(`<domain/>`), "empty label"},
		{wrap(`<domain name="D"/><request><smack request="O" type="waxbeans"/></request>`), "'e' (0x65)"},
		{wrap(`<domain name="D"/><request><smack request="O"/></request>`), "no access letters"},
		{wrap(`<domain name="D"/><permit><smack permit="" type="r"/></permit>`), "permit: empty label"},
		{"<manifest><assign><filesystem label=\"_\"/></assign></manifest>", "without a path"},
		{"<manifest><assign><filesystem path=\"/a\" type=\"odd\"/></assign></manifest>", `type "odd"`},
		{strings.Repeat("<manifest>", 40), "elements one in another"},
		{strings.Repeat(" ", maxManifest+1), "bytes, at most"},
	} {
		_, err := ImportFiles([]File{{"m", []byte(c.text)}}, ImportOptions{Dialect: DialectTizenManifest})
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%.60q: %v, want %q", c.text, err, c.err)
		}
	}
}

// What is exported is read as what it was, but for the losses.
func TestExport(t *testing.T) {
	b := NewSetBuilder()
	long := strings.Repeat("x", 200)
	b.Set("A", "B", Read|Write)
	b.Set("A", "C", 0)
	b.Set("#x", "B", Read)
	b.Set(";y", "B", Read)
	b.Set("Bring", "Up", Read|Bringup)
	b.Set(long, long, Read)
	s := mustBuild(t, b)
	settings := everySetting()

	files, lost := ExportLibsmack(s, &settings)
	im, err := ImportFiles(files, ImportOptions{Dialect: DialectLibsmack})
	if err != nil {
		t.Fatal(err)
	}
	back := NewBuilder("")
	if err := im.AddTo(back.Layer("l", AllAccess)); err != nil {
		t.Fatal(err)
	}
	p, _, err := back.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := p.Effective().Difference(s)
	if d.Len() != 1 || d.All()[0] != (Change{"Bring", "Up", Read | Bringup, Read}) {
		t.Errorf("libsmack: %v", d.All())
	}
	if c := im.Settings; len(c.Cipso) != 2 || !slices.Equal(c.Onlycap, []string{"System", "_"}) {
		t.Errorf("libsmack: settings %+v", c)
	}
	for _, part := range []string{"the letter b of the rule Bring Up rb", "rule #x B r, should systemd", "2 entries of netlabel", "2 entries of ipv6host", "unconfined", "doi 3", "direct 250", "ambient Net", "relabel-self A B", "ptrace 2", "logging 3", "syslog *", "mapped 0"} {
		if !strings.Contains(strings.Join(lost, "\n"), part) {
			t.Errorf("libsmack: the loss %q is not told: %q", part, lost)
		}
	}

	files, lost = ExportSystemd(s, &settings)
	im, err = ImportFiles(files, ImportOptions{Dialect: DialectSystemd})
	if err != nil {
		t.Fatal(err)
	}
	back = NewBuilder("")
	if err := im.AddTo(back.Layer("l", AllAccess)); err != nil {
		t.Fatal(err)
	}
	if p, _, err = back.Build(); err != nil {
		t.Fatal(err)
	}
	if d := p.Effective().Difference(s); d.Len() != 1 || d.All()[0].Subject != long {
		t.Errorf("systemd: %v", d.All())
	}
	if c := im.Settings; len(c.Cipso) != 2 || len(c.Netlabel) != 2 || !slices.Equal(c.Onlycap, []string{"System", "_"}) {
		t.Errorf("systemd: settings %+v", c)
	}
	if text := strings.Join(lost, "\n"); !strings.Contains(text, "has 403 bytes, and systemd stops at 255") || strings.Contains(text, "netlabel") {
		t.Errorf("systemd: losses %q", lost)
	}
	if files, lost := ExportSystemd(&Set{}, &Settings{}); len(files) != 0 || len(lost) != 0 {
		t.Errorf("nothing becomes %v, %v", files, lost)
	}
}

// Whatever is imported builds, and no dialect panics.
func FuzzImport(f *testing.F) {
	f.Add("accesses.d/a", []byte("A B rwx\n# foo rwx\n; x\nA C r w\r\n"))
	f.Add("a", []byte("{{#plugs}}\nApp:{{id}} X r\n{{/plugs}}\n~APP~ B r\n"))
	f.Add("a", []byte(`<manifest><define><domain name="D"/><request><smack request="O" type="r"/></request></define></manifest>`))
	f.Add("cipso.d/a", []byte("X 7 1\n"))
	f.Add("onlycap", []byte("_ System"))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		for _, d := range []Dialect{DialectAuto, DialectLibsmack, DialectSystemd, DialectTizenManifest, DialectTemplate} {
			im, err := ImportFiles([]File{{name, text}}, ImportOptions{Dialect: d, Set: map[string][]string{"id": {"x"}, "APP": {"y"}, "plugs": {"1", "2"}}})
			if err != nil {
				if im != nil {
					t.Fatal("an import beside an error")
				}
				continue
			}
			b := NewBuilder("")
			if err := im.AddTo(b.Layer("l", AllAccess)); err != nil {
				t.Fatalf("%s: %v", d, err)
			}
			p, _, err := b.Build()
			if err != nil {
				t.Fatalf("%s: %v", d, err)
			}
			if _, lost := ExportSystemd(p.Effective(), &im.Settings); len(lost) > MaxProblems {
				t.Fatal("losses without a bound")
			}
		}
	})
}
