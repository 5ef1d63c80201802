package server

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/store"
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

// Tests beside a policy are checked and left out; alone there is nothing to store.
func TestTestsAreNotStored(t *testing.T) {
	e := start(t, nil)
	test := []byte("apiVersion: policyd/v1\nkind: PolicyTest\nmetadata: {name: web}\nspec:\n  expect: [{op: open / r, verdict: allow}]\n")
	resp, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(echoPolicy("web"), test)})
	if err != nil {
		t.Fatal(err)
	}
	if r := resp.GetResults(); len(r) != 1 || r[0].GetVersion().GetKind() != store.KindLandlockPolicy {
		t.Errorf("stored %v", r)
	}
	left := 0
	for _, f := range resp.GetFindings() {
		if f.GetCode() == "not-stored" && f.GetSeverity() == apiv1.Finding_SEVERITY_WARNING && f.GetFile() == "file1.yaml" {
			left++
		}
	}
	if left != 1 {
		t.Errorf("findings %v", resp.GetFindings())
	}
	_, err = e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(test)})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
	if val, err := e.policy.Validate(e.ctx(), &apiv1.ValidateRequest{Files: files(test)}); err != nil || len(val.GetFindings()) != 1 {
		t.Errorf("validate: %v, %v", val, err)
	}
	bad := []byte(strings.Replace(string(test), "allow", "alow", 1))
	_, err = e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(echoPolicy("other"), bad)})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
}
