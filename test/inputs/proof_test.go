package inputs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProofNamesTests holds that every test docs/proof.md names is there: in a
// package's tests a function of that name, and the case in its tests or testdata.
func TestProofNamesTests(t *testing.T) {
	doc, err := os.ReadFile("../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/0-9]+): (Test[A-Za-z]+)(?:: ([^`]+))?`").FindAllStringSubmatch(string(doc), -1)
	if len(named) < 60 {
		t.Fatalf("%d tests are named", len(named))
	}
	texts := map[string]string{}
	for _, n := range named {
		pkg, test, which := n[1], n[2], n[3]
		if texts[pkg] == "" {
			texts[pkg] = sources(t, "../../"+pkg)
		}
		if !strings.Contains(texts[pkg], "\nfunc "+test+"(t *testing.T)") {
			t.Errorf("%s has no %s", pkg, test)
		}
		is := regexp.MustCompile(`(?m)(^== |["{(, ])` + regexp.QuoteMeta(which) + `($|["} ,:])`)
		if which != "" && !is.MatchString(texts[pkg]) {
			t.Errorf("%s: %s has no %q", pkg, test, which)
		}
	}
	for row := range strings.Lines(string(doc)) {
		if strings.HasPrefix(row, "| ") && strings.Count(row, "#") > 0 && !strings.Contains(row, ": Test") {
			t.Errorf("held by nothing: %s", row)
		}
	}
}

// sources are a package's tests and what they read, in one text.
func sources(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range []string{"*_test.go", "testdata/*.txt", "testdata/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString("\n" + string(text))
		}
	}
	return b.String()
}
