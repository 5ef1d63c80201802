package policytest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"
	"time"
)

// report runs three tests: good, failing, one that cannot be run.
func report(t *testing.T) *Report {
	t.Helper()
	text := policyText(6, "include: [std/users, site]", "paths:", "  - {allow: [read], at: [/srv, /opt]}", "  - {allow: [read], at: /var/lib}", "  - {allow: [], at: /root, quiet: true}", "quiet: {fs: [read]}") +
		"  \n---\napiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: site}\nspec: {abi: 3, paths: [{allow: [read], at: /site}]}\n" +
		testText("lexical: true", "expect: [{op: open /srv/a r, verdict: allow}, {op: open /etc/passwd r, verdict: allow}]") +
		strings.Replace(testText("lexical: true", `expect: [{op: "open '/srv/\"<&>' r", verdict: deny, errno: EACCES, layer: host, reason: secrets}, {op: bind tcp 80, verdict: deny}]`), "name: web", "name: second", 1) +
		strings.Replace(testText("set: {none: /x}", "expect: [{op: stat /, verdict: not_mediated}]"), "name: web", "name: third", 1)
	text = strings.Replace(text, "abi: 6", "abi: 10", 1)
	var results []*Result
	for _, test := range load(t, text) {
		res, err := (&Runner{}).Run(t.Context(), test)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, res)
	}
	return NewReport(results, 1500*time.Millisecond)
}

func plain(s string, _ Status) string { return s }

func TestText(t *testing.T) {
	r := report(t)
	var b strings.Builder
	if err := WriteText(&b, r, false, plain); err != nil {
		t.Fatal(err)
	}
	const want = `ok   web (test.yaml:25): 2 expectations
FAIL second (test.yaml:32): 1 failed of 2 expectations
  failed test.yaml:35: open '/srv/"<&>' r
         want deny EACCES by layer host
         got allow by test.yaml:12
         because secrets
FAIL third (test.yaml:39): not run: test.yaml:6:15: error: the policy has no parameter "none"; known are dir [bad-parameter] at spec.parameters
               6 |   parameters: [{name: dir, within: [/]}]
                 |               ^
coverage of web: 1 of 3 rules, 33%
  untouched test.yaml:13 spec.layers[0].paths[1]
  untouched test.yaml:21 spec.paths[0]
FAIL: 3 tests: 3 passed, 1 failed, 1 not run in 1.50s
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	painted := func(s string, status Status) string { return "<" + string(status) + ">" + s }
	if err := WriteText(&b, r, true, painted); err != nil || !strings.Contains(b.String(), "<passed>ok  ") || !strings.Contains(b.String(), "<passed>passed test.yaml:28: open /srv/a r") {
		t.Errorf("%v\n%s", err, b.String())
	}
	many := &Result{Name: "a", Expectations: make([]Expectation, 100)}
	for i := range many.Expectations {
		many.Expectations[i] = Expectation{Op: "mount", Status: Skipped, Text: "why", Line: i}
	}
	b.Reset()
	if err := WriteText(&b, NewReport([]*Result{many}, 0), false, plain); err != nil || !strings.Contains(b.String(), "mount (line 7); and 92 more\n         why\n") || len(b.String()) > 1000 {
		t.Errorf("%v\n%s", err, b.String())
	}
	x := &Result{Name: "a", File: "a\x1b[2J.yaml", Expectations: []Expectation{{Op: "stat /\x1b", Status: Failed, Text: "\x07"}}}
	b.Reset()
	if err := WriteText(&b, NewReport([]*Result{x}, 0), false, plain); err != nil || strings.ContainsAny(b.String(), "\x1b\x07") {
		t.Errorf("%v %q", err, b.String())
	}
}

func TestJUnit(t *testing.T) {
	r := report(t)
	r.Tests[0].Expectations[0].skip("no \x01 such \xff thing")
	r = NewReport(r.Tests, time.Second)
	var b bytes.Buffer
	if err := WriteJUnit(&b, r); err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, b.Bytes())
	}
	if got.Tests != 5 || got.Failures != 1 || got.Errors != 1 || got.Skipped != 1 || len(got.Suites) != 3 {
		t.Errorf("%+v", got)
	}
	cases := 0
	for _, s := range got.Suites {
		if s.Tests != len(s.Cases) || s.Name == "" || s.File != "test.yaml" || s.Time == "" {
			t.Errorf("%+v", s)
		}
		cases += len(s.Cases)
	}
	failed := got.Suites[1].Cases[0]
	if cases != got.Tests || failed.Name != `open '/srv/"<&>' r` || failed.Classname != "second" || failed.Line != 35 || failed.Failure == nil ||
		!strings.Contains(failed.Failure.Text, "want deny EACCES by layer host") || !strings.Contains(failed.Failure.Text, "because secrets") {
		t.Errorf("%+v", failed)
	}
	if c := got.Suites[0].Cases[0]; c.Skipped == nil || c.Failure != nil || !strings.HasPrefix(c.Skipped.Message, "no ") {
		t.Errorf("%+v", c)
	}
	if c := got.Suites[2].Cases[0]; c.Error == nil || !strings.Contains(c.Error.Text, "none") {
		t.Errorf("%+v", c)
	}
}

// TestJSON holds the names that programs read.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(report(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`{"tests":[{"name":"web","file":"test.yaml","line":25,"policy":"web","error":"","seconds":`,
		`"expectations":[{"op":"open /srv/a r","line":28,"reason":"","status":"passed","text":"","want":{"verdict":"allow","errno":"","layers":[]},"answer":{"operation":`,
		`"kernel":null}`, `"expectations":[]`,
		`"coverage":[{"policy":"web","rules":[{"file":"test.yaml","line":12,"field":"spec.layers[0].paths[0]","fragment":"","touched":true}`,
		`"total":3,"touched":1,"percent":33.3`,
		`"summary":{"tests":3,"broken":1,"passed":3,"enforced":0,"failed":1,"skipped":0,"seconds":1.5}}`,
	} {
		if !bytes.Contains(b, []byte(part)) {
			t.Errorf("no %s in\n%s", part, b)
		}
	}
}

// TestCoverage: several tests of a policy add up, what was not decided does not count, shipped fragments are apart.
func TestCoverage(t *testing.T) {
	r := report(t)
	if len(r.Coverage) != 1 {
		t.Fatalf("%+v", r.Coverage)
	}
	std := 0
	for _, rule := range r.Coverage[0].Rules {
		if rule.Fragment == "std/users" {
			std++
			if !rule.Touched {
				t.Errorf("%+v", rule)
			}
		}
	}
	if std != 1 {
		t.Errorf("%+v", r.Coverage[0].Rules)
	}
	r.Tests[0].Expectations[0].skip("not performed")
	if c := Coverage(r.Tests)[0]; c.Touched != 1 {
		t.Errorf("%+v", c)
	}
	r.Tests[0].Expectations[0].Answer, r.Tests[1].Expectations[0].Answer = nil, nil
	if c := Coverage(r.Tests)[0]; c.Touched != 0 || c.Percent != 0 {
		t.Errorf("%+v", c)
	}
	if c := Coverage(nil); c == nil || len(c) != 0 {
		t.Errorf("%v", c)
	}
}
