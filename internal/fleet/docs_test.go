package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The document shows what the code writes.
func TestDocumentShowsTheFormats(t *testing.T) {
	doc, err := os.ReadFile("../../docs/bundle-format.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest.txt", "pointer.txt", "bundle.hex"} {
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), "```text\n"+string(want)+"```") {
			t.Errorf("docs/bundle-format.md does not show testdata/%s", name)
		}
	}
}
