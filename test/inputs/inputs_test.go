// Package inputs_test holds what users of Landlock's tools have reported: the
// policies and operations that went wrong elsewhere, each with what policyd
// makes of it. testdata/reports.yaml is PolicyTest documents, decided and
// performed on kernels; the tables here are about the text of a policy.
// docs/proof.md tells for every report the test that holds it.
//
// It holds tests alone, and imports the policy language, what runs policy
// tests and the harness of kernels.
package inputs_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/policytest"
	"policyd.dev/policyd/internal/testkernel"
)

// performArg makes this program the process that performs operations.
const performArg = "inputs-perform"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == performArg {
		if err := policytest.Perform(os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestReports decides and performs the documents of testdata. A reason that
// begins with [CODE] wants that note in the answer.
func TestReports(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		const name = "testdata/reports.yaml"
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tests, err := policytest.Load([]*apiv1.SourceFile{{Name: name, Content: text}})
		if err != nil {
			t.Fatal(err)
		}
		r := &policytest.Runner{Performer: []string{os.Args[0], performArg}, Support: landlock.Probe()}
		began := time.Now()
		var results []*policytest.Result
		for _, test := range tests {
			res, err := r.Run(t.Context(), test)
			if err != nil {
				t.Fatal(err)
			}
			for i := range res.Expectations {
				checkNote(t, res.Name, &res.Expectations[i])
			}
			results = append(results, res)
		}
		report := policytest.NewReport(results, time.Since(began))
		var out bytes.Buffer
		if err := policytest.WriteText(&out, report, true, func(s string, _ policytest.Status) string { return s }); err != nil {
			t.Fatal(err)
		}
		if !report.Good() || report.Summary.Passed <= 3*report.Summary.Skipped {
			t.Errorf("%s", out.Bytes())
		} else {
			t.Logf("%s", out.Bytes())
		}
	})
}

func checkNote(t *testing.T, test string, x *policytest.Expectation) {
	t.Helper()
	code, _, ok := strings.Cut(strings.TrimPrefix(x.Reason, "["), "]")
	if !ok || x.Answer == nil {
		return
	}
	if !slices.ContainsFunc(x.Answer.Notes, func(n decide.Note) bool { return n.Code == code && n.Text != "" }) {
		t.Errorf("%s: %s: no note %s among %v", test, x.Op, code, x.Answer.Notes)
	}
}

const head = "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: x}\nspec:\n  abi: 7\n"

// TestTexts: what is an error in a policy, or a warning, and where.
func TestTexts(t *testing.T) {
	for _, tt := range []struct {
		name, spec string
		code       string
		line       uint32
		error      bool
	}{
		{"port 65536", "  layers:\n    - ports:\n        - {allow: [bind_tcp], port: [65536]}\n", "bad-port", 8, true},
		{"port 70000", "  layers:\n    - ports:\n        - {allow: [bind_tcp], port: [70000]}\n", "bad-port", 8, true},
		{"port -1", "  layers:\n    - ports:\n        - {allow: [bind_tcp], port: [-1]}\n", "bad-port", 8, true},
		{"port that is 80 in 32 bits", "  layers:\n    - ports:\n        - {allow: [bind_tcp], port: [4294967376]}\n", "bad-port", 8, true},
		{"nothing handled", "  layers:\n    - handles: {}\n", "handles-nothing", 7, true},
		{"a rule that denies", "  layers:\n    - paths:\n        - {allow: [read], at: [/home]}\n        - {allow: [], at: [/home/u/.ssh]}\n", "empty-allow", 9, true},
		{"no layer", "  layers: []\n", "missing-key", 5, true},
		{"moves denied by a layer that does not say so", "  layers:\n    - handles: {fs: [make_block, make_char]}\n", "implicit-refer", 7, false},
		{"a file that an editor replaces", "  layers:\n    - paths:\n        - {allow: [read, execute], at: [/usr]}\n        - {allow: [modify], at: [/etc]}\n        - {allow: [read_file], at: [/etc/hosts]}\n", "file-in-writable-folder", 10, false},
		{"paths of whoever makes the rules", "  layers:\n    - paths:\n        - {allow: [read, execute], at: [/usr, /proc/self]}\n", "proc-self", 8, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := policy.Parse("x.yaml", []byte(head+tt.spec))
			var found []*apiv1.Finding
			var bad *policy.Errors
			switch {
			case errors.As(err, &bad):
				found = bad.Findings()
			case err != nil:
				t.Fatal(err)
			default:
				found = policy.Lint(docs[0], nil)
			}
			if tt.error != (err != nil) {
				t.Errorf("error: %v", err)
			}
			if !slices.ContainsFunc(found, func(f *apiv1.Finding) bool { return f.GetCode() == tt.code && f.GetLine() == tt.line }) {
				t.Errorf("no %s in line %d among %v", tt.code, tt.line, found)
			}
		})
	}
}

// TestNewerKernel: on a kernel that knows more than the text, nothing more is
// handled; connecting to a unix socket goes on as before.
func TestNewerKernel(t *testing.T) {
	docs, err := policy.Parse("x.yaml", []byte(strings.Replace(head, "abi: 7", "abi: 6", 1)+"  layers:\n    - paths:\n        - {allow: [all], at: [/]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := policy.Compile(docs[0].Resource.GetLandlockPolicy(), policy.CompileOptions{Document: docs[0]})
	if err != nil {
		t.Fatal(err)
	}
	if fs := c.Profile.Layers[0].FS; fs != profile.Handled(profile.FS, 6) || fs&profile.FSResolveUnix != 0 {
		t.Errorf("handled: %s", profile.FS.Format(fs))
	}
	d, err := decide.New(c.Profile, c.Origins, decide.Options{ABI: 9, Lexical: true})
	if err != nil {
		t.Fatal(err)
	}
	q, err := decide.ParseLine("connect-unix /run/docker.sock")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := d.Answer(q); err != nil || !a.Allowed() {
		t.Errorf("%v, %v", a, err)
	}
}
