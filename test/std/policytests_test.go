package std

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/policytest"
	"policyd.dev/policyd/internal/testkernel"
)

// performArg makes this test's program the process that performs operations.
const performArg = "policytest-perform"

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

// runPolicyTests runs every test in a folder.
func runPolicyTests(t *testing.T, folder string, r *policytest.Runner) *policytest.Report {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", folder, files, err)
	}
	var sources []*apiv1.SourceFile
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := policy.Format(b); err != nil || !bytes.Equal(out, b) {
			t.Errorf("%s is not formatted: %v", f, err)
		}
		sources = append(sources, &apiv1.SourceFile{Name: f, Content: b})
	}
	tests, err := policytest.Load(sources)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var results []*policytest.Result
	for _, test := range tests {
		res, err := r.Run(t.Context(), test)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, res)
	}
	report := policytest.NewReport(results, time.Since(began))
	var text bytes.Buffer
	if err := policytest.WriteText(&text, report, false, func(s string, _ policytest.Status) string { return s }); err != nil {
		t.Fatal(err)
	}
	if !report.Good() {
		t.Errorf("%s", text.Bytes())
	} else {
		t.Logf("%s", text.Bytes())
	}
	return report
}

var testFolders = []string{"tests", "../../docs/examples/tests"}

// TestPolicyTests: shipped fragments and examples answer what their tests expect, and no rule of them is untested.
func TestPolicyTests(t *testing.T) {
	touched := map[string]bool{}
	examples := map[string]bool{}
	for _, folder := range testFolders {
		report := runPolicyTests(t, folder, &policytest.Runner{})
		if report.Summary.Skipped > 0 {
			t.Errorf("%s: nothing is to be skipped where nothing is performed", folder)
		}
		for _, c := range report.Coverage {
			for _, r := range c.Untouched() {
				t.Errorf("%s: %s: untouched %s", folder, c.Policy, r.Place())
			}
			for _, r := range c.Rules {
				if folder == "tests" && c.Policy == "std-"+filepath.Base(r.Fragment) {
					touched[r.Fragment+" "+r.Field] = r.Touched
				}
			}
			examples[c.Policy] = true
		}
	}
	for rule, ok := range touched {
		if !ok {
			t.Errorf("no test of the fragment touches %s", rule)
		}
	}
	for _, d := range policy.StdFragments() {
		if !examples["std-"+filepath.Base(d.Name)] {
			t.Errorf("%s has no tests", d.Name)
		}
	}
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := policy.Parse(f, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if d.Kind == policy.KindPolicy && !examples[d.Name] {
				t.Errorf("%s: %s has no tests", f, d.Name)
			}
		}
	}
}

// TestPolicyTestsEnforced: the kernels do what the tests say.
func TestPolicyTestsEnforced(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		if err := loopbackUp(); err != nil {
			t.Logf("loopback: %v", err)
		}
		for _, folder := range testFolders {
			report := runPolicyTests(t, folder, &policytest.Runner{Performer: []string{os.Args[0], performArg}, Support: landlock.Probe()})
			if report.Summary.Passed <= report.Summary.Skipped {
				t.Errorf("%s: %d passed, %d skipped: nothing is proven", folder, report.Summary.Passed, report.Summary.Skipped)
			}
		}
	})
}
