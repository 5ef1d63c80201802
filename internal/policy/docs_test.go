package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocs reads every YAML block of the documentation. A fence says what it is:
//
//	```yaml                      whole documents
//	```yaml layer                keys of one layer, at the newest abi
//	```yaml [layer] wrong: CODE  must be refused with this code
func TestDocs(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, file := range append(files, "../../README.md") {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(src), "\n```yaml")[1:] {
			info, rest, _ := strings.Cut(part, "\n")
			text, _, ok := strings.Cut(rest, "\n```")
			if !ok {
				t.Errorf("%s: block %d has no end", file, i)
				continue
			}
			kind, code, _ := strings.Cut(strings.TrimSpace(info), "wrong: ")
			switch strings.TrimSpace(kind) {
			case "layer":
				text = layerText(11, strings.Split(text, "\n")...)
			case "":
				if !strings.Contains(text, "kind:") {
					continue // another file's YAML, not a document
				}
			default:
				t.Errorf("%s: block %d: unknown fence %q", file, i, info)
			}
			blocks++
			docs, err := Parse(filepath.Base(file), []byte(text))
			if code != "" {
				var e *Errors
				if !errors.As(err, &e) || e.Findings()[0].GetCode() != code {
					t.Errorf("%s: block %d: got %v, want %s", file, i, err, code)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: block %d: %v", file, i, err)
				continue
			}
			if kind == "" {
				for _, d := range docs {
					for _, f := range Lint(d, nil) {
						t.Errorf("%s: block %d: %s", file, i, FormatFinding(f))
					}
				}
			}
		}
	}
	if blocks < 10 {
		t.Errorf("only %d blocks were found", blocks)
	}
}

// TestExamples holds that the examples are formatted, without warnings, and compile.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := Parse(file, src)
		if err != nil {
			t.Error(err)
			continue
		}
		if out, err := Format(src); err != nil || string(out) != string(src) {
			t.Errorf("%s is not formatted: %v", file, err)
		}
		for _, d := range docs {
			for _, f := range Lint(d, WithDocuments(docs, Std())) {
				t.Errorf("%s", FormatFinding(f))
			}
			p := d.Resource.GetLandlockPolicy()
			if p == nil {
				continue
			}
			given := map[string]string{}
			for _, param := range p.GetSpec().GetParameters() {
				given[param.GetName()] = standIn(param)
			}
			if _, err := Compile(p, CompileOptions{Parameters: given, Fragments: WithDocuments(docs, Std()), Document: d}); err != nil {
				t.Error(err)
			}
		}
	}
}
