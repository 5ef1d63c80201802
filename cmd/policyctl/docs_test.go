package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// file is a file of a document: "`name.yaml`:" and a block of YAML right after it.
var file = regexp.MustCompile("`([a-z]+\\.yaml)`:\n\n```yaml\n((?s:.*?))```\n")

// What the documents show of policyctl is what it prints, of the files they show.
func TestDocumentsShowWhatIsPrinted(t *testing.T) {
	for _, c := range []struct {
		doc   string
		least int // examples that there are
	}{{"decisions.md", 2}, {"semantic-diff.md", 2}} {
		t.Run(c.doc, func(t *testing.T) {
			b, err := os.ReadFile("../../docs/" + c.doc)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			for _, m := range file.FindAllSubmatch(b, -1) {
				if err := os.WriteFile(filepath.Join(".", string(m[1])), m[2], 0o644); err != nil {
					t.Fatal(err)
				}
			}
			examples := shown(string(b))
			if len(examples) < c.least {
				t.Errorf("%d examples, want %d or more", len(examples), c.least)
			}
			t.Setenv("LC_ALL", "C.UTF-8")
			for command, want := range examples {
				var out, errOut bytes.Buffer
				run(strings.Fields(command)[1:], strings.NewReader(""), &out, &errOut)
				if out.String() != want {
					t.Errorf("%s\n%s%swant\n%s", command, out.String(), errOut.String(), want)
				}
			}
		})
	}
}

// shown gives the commands of a document, indented as code, and their output.
func shown(doc string) map[string]string {
	out := map[string]string{}
	command := ""
	for line := range strings.Lines(doc) {
		code, is := strings.CutPrefix(line, "    ")
		switch {
		case is && strings.HasPrefix(code, "$ "):
			command = ""
			if strings.HasPrefix(code, "$ policyctl ") {
				command = strings.TrimSpace(code[2:])
				out[command] = ""
			}
		case command != "" && (is || line == "\n"):
			out[command] += strings.TrimPrefix(line, "    ")
		default:
			command = ""
		}
	}
	for command, text := range out {
		out[command] = strings.TrimRight(text, "\n") + "\n"
	}
	return out
}
