package config

import (
	"strings"
	"testing"
)

// A person who mistypes a key is told the key, not a type of Go.
func TestUnknownKeyIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"roels: []\n":             `f.yaml:1:1: unknown key "roels"`,
		"socket:\n  pathh: /x\n":  `f.yaml:2:3: unknown key "pathh"`,
		"limits: {sandbox: 1}\n":  `f.yaml:1:10: unknown key "sandbox"`,
		"roles: [{roll: user}]\n": `f.yaml:1:10: unknown key "roll"`,
	} {
		_, err := Parse("f.yaml", []byte(text), 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
