package server

import (
	"fmt"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
)

// The text of findings holds whole ones, as many as a status has room for, and counts the others.
func TestFindingsText(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		e := &findingsError{}
		for i := range n {
			e.found = append(e.found, &apiv1.Finding{
				Severity: apiv1.Finding_SEVERITY_ERROR, Code: "bad-value", Message: fmt.Sprintf("value %d is bad", i),
				File: "a.yaml", Line: uint32(i + 1), Column: 3, Excerpt: "  value", Field: "spec",
			})
		}
		st, known := toStatus(e, "id")
		text := st.Message()
		if !known || len(text) > maxStatusText || strings.HasSuffix(text, "...") {
			t.Fatalf("%d findings: %d bytes: %q", n, len(text), text)
		}
		told := strings.Count(text, "error: ")
		for _, f := range e.found[:told] {
			if !strings.Contains(text, policy.FormatFinding(f)) {
				t.Errorf("%d findings: %q lacks all of %v", n, text, f)
			}
		}
		if more := fmt.Sprintf("\nand %d more", n-told); (told < n) != strings.HasSuffix(text, more) || (n <= 2) != (told == n) {
			t.Errorf("%d findings: %d told: %q", n, told, text)
		}
	}
}
