package policytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
)

const performArg = "policytest-perform"

// TestMain lets the program of the tests be the process that performs.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == performArg {
		if err := Perform(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func enforcing() *Runner {
	return &Runner{Performer: []string{os.Args[0], performArg}, Support: landlock.Probe()}
}

// load reads tests from a text.
func load(t *testing.T, text string) []*Test {
	t.Helper()
	tests, err := Load([]*apiv1.SourceFile{{Name: "test.yaml", Content: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func runOne(t *testing.T, r *Runner, text string) *Result {
	t.Helper()
	res, err := r.Run(t.Context(), load(t, text)[0])
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// policyText is a policy that handles all of an ABI and has these keys in its layer, named host.
func policyText(abi int, lines ...string) string {
	return fmt.Sprintf("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: web}\nspec:\n  abi: %d\n  parameters: [{name: dir, within: [/]}]\n  variables: {dir: [/nonexistent]}\n  layers:\n    - name: host\n      %s\n",
		abi, strings.Join(lines, "\n      "))
}

// testText is a PolicyTest with these keys in its spec.
func testText(lines ...string) string {
	return "---\napiVersion: policyd/v1\nkind: PolicyTest\nmetadata: {name: web}\nspec:\n  " + strings.Join(lines, "\n  ") + "\n"
}

// failures are the texts of what failed and was skipped, by operation.
func failures(res *Result) string {
	var b strings.Builder
	b.WriteString(res.Error)
	for _, x := range res.Expectations {
		if x.Status != Passed {
			fmt.Fprintf(&b, "%s %s: %s\n", x.Status, x.Op, x.Text)
		}
	}
	return b.String()
}

func TestRunFetches(t *testing.T) {
	text := testText("policy: web@stable", "set: {a: '${root}/x'}", "tree: [{file: x}]", "expect: [{op: 'open ${root}/x r', verdict: allow}]")
	inline := load(t, policyText(3, "paths: [{allow: [read], at: '${dir}'}]")+testText("expect: [{op: stat /, verdict: not_mediated}]"))[0]
	var gotRef, gotSet string
	r := &Runner{Fetch: func(ctx context.Context, ref string, set map[string]string) (*Compiled, error) {
		gotRef, gotSet = ref, set["a"]
		inline.spec.Set = map[string]string{"dir": set["a"]}
		c, err := inline.compile(ctx, nil, "")
		if err == nil {
			c.Name = "web@3"
		}
		return c, err
	}}
	res := runOne(t, r, text)
	if gotRef != "web@stable" || !strings.HasSuffix(gotSet, "/x") || res.Policy != "web@3" || res.Failed() {
		t.Errorf("asked for %q with %q: %+v", gotRef, gotSet, res)
	}
	r.Fetch = func(context.Context, string, map[string]string) (*Compiled, error) {
		return nil, errors.New("not reachable")
	}
	if res := runOne(t, r, text); res.Error != "not reachable" || !res.Failed() || len(res.Expectations) != 0 {
		t.Errorf("%+v", res)
	}
}
