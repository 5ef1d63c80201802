package metrics

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

const (
	docPath  = "../../docs/metrics.md"
	docBegin = "<!-- made from the table of internal/metrics: go test ./internal/metrics -run TestDocument -update -->\n"
	docEnd   = "<!-- end of the table -->\n"
)

// What docs/metrics.md lists is the table.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), docBegin)
	_, tail, ok2 := strings.Cut(rest, docEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks %q or %q", docPath, docBegin, docEnd)
	}
	want := head + docBegin + document() + docEnd + tail
	if *update {
		if err := os.WriteFile(docPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(b) != want {
		t.Errorf("%s is not the table of this package: go test ./internal/metrics -run TestDocument -update", docPath)
	}
}

func document() string {
	var b strings.Builder
	b.WriteString("\n| metric | kind | labels | meaning |\n|---|---|---|---|\n")
	for _, d := range Table() {
		var labels []string
		for _, l := range d.Labels {
			labels = append(labels, fmt.Sprintf("`%s`: %s", l.Name, l.Values))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, strings.Join(labels, "; "), d.Help)
	}
	var bounds []string
	for _, s := range fast {
		bounds = append(bounds, strconv.FormatFloat(s, 'g', -1, 64))
	}
	fmt.Fprintf(&b, "\nThe bounds of histograms, seconds: %s.\n\n", strings.Join(bounds, ", "))
	return b.String()
}
