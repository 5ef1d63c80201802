package smack

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckLabel(t *testing.T) {
	long := strings.Repeat("L", MaxLabel)
	for _, c := range []struct {
		label string
		want  string // a part of the error, "" for none
	}{
		{"_", ""},
		{"^", ""},
		{"System::Run", ""},
		{"S10!#$%&()*+,-.:;<=>?@[]^_`{|}~", ""},
		{"#", ""},
		{"x-", ""},
		{long, ""},
		{long + "L", "has 256 bytes, the kernel takes 255"},
		{"", "empty label"},
		{"-x", `label "-x": '-' (0x2d) at the beginning is kept for options of the kernel`},
		{"-", "kept for options"},
		{"a/b", `label "a/b": '/' (0x2f) cannot stand in a label; the kernel would cut it to "a" without an error`},
		{`a"b`, `'"' (0x22)`},
		{"a'b", "' (0x27)"},
		{`a\b`, `'\' (0x5c)`},
		{"/x", "the kernel refuses it"},
		{"é", "byte 0xc3 (not ASCII)"},
		{"aé", `cut it to "a"`},
		{"a\xa0b", "byte 0xa0 (not ASCII) cannot stand in a label; the kernel would split the label there"},
		{"a\x7f", "DEL (0x7f)"},
		{"a\x01", "control character 0x01"},
		{"a\x00", "NUL (0x00)"},
		{"a b", "space (0x20)"},
		{"a\tb", "tab (0x09)"},
		{"a\r", "carriage return (0x0d)"},
		{"a\n", "control character 0x0a"},
		{long + "/", `'/' (0x2f)`},
	} {
		err := CheckLabel(c.label)
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.label, err)
			}
			continue
		}
		if !errors.Is(err, ErrLabel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q in it", c.label, err, c.want)
		}
		var at *LabelError
		if !errors.As(err, &at) {
			t.Errorf("%q: %T does not say where", c.label, err)
		}
	}
}

func TestBuiltIn(t *testing.T) {
	for _, l := range []string{Floor, Hat, Star, Huh, Web} {
		if !BuiltIn(l) || CheckLabel(l) != nil {
			t.Errorf("%s is a built-in label", l)
		}
	}
	for _, l := range []string{"", "a", "__", "#"} {
		if BuiltIn(l) {
			t.Errorf("%q is no built-in label", l)
		}
	}
}

func TestAccess(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"r", "r", ""},
		{"RWX", "rwx", ""},
		{"rrr", "r", ""},
		{"r-x-", "rx", ""},
		{"bltaxwr", "rwxatlb", ""},
		{"-", "-", ""},
		{"-----", "-", ""},
		{"", "", `write "-" for no access`},
		{"waxbeans", "", `'e' (0x65) is not one of the letters rwxatlb or -; the kernel would stop there without an error and take "wxab"`},
		{"qrw", "", `take "-"`},
		{"7", "", "'7' (0x37)"},
		{"rwV10", "", `take "rw"`},
		{"r w", "", "space (0x20)"},
		{"rw\r", "", "carriage return (0x0d)"},
	} {
		a, err := ParseAccess(c.text)
		if c.err != "" {
			if !errors.Is(err, ErrAccess) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want %q in it", c.text, err, c.err)
			}
			continue
		}
		if err != nil || a.String() != c.want {
			t.Errorf("%q: %s, %v; want %s", c.text, a, err, c.want)
		}
	}
	if Access(0).String() != "-" || AllAccess.String() != "rwxatlb" {
		t.Error("the canonical text is wrong")
	}
}
