package smack

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/smack/smacktest"
)

// warned gives warnings as "line:column code".
func warned(ps Problems) []string {
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprintf("%d:%d %s", p.Place.Line, p.Place.Column, p.Code))
	}
	return out
}

// The inputs that other readers of rules take in different ways, with the
// answer of this one.
func TestText(t *testing.T) {
	long := strings.Repeat("x", MaxLabel)
	for _, c := range []struct {
		name, text string
		rules      []string
		warnings   []string
		errors     []string // each a part of an error with its place
	}{
		{name: "a rule", text: "A B rwx\n", rules: []string{"A B rwx"}},
		{name: "empty", text: ""},
		{name: "blank", text: "\n \t\n\r\n"},
		{name: "upper case", text: "A B RWX\n", rules: []string{"A B rwx"}},
		{name: "repeated letters", text: "A B rrr\n", rules: []string{"A B r"}},
		{name: "dashes", text: "A B r-x-\n", rules: []string{"A B rx"}},
		{name: "explicit nothing", text: "A B -\n", rules: []string{"A B -"}},
		{name: "all letters", text: "A B rwxatlb\n", rules: []string{"A B rwxatlb"}},
		{name: "label with a number sign", text: "A# #B r\n", rules: []string{"A# #B r"}},

		{name: "no final newline", text: "A B r", rules: []string{"A B r"}},
		{name: "CRLF", text: "A B r\r\nA C w\r\n", rules: []string{"A B r", "A C w"}},
		{name: "CR at the end", text: "A B r\r", rules: []string{"A B r"}},
		{name: "tabs", text: "\tA\t\tB \t r\n", rules: []string{"A B r"}},
		{name: "trailing blanks", text: "A B r \t \n", rules: []string{"A B r"}},
		{name: "lone CR", text: "A B r\rA C w\n", errors: []string{`f:1:6: access "r\rA": carriage return (0x0d)`}},
		{name: "two CR", text: "A B r\r\r\n", errors: []string{"f:1:6: access"}},
		{name: "vertical tab", text: "A\vB r\n", errors: []string{"f:1:2: label \"A\\vB\": control character 0x0b cannot stand in a label; the kernel would split the label there"}},
		{name: "form feed", text: "A\fB r\n", errors: []string{"f:1:2: label"}},

		{name: "255 bytes in both places", text: long + " " + long[:254] + "y rwx\n", rules: []string{long + " " + long[:254] + "y rwx"}, warnings: []string{"1:1 long-line"}},
		{name: "254 bytes a line", text: long[:250] + " B x\n", rules: []string{long[:250] + " B x"}},
		{name: "255 bytes a line", text: long[:250] + " B rx\n", rules: []string{long[:250] + " B rx"}, warnings: []string{"1:1 long-line"}},
		{name: "256 bytes", text: long + "x B r\nA " + long + "x r\n", errors: []string{"f:1:1: label", "f:2:3: label"}},

		{name: "slash", text: "a/b B r\n", errors: []string{`f:1:2: label "a/b": '/' (0x2f)`}},
		{name: "quote", text: `A a"b r`, errors: []string{`f:1:4: label "a\"b": '"' (0x22)`}},
		{name: "apostrophe", text: "a'b B r", errors: []string{"f:1:2: "}},
		{name: "backslash", text: `a\b B r`, errors: []string{`f:1:2: label "a\\b": '\' (0x5c)`}},
		{name: "not ASCII", text: "A é r", errors: []string{"f:1:3: label \"\\u00e9\": byte 0xc3 (not ASCII)"}},
		{name: "à, which splits", text: "R4à B rwx", errors: []string{"f:1:3: label"}},
		{name: "raw 0xa0", text: "R4\xa0B rwx", errors: []string{"f:1:3: label \"R4\\xa0B\": byte 0xa0 (not ASCII) cannot stand in a label; the kernel would split"}},
		{name: "DEL", text: "A\x7f B r", errors: []string{"f:1:2: label \"A\\x7f\": DEL (0x7f)"}},
		{name: "control character", text: "A\x01 B r", errors: []string{"f:1:2: "}},
		{name: "dash", text: "-x B r\nA -x r", errors: []string{`f:1:1: label "-x": '-' (0x2d) at the beginning`, "f:2:3: "}},

		{name: "waxbeans", text: "A B waxbeans", errors: []string{`f:1:9: access "waxbeans": 'e' (0x65)`}},
		{name: "number", text: "A B 7", errors: []string{`f:1:5: access "7"`}},
		{name: "bad letter to deny", text: "A B r 7", errors: []string{`f:1:7: access "7"`}},

		{name: "duplicate", text: "A B r\nA B w\n", rules: []string{"A B w"}, warnings: []string{"2:1 duplicate"}},
		{name: "the same twice", text: "A B r\nX Y w\nA B r\n", rules: []string{"A B r", "X Y w"}, warnings: []string{"3:1 duplicate"}},
		{name: "allow and deny", text: "A B rw w\n", rules: []string{"A B r"}, warnings: []string{"1:1 allow-and-deny"}},
		{name: "no-op", text: "A B - -\n"},
		{name: "no-op many times", text: strings.Repeat("A B - -\n", 200)},
		{name: "no-op on a rule", text: "A B r\nA B - -\n", rules: []string{"A B r"}},
		{name: "modify", text: "A B rw\nA B x w\n", rules: []string{"A B rx"}},
		{name: "modify what is missing", text: "A B rw w\nA C - r\n", rules: []string{"A B r", "A C -"}, warnings: []string{"1:1 allow-and-deny"}},
		{name: "set after modify", text: "A B x -\nA B r\n", rules: []string{"A B r"}},

		{name: "two columns", text: "A B\n", errors: []string{"f:1:4: 2 of 3 columns"}},
		{name: "one column", text: "A\n", errors: []string{"f:1:2: 1 of 3 columns"}},
		{name: "split over lines", text: "A\nB r\n", errors: []string{"f:1:2: 1 of 3", "f:2:4: 2 of 3"}},
		{name: "five columns", text: "A B r w x\n", errors: []string{"f:1:9: a fifth column"}},
		{name: "six columns", text: "O1 B r O2 B r\n", errors: []string{"f:1:8: access \"O2\""}},

		{name: "comment", text: "# a comment\nA B r\n", rules: []string{"A B r"}},
		{name: "indented comment", text: "  # c\n", rules: nil},
		{name: "comment of any bytes", text: "# é/\"\x7f\n", rules: nil},
		{name: "comment behind a rule", text: "A B r # c\n", errors: []string{"f:1:7: '#' (0x23) behind a rule"}},
		{name: "comment behind four columns", text: "A B r w # c\n", errors: []string{"f:1:9: '#' (0x23) behind a rule"}},
		{name: "comment in place of access", text: "A B # c\n", errors: []string{"f:1:5: '#' (0x23) behind a rule"}},
		{name: "comment that is a rule elsewhere", text: "# foo rwx\n", warnings: []string{"1:1 comment"}},
		{name: "rule made a comment", text: " #A B rwx\n#A B r w\n", warnings: []string{"1:2 comment", "2:1 comment"}},
		{name: "rule that is a comment elsewhere", text: ";A B r\n", rules: []string{";A B r"}, warnings: []string{"1:1 comment"}},

		{name: "joined files", text: "A B rw~APP~ C r\n", errors: []string{`f:1:7: access "rw~APP~": '~' (0x7e)`}},
		{name: "NUL", text: "A B r\x00\n", errors: []string{"f:1:6: access \"r\\x00\": NUL (0x00)"}},
		{name: "NUL in a label", text: "A\x00 B r\n", errors: []string{"f:1:2: label \"A\\x00\": NUL (0x00)"}},
		{name: "byte order mark", text: "\xef\xbb\xbfA B r\nA B 7\n", errors: []string{"f:1:1: the text begins with a byte order mark (ef bb bf, UTF-8)", "f:2:5: access"}},
		{name: "UTF-16", text: "\xff\xfeA\x00", errors: []string{"f:1:1: the text begins with a byte order mark (ff fe, UTF-16)", "f:1:2: label"}},
		{name: "line of 4095", text: "A B r" + strings.Repeat(" ", 4090) + "\n", rules: []string{"A B r"}, warnings: []string{"1:1 long-line"}},
		{name: "line of 4096", text: "A B r\nA C r" + strings.Repeat(" ", 4091) + "\nA D 7\n", errors: []string{"f:2:4096: the line has 4096 bytes, at most 4095", "f:3:5: access"}},

		{name: "subject star", text: "* B r\n", rules: []string{"* B r"}, warnings: []string{"1:1 dead"}},
		{
			name: "without effect", text: "X X r\nX * w\nX _ rx\n^ X r\n@ X r\nX @ w\nX _ l\n* @ r\n", rules: []string{"* @ r", "@ X r", "X * w", "X @ w", "X X r", "X _ l", "^ X r"},
			warnings: []string{"3:1 dead", "7:1 duplicate", "8:1 dead", "5:1 dead", "2:1 dead", "6:1 dead", "1:1 dead", "7:1 dead", "4:1 dead"},
		},
		{name: "hardly any effect", text: "X * rwt\n", rules: []string{"X * rwt"}, warnings: []string{"1:1 partly-dead"}},
		{name: "with an effect", text: "X _ rl\nX _ w\n^ X rl\nX ? r\n? X r\nX _ -\n", rules: []string{"? X r", "X ? r", "X _ -", "^ X rl"}, warnings: []string{"2:1 duplicate", "6:1 duplicate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, warnings, err := ParseRules("f", []byte(c.text))
			if len(c.errors) > 0 {
				var ps Problems
				if !errors.As(err, &ps) || len(ps) != len(c.errors) {
					t.Fatalf("errors %v, want %q", err, c.errors)
				}
				for i, p := range ps {
					if !strings.HasPrefix(p.Error(), c.errors[i]) || p.Err == nil {
						t.Errorf("error %q, want %q", p.Error(), c.errors[i])
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(s); !slices.Equal(got, c.rules) {
				t.Errorf("rules %q, want %q", got, c.rules)
			}
			got := warned(warnings)
			slices.Sort(got)
			slices.Sort(c.warnings)
			if !slices.Equal(got, c.warnings) {
				t.Errorf("warnings %q, want %q", got, c.warnings)
			}
		})
	}
}

func TestTextBothPlaces(t *testing.T) {
	b := NewBuilder("")
	l := b.Layer("l", AllAccess)
	for _, f := range []struct{ name, text string }{{"one", "\n# c\n  A B r\n"}, {"two", "X Y r\nA B w\n"}} {
		if err := l.Text(f.name, []byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	_, warnings, err := b.Build()
	if err != nil || len(warnings) != 1 {
		t.Fatalf("%v, %v", warnings, err)
	}
	w := warnings[0]
	if w.Place != (Place{"two", 2, 1}) || w.Other != (Place{"one", 3, 3}) {
		t.Errorf("places %s and %s", w.Place, w.Other)
	}
	if want := "two:2:1: the rule A B w replaces r of one:3:3: the last one wins"; w.Error() != want {
		t.Errorf("%q, want %q", w.Error(), want)
	}
	if at, ok := b.FirstUse("Y"); !ok || at != (Place{"two", 1, 1}) {
		t.Errorf("Y is used at %s first", at)
	}
	if _, ok := b.FirstUse("Z"); ok {
		t.Error("Z is not used")
	}
}

// A text in a block of another file has its places in that file.
func TestTextAt(t *testing.T) {
	b := NewBuilder("")
	l := b.Layer("l", AllAccess)
	if err := l.TextAt(Place{"p.yaml", 10, 5}, []byte("A B r\n# foo rwx\n  A B w\n")); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := b.Build()
	if err != nil || !slices.Equal(warned(warnings), []string{"11:5 comment", "12:7 duplicate"}) || warnings[1].Other != (Place{"p.yaml", 10, 5}) {
		t.Errorf("%v, %v", warnings, err)
	}
	if err := l.TextAt(Place{"p.yaml", 10, 5}, []byte("A B r\nA a/b r\n")); err == nil || !strings.HasPrefix(err.Error(), "p.yaml:11:8: label") {
		t.Error(err)
	}
}

func TestTextBounds(t *testing.T) {
	_, _, err := ParseRules("f", []byte(strings.Repeat("A B 7\n", 5*MaxProblems)))
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != MaxProblems+1 || !errors.Is(err, ErrAccess) {
		t.Errorf("%d errors, want %d", len(ps), MaxProblems+1)
	}
	_, warnings, err := ParseRules("f", []byte(strings.Repeat("A B r\n", 5*MaxProblems)))
	if err != nil || len(warnings) != MaxProblems+1 || warnings[MaxProblems].Text != "399 more warnings of the kind duplicate" {
		t.Errorf("%d warnings, the last %v; want %d (%v)", len(warnings), warnings[len(warnings)-1], MaxProblems+1, err)
	}
	b := NewBuilder("")
	l := b.Layer("l", AllAccess)
	if err := l.Text("bad", []byte("A B 7")); err == nil {
		t.Error("a bad text is taken")
	}
	if err := l.Text("good", []byte("A B r")); err != nil {
		t.Error(err)
	}
	if _, _, err := b.Build(); !errors.Is(err, ErrAccess) {
		t.Errorf("a policy is built without the text that was refused: %v", err)
	}
	// The memory set aside is bounded by the rules that fit, not by the lines.
	b = NewBuilder("")
	l = b.Layer("l", AllAccess)
	if err := l.Text("blank", bytes.Repeat([]byte("\n"), 1<<20)); err != nil || cap(l.rules) > 1<<20/5 {
		t.Errorf("room for %d rules in %d blank lines (%v)", cap(l.rules), 1<<20, err)
	}
	var text strings.Builder
	for i := range MaxLabels {
		fmt.Fprintf(&text, "S L%d r\n", i)
	}
	if _, _, err := ParseRules("f", []byte(text.String())); !errors.Is(err, ErrLimit) || !strings.HasPrefix(err.Error(), "f:65535:1: more than 65535 labels") {
		t.Errorf("too many labels: %v", err)
	}
}

func TestTextHandled(t *testing.T) {
	b := NewBuilder("")
	l := b.Layer("ceiling", Read|Execute)
	err := l.Text("f", []byte("A B rx\nA B rw\nA B r a\n"))
	want := "f:2:5: layer \"ceiling\" does not handle w, so its rules cannot name it\nf:3:5: layer \"ceiling\" does not handle a, so its rules cannot name it"
	if !errors.Is(err, ErrInvalid) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Parsing allocates for the text as a whole, not for its rules.
func TestTextAllocations(t *testing.T) {
	per := func(rules int) float64 {
		text := smacktest.Shape{Rules: rules, Labels: 500, Seed: 7}.Text()
		return testing.AllocsPerRun(5, func() {
			b := NewBuilder("")
			if err := b.Layer("l", AllAccess).Text("f", text); err != nil {
				t.Error(err)
			}
		})
	}
	few, many := per(3000), per(17000)
	if many > few+2 || many > 60 {
		t.Errorf("%v allocations for 17000 rules, %v for 3000", many, few)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("A B rwx\n# c\nA B r w\n_ ^ -\n"))
	f.Add([]byte("\xef\xbb\xbfA B r\r\n; a b\n# foo rwx\nA\x00 B r"))
	f.Add(smacktest.Shape{Rules: 30, Labels: 10, Seed: 1}.Text())
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _, err := ParseRules("f", text)
		if err != nil {
			return
		}
		// What was read is what would be written.
		var out []byte
		for r := range s.All() {
			out = r.Append(out)
		}
		again, warnings, err := ParseRules("f", out)
		if err != nil {
			t.Fatalf("%q is not read again: %v", out, err)
		}
		if hash := slices.ContainsFunc(warnings, func(p Problem) bool { return p.Code == WarnComment && strings.Contains(p.Text, "is a comment") }); hash {
			t.Fatalf("%q: a rule became a comment", out)
		}
		if !again.Difference(s).Empty() || again.Len() != s.Len() {
			t.Fatalf("%q became %q", text, out)
		}
	})
}
