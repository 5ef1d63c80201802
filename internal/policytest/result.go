package policytest

import (
	"time"

	"policyd.dev/policyd/internal/cli/decide"
)

// Status of an expectation.
type Status string

// A test that cannot be run has no status of expectations but an error.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped" // not performed, or nothing can be told from it
)

// Want is what an expectation says. Its JSON names are an interface, as all
// here (docs/policy-tests.md): lists are [] when empty.
type Want struct {
	Verdict string   `json:"verdict"` // allow, deny, not_mediated
	Errno   string   `json:"errno"`   // "" is any
	Layers  []string `json:"layers"`
}

// Kernel is what the kernel answered: "success" or the name of an error.
type Kernel struct {
	Under   string `json:"under"`   // under the policy
	Without string `json:"without"` // without it
}

// Expectation is one expectation with what became of it.
type Expectation struct {
	Op     string         `json:"op"` // as it is written in the test
	Line   int            `json:"line"`
	Reason string         `json:"reason"`
	Status Status         `json:"status"`
	Text   string         `json:"text"` // why it failed or was skipped
	Want   Want           `json:"want"`
	Answer *decide.Answer `json:"answer"` // null where there is none
	Kernel *Kernel        `json:"kernel"` // null unless performed
}

// Result is what became of a test.
type Result struct {
	Name         string        `json:"name"`
	File         string        `json:"file"`
	Line         int           `json:"line"`
	Policy       string        `json:"policy"` // as web or web@3
	Error        string        `json:"error"`  // why the test could not be run
	Seconds      float64       `json:"seconds"`
	Expectations []Expectation `json:"expectations"`

	compiled *Compiled
}

// Count gives how many expectations have a status.
func (r *Result) Count(s Status) int {
	n := 0
	for i := range r.Expectations {
		if r.Expectations[i].Status == s {
			n++
		}
	}
	return n
}

// Enforced gives how many expectations passed by the kernel's own answer.
func (r *Result) Enforced() int {
	n := 0
	for i := range r.Expectations {
		if r.Expectations[i].byKernel() {
			n++
		}
	}
	return n
}

func (x *Expectation) byKernel() bool { return x.Status == Passed && x.Kernel != nil }

// Failed tells whether the test failed.
func (r *Result) Failed() bool { return r.Error != "" || r.Count(Failed) > 0 }

// Summary counts over tests.
type Summary struct {
	Tests    int     `json:"tests"`
	Broken   int     `json:"broken"` // tests that could not be run
	Passed   int     `json:"passed"`
	Enforced int     `json:"enforced"` // of those that passed: by the kernel too
	Failed   int     `json:"failed"`
	Skipped  int     `json:"skipped"`
	Seconds  float64 `json:"seconds"`
}

// Report is all that a run gave, the JSON output.
type Report struct {
	Tests    []*Result        `json:"tests"`
	Coverage []PolicyCoverage `json:"coverage"`
	Summary  Summary          `json:"summary"`
}

// NewReport sums up results.
func NewReport(results []*Result, took time.Duration) *Report {
	r := &Report{Tests: results, Coverage: Coverage(results)}
	r.Summary = Summary{Tests: len(results), Seconds: took.Seconds()}
	for _, t := range results {
		if t.Error != "" {
			r.Summary.Broken++
		}
		r.Summary.Passed += t.Count(Passed)
		r.Summary.Enforced += t.Enforced()
		r.Summary.Failed += t.Count(Failed)
		r.Summary.Skipped += t.Count(Skipped)
	}
	return r
}

// Good tells whether nothing failed.
func (r *Report) Good() bool { return r.Summary.Broken == 0 && r.Summary.Failed == 0 }
