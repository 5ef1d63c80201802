package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"policyd.dev/policyd/internal/paths"
)

// What the small reader takes YAML takes too, and reads the same; all it refuses is refused, never misread.
func TestReadKeys(t *testing.T) {
	for _, tc := range []struct{ text, runtime, profile, err string }{
		{"", "", "", ""},
		{"---\n# comment\n\n  # another\nruntime: /usr/sbin/runc   # which\nprofile: web@stable\r\n", "/usr/sbin/runc", "web@stable", ""},
		{"runtime: 'a # b'\nprofile: \"it's\" # c", "a # b", "it's", ""},
		{"runtime:\nprofile: #none", "", "", ""},
		{"profile: web@sha256:0123abcd", "", "web@sha256:0123abcd", ""},
		{"runtime: crun\nruntime: runc", "", "", "there twice"},
		{"runtim: crun", "", "", `no key "runtim"`},
		{"runtime", "", "", "is not"},
		{"runtime:crun", "", "", "is not"},
		{" runtime: crun", "", "", "no key"},
		{"runtime : crun", "", "", "no key"},
		{"- runtime: crun", "", "", "no key"},
		{"{runtime: crun}", "", "", "no key"},
		{"runtime: [crun]", "", "", "quotes"},
		{"runtime: {a: b}", "", "", "quotes"},
		{"runtime: |\n  crun", "", "", "quotes"},
		{"runtime: &x crun", "", "", "quotes"},
		{"runtime: !!str crun", "", "", "quotes"},
		{"runtime: *x", "", "", "quotes"},
		{"runtime: crun --debug", "", "", "quotes"},
		{"runtime: crun:", "", "", "quotes"},
		{"runtime: crun\n  more", "", "", "is not"},
		{"runtime: 'crun", "", "", "do not end"},
		{"runtime: 'it''s'", "", "", "behind its quotes"},
		{`runtime: "a\nb"`, "", "", "backslashes"},
		{"runtime: \"a\tb\"", "", "", "printable"},
		{"runtime: 'a'b", "", "", "behind its quotes"},
		{"runtime: 'a'#b", "", "", "behind its quotes"},
		{"runtime: null", "", "", "no text"},
		{"runtime: Yes", "", "", "no text"},
		{"runtime: 12", "", "", "quotes"},
		{"runtime: .5", "", "", "no text"},
		{"runtime: rünc", "", "", "quotes"},
		{"\ufeffruntime: runc", "", "", "line 1"},
		{"\n# \xff", "", "", "line 2"},
		{"# a\rruntime: runc", "", "", "line 1"},
	} {
		s := &settings{}
		err := readKeys(tc.text, s.keys())
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: %v, want %q", tc.text, err, tc.err)
			}
			continue
		}
		if err != nil || s.Runtime != tc.runtime || s.Profile != tc.profile {
			t.Errorf("%q: %q, %q, %v", tc.text, s.Runtime, s.Profile, err)
		}
	}
}

func FuzzReadKeys(f *testing.F) {
	f.Add("runtime: /usr/bin/crun # x\nprofile: 'web@3'\n")
	f.Add("---\nstate: /a/b\nsocket: unix:///run/x.sock\nselect: bindings")
	f.Add("launcher: ~\n")
	f.Add("profile: web:x\nrecords: a,b=c+d")
	f.Fuzz(func(t *testing.T, text string) {
		s := &settings{}
		if readKeys(text, s.keys()) != nil {
			return
		}
		var want map[string]any
		if err := yaml.Load([]byte(text), &want); err != nil {
			if strings.Contains(err.Error(), "no documents") {
				return // nothing but comments
			}
			t.Fatalf("%q is taken, and YAML says %v", text, err)
		}
		for key, to := range s.keys() {
			v, ok := want[key]
			if got, isText := v.(string); ok && v != nil && (!isText || got != *to) || (!ok || v == nil) && *to != "" {
				t.Fatalf("%q: %s is %q, YAML has %#v", text, key, *to, v)
			}
		}
	})
}

// The file that is installed has every key and root's defaults, and the documentation has every key.
func TestInstalledFile(t *testing.T) {
	text := read(t, "../../deploy/runc.yaml")
	docs := read(t, "../../docs/containers.md")
	s := &settings{file: "runc.yaml"}
	if err := readKeys(text, s.keys()); err != nil {
		t.Fatal(err)
	}
	for key := range s.keys() {
		if !strings.Contains(text, "\n"+key+": ") && !strings.Contains(text, "\n#"+key+": ") {
			t.Errorf("deploy/runc.yaml has no %s", key)
		}
		if !strings.Contains(docs, "\n| `"+key+"` |") {
			t.Errorf("docs/containers.md has no %s", key)
		}
	}
	if os.Geteuid() != 0 || os.Getenv(paths.SocketEnv) != "" {
		return // the defaults are of another user
	}
	defaults := &settings{file: "runc.yaml"}
	if err := errors.Join(s.complete(), defaults.complete()); err != nil {
		t.Fatal(err)
	}
	if *s != *defaults {
		t.Errorf("%+v, the defaults are %+v", s, defaults)
	}
}
