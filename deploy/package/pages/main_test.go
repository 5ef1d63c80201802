package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// escapes are roff's, of the characters that stand in flags and keys.
var escapes = strings.NewReplacer(`\-`, "-", `\.`, ".", `\&`, "", `\fB`, "", `\fR`, "", `\fP`, "", `\fI`, "", `\(aq`, "'", `\\`, `\`)

// programs builds those that are asked for their help.
func programs(t *testing.T) string {
	t.Helper()
	t.Chdir("../../..") // pages are made from the root of the checkout
	dir := t.TempDir()
	args := []string{"build", "-o", dir + "/"}
	for _, p := range pages {
		if p.program != "" {
			args = append(args, "./cmd/"+p.program)
		}
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// Every program, every flag and every key of the configuration is in a page.
func TestPages(t *testing.T) {
	bin, out := programs(t), t.TempDir()
	if err := write(bin, "1.2.3", time.Unix(1700000000, 0).UTC(), out); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(out, path))
		if err != nil {
			t.Fatal(err)
		}
		return escapes.Replace(string(b))
	}
	commands, err := os.ReadDir("cmd")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range commands {
		if p.Name() == "policyctl" {
			continue
		}
		read("man8/" + p.Name() + ".8")
	}
	for _, p := range []string{"policyd", "policyd-nri"} {
		help, err := helpOf(filepath.Join(bin, p))
		if err != nil {
			t.Fatal(err)
		}
		flags := regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(help, -1)
		if len(flags) == 0 {
			t.Errorf("%s has no flags: %s", p, help)
		}
		text := read("man8/" + p + ".8")
		for _, f := range flags {
			if !strings.Contains(text, f) {
				t.Errorf("%s(8) lacks %s", p, f)
			}
		}
	}
	doc, err := os.ReadFile("docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	text := read("man5/policyd.yaml.5")
	keys := regexp.MustCompile("(?m)^\\| `([a-zA-Z.\\[\\]]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(keys) < 20 {
		t.Errorf("%d keys in docs/configuration.md", len(keys))
	}
	for _, k := range keys {
		if !strings.Contains(text, k[1]) {
			t.Errorf("policyd.yaml(5) lacks %s", k[1])
		}
	}
	for _, page := range []string{text, read("man8/policyd.8"), read("man8/policyd-runc.8")} {
		if !strings.Contains(page, "policyd 1.2.3") || !strings.Contains(page, "November 2023") {
			t.Errorf("a page without version and date: %.300s", page)
		}
		if strings.Contains(page, "](") || strings.Contains(page, "<!--") {
			t.Error("a page has marks of Markdown")
		}
	}
}

func TestDocument(t *testing.T) {
	got := document("# A title\n\nSee [the runbook](runbook.md#x).\n<!-- made -->\n\n## Part\n\n### Piece\n")
	if want := "# A TITLE\n\nSee the runbook.\n\n# PART\n\n## Piece\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTablesAreLists(t *testing.T) {
	got := document("before\n\n| key | default | meaning |\n|---|---|---|\n| `a.b` | `off` | one \\| two |\n| `c` | | three |\n\nafter\n")
	if want := "before\n\n\n`a.b`\n: default: `off`. one | two\n\n`c`\n: three\n\n\nafter\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A version is ordered by Debian and RPM as it is meant; dpkg is asked where it is there.
func TestVersions(t *testing.T) {
	script, err := filepath.Abs("../version.sh")
	if err != nil {
		t.Fatal(err)
	}
	make := func(described string) (string, error) {
		out, err := exec.Command("bash", script, described, "462").CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	// In ascending order.
	ordered := [][2]string{
		{"abc1234", "0.0.0+462.gabc1234"},
		{"abc1234-dirty", "0.0.0+462.gabc1234.dirty"},
		{"v1.4.0-rc.1", "1.4.0~rc.1"},
		{"v1.4.0-rc.1-3-gabc1234", "1.4.0~rc.1+3.gabc1234"},
		{"v1.4.0-rc.2", "1.4.0~rc.2"},
		{"v1.4.0", "1.4.0"},
		{"v1.4.0-dirty", "1.4.0+dirty"},
		{"v1.4.0-7-gabc1234", "1.4.0+7.gabc1234"},
		{"v1.4.0-12-gabc1234-dirty", "1.4.0+12.gabc1234.dirty"},
		{"v1.4.1", "1.4.1"},
		{"1.10.0", "1.10.0"},
	}
	var before string
	for _, c := range ordered {
		got, err := make(c[0])
		if err != nil || got != c[1] {
			t.Errorf("%s: %s, want %s (%v)", c[0], got, c[1], err)
		}
		if again, err := make(got); err != nil || (again != got && !strings.HasSuffix(got, "dirty")) {
			t.Errorf("%s again: %s (%v)", got, again, err)
		}
		// +dirty comes after +7 by dpkg's rules: letters sort behind digits. It is for nobody else than its builder.
		if dpkg, err := exec.LookPath("dpkg"); err == nil && before != "" && !strings.HasSuffix(before, "+dirty") {
			if err := exec.Command(dpkg, "--compare-versions", before+"-1", "lt", got+"-1").Run(); err != nil {
				t.Errorf("dpkg: %s is not older than %s", before, got)
			}
		}
		before = got
	}
	for _, bad := range []string{"", "release", "v1.x", "v1.4.0-", "1.0;rm", "gabc"} {
		if got, err := make(bad); err == nil {
			t.Errorf("%q was taken as %q", bad, got)
		}
	}
}
