package policytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/policy"
)

// Runner runs tests, one at a time.
type Runner struct {
	// Fetch gets policies of policyd; tests of others do without.
	Fetch Fetch
	// Performer is the command line with which this very program calls
	// [Perform]. nil: operations are decided and not performed.
	Performer []string
	// Support is the kernel, for Performer.
	Support landlock.Support
}

// Run runs a test. What keeps it from being run stands in the result; an error
// is of the context alone.
func (r *Runner) Run(ctx context.Context, t *Test) (*Result, error) {
	began := time.Now()
	res := &Result{Name: t.Name, File: t.File, Line: t.Line, Policy: t.spec.GetPolicy(), Expectations: []Expectation{}}
	if t.policy != nil {
		res.Policy = t.policy.Name
	}
	c := &course{runner: r, test: t, result: res}
	if err := c.run(ctx); err != nil {
		res.Error = c.readable(err.Error())
		res.Expectations = []Expectation{}
	}
	res.Seconds = time.Since(began).Seconds()
	return res, ctx.Err()
}

// course is one run of one test.
type course struct {
	runner    *Runner
	test      *Test
	result    *Result
	scratch   *scratch // root is "" without a tree
	compiled  *Compiled
	questions []decide.Question
	noDevice  string // why the tree cannot be made here
}

func (c *course) run(ctx context.Context) (err error) {
	spec := c.test.spec
	tree, err := entries(spec)
	if err != nil {
		return err
	}
	c.scratch = &scratch{}
	if len(tree) > 0 {
		if c.scratch, err = newScratch(tree); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.scratch.remove()) }()
	}
	if c.compiled, err = c.test.compile(ctx, c.runner.Fetch, c.scratch.root); err != nil {
		return err
	}
	c.result.Policy, c.result.compiled = c.compiled.Name, c.compiled
	if err := c.decide(); err != nil {
		return err
	}
	if c.runner.Performer == nil {
		return nil
	}
	return c.enforce(ctx)
}

// decide answers every operation and compares.
func (c *course) decide() error {
	spec := c.test.spec
	if !spec.GetLexical() && c.scratch.root != "" {
		switch err := c.scratch.fill(); {
		case errors.Is(err, errNoDevice):
			c.noDevice = err.Error()
		case err != nil:
			return err
		}
	}
	abi := int(spec.GetAbi())
	if abi == 0 {
		abi = c.compiled.Profile.ABI
	}
	var d *decide.Decider
	if c.noDevice == "" {
		var err error
		d, err = decide.New(c.compiled.Profile, c.compiled.Origins, decide.Options{
			ABI: abi, Errata: decide.AllErrata(), Lexical: spec.GetLexical(), LayerPlaces: c.compiled.Layers,
		})
		if err != nil {
			return err
		}
	}
	for i, e := range spec.GetExpect() {
		q, err := decide.ParseLine(strings.ReplaceAll(e.GetOp(), policy.TestRoot, c.scratch.root))
		if err != nil {
			return err
		}
		c.questions = append(c.questions, q)
		x := Expectation{Op: e.GetOp(), Line: int(c.test.doc.TestLine(i)), Reason: e.GetReason(), Status: Passed, Want: wantOf(e)}
		switch a, err := c.answer(d, q); {
		case c.noDevice != "":
			x.skip(c.noDevice)
		case err != nil:
			x.fail(c.readable(err.Error()))
		default:
			x.Answer = a
			x.compare()
		}
		c.result.Expectations = append(c.result.Expectations, x)
	}
	return nil
}

func (c *course) answer(d *decide.Decider, q decide.Question) (*decide.Answer, error) {
	if d == nil {
		return nil, nil
	}
	a, err := d.Answer(q)
	if err != nil {
		return nil, err
	}
	a.Operation = c.readable(a.Operation)
	for i := range a.DecidedBy {
		a.DecidedBy[i].Rule = c.readable(a.DecidedBy[i].Rule)
	}
	for i := range a.Notes {
		a.Notes[i].Text = c.readable(a.Notes[i].Text)
	}
	return a, nil
}

// readable puts ${root} back: the folder has another name in every run.
func (c *course) readable(s string) string {
	if c.scratch == nil || c.scratch.root == "" {
		return s
	}
	return strings.ReplaceAll(s, c.scratch.root, policy.TestRoot)
}

func wantOf(e *apiv1.TestExpectation) Want {
	w := Want{Errno: e.GetErrno(), Layers: append([]string{}, e.GetLayer()...)}
	switch e.GetVerdict() {
	case apiv1.TestVerdict_TEST_VERDICT_ALLOW:
		w.Verdict = decide.Allow
	case apiv1.TestVerdict_TEST_VERDICT_NOT_MEDIATED:
		w.Verdict = decide.NotMediated
	default:
		w.Verdict = decide.Deny
	}
	return w
}

func (x *Expectation) fail(text string) { x.Status, x.Text = Failed, text }
func (x *Expectation) skip(text string) { x.Status, x.Text = Skipped, text }

// compare sets the status by the answer.
func (x *Expectation) compare() {
	a := x.Answer
	switch {
	case a.Verdict != x.Want.Verdict:
		x.fail("got " + answerText(a))
	case x.Want.Errno != "" && a.Errno != x.Want.Errno:
		x.fail("got " + answerText(a))
	default:
		for _, name := range x.Want.Layers {
			if !slices.ContainsFunc(a.Layers, func(l decide.Layer) bool { return l.Name == name }) {
				x.fail(fmt.Sprintf("layer %s does not deny it: got %s", name, answerText(a)))
				return
			}
		}
	}
}

// answerText is an answer in a line: "deny EACCES by layer host (read_file)",
// "allow by web.yaml:12".
func answerText(a *decide.Answer) string {
	text := a.Verdict
	if a.Errno != "" {
		text += " " + a.Errno
	}
	var by []string
	if a.Verdict == decide.Deny {
		for _, l := range a.Layers {
			by = append(by, fmt.Sprintf("layer %s (%s)", l.Name, strings.Join(l.Missing, ", ")))
		}
	} else {
		for _, r := range a.DecidedBy {
			if place := placeOf(r.Fragment, r.File, int(r.Line), r.Field); r.Rule != "" && !slices.Contains(by, place) {
				by = append(by, place)
			}
		}
	}
	if len(by) > 0 {
		text += " by " + strings.Join(by, ", ")
	}
	return text
}

// atMost reduces a profile to what a kernel enforces, as a start with
// enforcement: degrade would.
func atMost(p *profile.Profile, abi int) *profile.Profile {
	reduced, _ := p.Reduce(abi)
	q := *reduced
	q.Degrade = true
	return &q
}
