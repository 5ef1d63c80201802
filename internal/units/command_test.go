package units

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

func TestParseCommands(t *testing.T) {
	for _, tc := range []struct {
		line string
		want []Command
	}{
		{"/bin/x", []Command{{"", "/bin/x", "/bin/x", ""}}},
		{"  /bin/x  -g   'daemon off;'  ", []Command{{"", "/bin/x", "/bin/x", "-g 'daemon off;'"}}},
		{"-@:/bin/x y $A ${B} %i", []Command{{"-:", "/bin/x", "y", "$A ${B} %i"}}},
		{"+/bin/x", []Command{{"+", "/bin/x", "/bin/x", ""}}},
		{"!!/bin/x a", []Command{{"!!", "/bin/x", "/bin/x", "a"}}},
		{"!-/bin/x a", []Command{{"!-", "/bin/x", "/bin/x", "a"}}},
		{`"-/opt/a b" c`, []Command{{"-", "/opt/a b", `"/opt/a b"`, "c"}}},
		{`/opt/a\x20b c`, []Command{{"", "/opt/a b", `"/opt/a b"`, "c"}}},
		{`/bin/x a"b c"d 'e"f' \"g`, []Command{{"", "/bin/x", "/bin/x", `a"b c"d 'e"f' \"g`}}},
		{"/bin/a 1 ; /bin/b 2 ; -/bin/c", []Command{{"", "/bin/a", "/bin/a", "1"}, {"", "/bin/b", "/bin/b", "2"}, {"-", "/bin/c", "/bin/c", ""}}},
		{`find / -exec x \; "; y" a; ;`, []Command{{"", "find", "find", `/ -exec x \; "; y" a;`}}},
		{"; /bin/a", []Command{{"", "/bin/a", "/bin/a", ""}}},
		{"%h/bin/x", []Command{{"", "%h/bin/x", "%h/bin/x", ""}}},
		{`/bin/$X`, []Command{{"", "/bin/$X", "/bin/$X", ""}}},
		{"", nil},
	} {
		got, err := ParseCommands(tc.line)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%q: %+v, %v; want %+v", tc.line, got, err, tc.want)
		}
	}
	for _, line := range []string{
		`/bin/x "a`, `/bin/x 'a`, `/bin/x a\`, "--/bin/x", "-", "@/bin/x", "@/bin/x ; /bin/y", "bin/x", "/bin/", "|/bin/x", "|x", "+!/bin/x", `"/bin/a\nb"`, `/bin/x \x00`, "..",
	} {
		if got, err := ParseCommands(line); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
}

func TestParseFile(t *testing.T) {
	text := "\ufeff# c\n[Unit]\nDescription=x \\\n# in between\n  y\n[Service]\nExecStart = /bin/a \\\\\nExecStart=/bin/b 1 \\\n  2 \\\n; c\n 3\nnonsense\nExecStart=/bin/c \\"
	got, err := ParseFile("f", text)
	want := []Setting{
		{"Unit", "Description", "x    y", "f", 3},
		{"Service", "ExecStart", `/bin/a \\`, "f", 7},
		{"Service", "ExecStart", "/bin/b 1    2   3", "f", 8},
		{"Service", "ExecStart", "/bin/c", "f", 13},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	c, err := Commands(append(got, Setting{"Service", "ExecStart", "", "g", 1}, Setting{"Service", "ExecStart", "/bin/d", "g", 2}, Setting{"Install", "ExecStart", "/no", "g", 3}), "ExecStart")
	if err != nil || len(c) != 1 || c[0].Program != "/bin/d" {
		t.Errorf("reset: %+v, %v", c, err)
	}
	if _, err := Commands([]Setting{{"Service", "ExecStart", "x/y", "g", 4}}, "ExecStart"); err == nil || !strings.Contains(err.Error(), "g:4: ExecStart: ") {
		t.Errorf("%v", err)
	}
	got, err = ParseFile("f", "# c\rExecStart=/bin/a\r\n[Service]\r\nExecStart=/bin/b \\\r\n 1\n\rx=1\n\n")
	if want := []Setting{{"", "ExecStart", "/bin/a", "f", 2}, {"Service", "ExecStart", "/bin/b   1", "f", 4}, {"Service", "x", "1", "f", 6}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("other ends of lines: %v, %v; want %v", got, err, want)
	}
}

func TestThrough(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"/bin/x $A", `/usr/bin/policyd-launch unit --unit "a\\x2db.service" --program /bin/x -- /bin/x $A`},
		{"-:@/bin/$x y", `-:/usr/bin/policyd-launch unit --unit "a\\x2db.service" --program /bin/$x -- y`},
		{"/bin/$x", `/usr/bin/policyd-launch unit --unit "a\\x2db.service" --program /bin/$$x -- /bin/$x`},
		{`!"/bin/a b" \;`, `!/usr/bin/policyd-launch unit --unit "a\\x2db.service" --program "/bin/a b" -- "/bin/a b" \;`},
	} {
		c, err := ParseCommands(tc.line)
		if err != nil {
			t.Fatal(err)
		}
		if got := c[0].through("/usr/bin/policyd-launch", []string{"--unit", `a\x2db.service`}); got != tc.want {
			t.Errorf("%q\n%s\n%s", tc.line, got, tc.want)
		}
	}
	if got := literal("50% of $x", true); got != `"50%% of $$x"` {
		t.Error(got)
	}
}

// values is what systemd makes of a command, but for specifiers and variables.
func values(t *testing.T, c Command) []string {
	t.Helper()
	var out []string
	for rest := c.Argv0 + " " + c.Rest; strings.Trim(rest, space) != ""; {
		_, v, after, err := argument(strings.TrimLeft(rest, space))
		if err != nil {
			t.Fatal(err)
		}
		out, rest = append(out, v), after
	}
	return out
}

// Whatever the line is, the launcher's line is one command with the prefixes of the
// program's, and what stands behind -- is the program's arguments.
func FuzzCommands(f *testing.F) {
	for _, s := range []string{"/bin/x", `-@:/bin/x y "a b" 'c' \; d ; /bin/y`, `"+/opt/a b" \x20\u00e9\U0001F600\101`, "%h/x $A ${B}", "; ;", "!!x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n\x00") {
			return
		}
		all, err := ParseCommands(line)
		if err != nil {
			return
		}
		for _, c := range all {
			again, err := ParseCommands(c.String())
			if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], c) {
				t.Fatalf("%q: %q is read as %+v, %v; want %+v", line, c.String(), again, err, c)
			}
			text := c.through("/usr/bin/policyd-launch", []string{"--unit", "x.service"})
			got, err := ParseCommands(text)
			if err != nil || len(got) != 1 || got[0].Prefix != c.Prefix || got[0].Program != "/usr/bin/policyd-launch" {
				t.Fatalf("%q: %q is read as %+v, %v", line, text, got, err)
			}
			program := c.Program
			if c.expands() {
				program = strings.ReplaceAll(program, "$", "$$")
			}
			want := append([]string{"/usr/bin/policyd-launch", "unit", "--unit", "x.service", "--program", program, "--"}, values(t, c)...)
			if v := values(t, got[0]); !reflect.DeepEqual(v, want) {
				t.Fatalf("%q: %q; want %q", line, v, want)
			}
		}
	})
}
