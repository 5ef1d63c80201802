package policytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// TestDocs runs the examples of docs/policy-tests.md and holds their output.
func TestDocs(t *testing.T) {
	src, err := os.ReadFile("../../docs/policy-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(yaml|console)\n(.*?)```").FindAllStringSubmatch(string(src), -1)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("notes.yaml", blocks[0][2])
	write("notes.test.yaml", blocks[1][2])
	wrong := strings.Replace(blocks[1][2], "{op: connect tcp 80, verdict: deny}", "{op: connect tcp 80, verdict: allow, reason: updates}", 1)
	if wrong == blocks[1][2] {
		t.Fatal("the example has no port 80")
	}
	write("wrong.test.yaml", wrong)
	for _, block := range blocks[2:4] {
		command, want, _ := strings.Cut(block[2], "\n")
		name := strings.TrimPrefix(command, "$ policyctl test ")
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		tests, err := Load([]*apiv1.SourceFile{{Name: filepath.Join(dir, name), Content: b}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&Runner{}).Run(t.Context(), tests[0])
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		if err := WriteText(&got, NewReport([]*Result{res}, 10_000_000), false, plain); err != nil {
			t.Fatal(err)
		}
		if text := strings.ReplaceAll(got.String(), dir+"/", ""); text != want {
			t.Errorf("%s gives\n%s", command, text)
		}
	}
}
