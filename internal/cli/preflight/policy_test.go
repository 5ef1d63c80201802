package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

// By asks about the file alone, and nothing that is not granted passes for granted.
func TestBy(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"script": "#!" + dir + "/nowhere\n", "granted": "#!" + dir + "/nowhere\n", "library": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(dir+"/library", dir+"/other"); err != nil {
		t.Fatal(err)
	}
	rules := "layers:\n  - name: a\n    paths:\n      - {allow: [execute, read_file], at: [" + dir + "/granted]}\n      - {allow: [read_file], at: [" + dir + "/library]}\n" +
		"  - name: b\n    paths:\n      - {allow: [execute, read_file], at: [" + dir + "/granted]}\n      - {allow: [read_file], at: [" + dir + "/other]}\n"
	layered := compile(t, rules)
	flat := compile(t, "flatten: {always: true, accept: [shared_inodes]}\n"+rules)
	for _, c := range []struct {
		name   string
		p      *profile.Profile
		path   string
		rights profile.Access
		want   string
	}{
		{"granted, its interpreter is not there", layered, "/granted", execRights, ""},
		{"refused", layered, "/script", execRights, "a:[execute read_file] b:[execute read_file] "},
		{"not there", layered, "/gone", execRights, "a:[execute read_file] b:[execute read_file] "},
		{"no program", layered, "", execRights, "a:[execute read_file] b:[execute read_file] "},
		{"two names of one file", layered, "/library", readRights, ""},
		{"two names of one file, flattened", flat, "/library", readRights, "a:[read_file] b:[read_file] "},
		{"granted, flattened", flat, "/granted", execRights, ""},
	} {
		d, err := decide.New(c.p, nil, decide.Options{ABI: profile.MaxABI, Errata: decide.AllErrata()})
		if err != nil {
			t.Fatal(err)
		}
		refused, err := By(d)(dir+c.path, c.rights)
		got := ""
		for _, r := range refused {
			got += r.Layer + ":" + "[" + strings.Join(r.Missing, " ") + "] "
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}
