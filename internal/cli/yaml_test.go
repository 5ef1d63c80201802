package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func TestYAMLForm(t *testing.T) {
	const in = `{"b":1,"a":{"list":["x",{"k":null,"m":[]}],"none":{}},"big":"18446744073709551615","n1":-2.5e3,"on":"on","t":true,"time":"12:30"}`
	const want = `b: 1
a:
  list:
    - x
    - k: null
      m: []
  none: {}
big: "18446744073709551615"
n1: -2.5e3
"on": "on"
t: true
time: "12:30"
`
	var out bytes.Buffer
	if err := writeJSON(&out, YAML, []byte(in)); err != nil || out.String() != want {
		t.Errorf("%v:\n%s\nwant:\n%s", err, out.String(), want)
	}
}

// What is read again is what was written, whatever strings hold.
func TestYAMLKeepsValues(t *testing.T) {
	for _, s := range []string{
		"", " ", "null", "~", "true", "No", "y", "0x10", "1e3", "012", "0o7", "1_000", ".inf", "2026-11-30", "12:30", "=", "<<", "- a", "a: b", "a #b", "#", "*a", "&a", "!t",
		"%a", "@a", "`a", "{", "[", "'", `"`, `\`, "|", ">", "?", "a\nb", "a\n", "\n", "\ta", "a\tb", " a", "a ", "\x00", "\x1b[0m", "\u0085", "\u2028", "\ufeff", "é", "\U0001f600", strings.Repeat("long words ", 40), "\r\n", "---", "...",
	} {
		value := map[string]any{"k": s, "list": []any{s, map[string]any{s: s}}}
		var out bytes.Buffer
		if err := WriteValue(&out, YAML, value); err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		var got map[string]any
		if err := yaml.Load(out.Bytes(), &got); err != nil {
			t.Errorf("%q: %v\n%s", s, err, out.String())
			continue
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(value)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%q: %s, want %s:\n%s", s, a, b, out.String())
		}
	}
}
