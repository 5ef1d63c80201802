package policytest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// Compiled is the policy of a test as a profile, with where its rows come from.
type Compiled struct {
	Name    string // web, or web@3 of a stored one
	Profile *profile.Profile
	Origins []*apiv1.Origin
	Layers  []*apiv1.LayerPlace // where its layers stand, one each
}

// Fetch gets a policy by its reference, compiled with these parameters.
type Fetch func(ctx context.Context, ref string, set map[string]string) (*Compiled, error)

// Test is one PolicyTest document, checked, with its policy found.
type Test struct {
	Name string
	File string // as messages name it
	Line int    // of File where its name stands

	doc       *policy.Document
	spec      *apiv1.PolicyTestSpec
	policy    *policy.Document // nil: spec.policy is a reference
	fragments policy.FragmentSource
}

// Stdin is the name of a source that came from standard input.
const Stdin = "<stdin>"

// Load reads the tests of files; documents of other kinds are what they may
// test. Files that tests name are read from the folder of the test's file, or
// of the working directory for standard input. The error is a [*BadFiles]
// with every finding, or of reading.
func Load(sources []*apiv1.SourceFile) ([]*Test, error) {
	l := &loader{parsed: map[string][]*policy.Document{}}
	var tests []*Test
	for _, s := range sources {
		docs := l.parse(s.GetName(), s.GetContent())
		for _, d := range docs {
			if d.Kind == policy.KindTest {
				tests = append(tests, l.test(d, docs))
			}
		}
	}
	switch {
	case len(l.findings) > 0:
		return nil, &BadFiles{l.findings}
	case len(tests) == 0:
		return nil, fmt.Errorf("%w: no document of kind %s in the files", errs.ErrInvalid, policy.KindTest)
	}
	return tests, nil
}

// BadFiles is the error of files with mistakes.
type BadFiles struct{ Findings []*apiv1.Finding }

// Error gives all findings, with the lines of the text.
func (e *BadFiles) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = policy.FormatFinding(f)
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes it errs.ErrInvalid.
func (e *BadFiles) Unwrap() error { return errs.ErrInvalid }

type loader struct {
	parsed   map[string][]*policy.Document // by name; nil for a bad file
	findings []*apiv1.Finding
}

func (l *loader) parse(name string, content []byte) []*policy.Document {
	if docs, ok := l.parsed[name]; ok {
		return docs
	}
	docs, err := policy.Parse(name, content)
	if found, ok := errors.AsType[*policy.Errors](err); ok {
		l.findings = append(l.findings, found.Findings()...)
	}
	l.parsed[name] = docs
	return docs
}

// test finds the policy of a test and reads its operations. beside are the
// documents of its file.
func (l *loader) test(d *policy.Document, beside []*policy.Document) *Test {
	t := &Test{Name: d.Name, File: d.File, Line: int(d.TestLine(-1)), doc: d, spec: d.Resource.GetPolicyTest().GetSpec()}
	wrong := func(i int, key, format string, args ...any) {
		l.findings = append(l.findings, d.TestFinding(i, key, fmt.Sprintf(format, args...)))
	}
	files := slices.Clone(beside)
	folder := ""
	if d.File != Stdin {
		folder = filepath.Dir(d.File)
	}
	for _, name := range t.spec.GetPolicyFile() {
		path := name
		if !filepath.IsAbs(name) {
			path = filepath.Join(folder, name)
		}
		content, err := policy.ReadTextFile(path)
		if err != nil {
			wrong(-1, "policyFile", "%v", err)
			return t
		}
		files = append(files, l.parse(path, content)...)
	}
	t.fragments = policy.WithDocuments(files, policy.Std())
	l.choose(t, files, wrong)
	l.findings = append(l.findings, Check(d)...)
	return t
}

// Check finds what is wrong with the operations of a PolicyTest, which the
// language (internal/policy) does not know.
func Check(d *policy.Document) []*apiv1.Finding {
	var out []*apiv1.Finding
	for i, e := range d.Resource.GetPolicyTest().GetSpec().GetExpect() {
		q, err := decide.ParseLine(strings.ReplaceAll(e.GetOp(), policy.TestRoot, "/root"))
		if err == nil {
			err = absolute(q)
		}
		if err != nil {
			out = append(out, d.TestFinding(i, "op", err.Error()))
		}
	}
	return out
}

// choose finds the policy among the documents of the files.
func (l *loader) choose(t *Test, files []*policy.Document, wrong func(i int, key, format string, args ...any)) {
	var known []string
	for _, d := range files {
		if d.Kind == policy.KindPolicy {
			known = append(known, d.Name)
			if d.Name == t.spec.GetPolicy() || t.spec.GetPolicy() == "" {
				t.policy = d
			}
		}
	}
	switch {
	case t.spec.GetPolicy() == "" && len(known) > 1:
		wrong(-1, "policy", "which of the policies is tested: %s?", strings.Join(known, ", "))
	case t.policy != nil:
	case t.spec.GetPolicy() == "":
		wrong(-1, "policy", "no policy to test: name one of policyd by policy, or a file by policyFile")
	case len(t.spec.GetPolicyFile()) > 0:
		wrong(-1, "policy", "there is no policy %s in the files; they have: %s", t.spec.GetPolicy(), strings.Join(known, ", "))
	}
}

// absolute refuses a question about relative paths: a test has no working
// directory.
func absolute(q decide.Question) error {
	op := q.Operation()
	for _, p := range []string{op.Path, op.NewPath} {
		if p != "" && !filepath.IsAbs(p) {
			return fmt.Errorf("path %q is not absolute; %s is the folder of the tree", p, policy.TestRoot)
		}
	}
	return nil
}

// compile gives the profile of the test's policy; root stands for ${root}.
func (t *Test) compile(ctx context.Context, fetch Fetch, root string) (*Compiled, error) {
	set := make(map[string]string, len(t.spec.GetSet()))
	for k, v := range t.spec.GetSet() {
		set[k] = strings.ReplaceAll(v, policy.TestRoot, root)
	}
	if t.policy == nil {
		return fetch(ctx, t.spec.GetPolicy(), set)
	}
	out, err := policy.Compile(t.policy.Resource.GetLandlockPolicy(), policy.CompileOptions{Parameters: set, Fragments: t.fragments, Document: t.policy})
	if err != nil {
		return nil, err
	}
	return &Compiled{Name: t.policy.Name, Profile: out.Profile, Origins: out.Origins, Layers: out.LayerPlaces}, nil
}
