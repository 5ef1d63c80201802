package policytest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
)

// enforce has every operation performed and compares the kernel's answer with
// the expectation and with what was decided.
func (c *course) enforce(ctx context.Context) error {
	sup := c.runner.Support
	why := ""
	switch {
	case c.noDevice != "":
		return nil // all are skipped
	case sup.Err != nil:
		why = sup.Err.Error()
	case c.test.spec.GetLexical() && c.scratch.root == "":
		why = "a lexical test without a tree is about another machine"
	}
	if why != "" {
		for i := range c.result.Expectations {
			c.result.Expectations[i].unlessFailed(why)
		}
		return nil
	}
	abi := int(c.test.spec.GetAbi())
	if abi == 0 {
		abi = c.compiled.Profile.ABI
	}
	p := atMost(c.compiled.Profile, min(abi, sup.ABI))
	if len(p.Layers) == 0 {
		for i := range c.result.Expectations {
			c.result.Expectations[i].unlessFailed(fmt.Sprintf("this kernel (ABI %d) enforces nothing of the policy", sup.ABI))
		}
		return nil
	}
	here, err := decide.New(p, nil, decide.Options{ABI: min(abi, sup.ABI), Errata: sup.Errata, Lexical: c.test.spec.GetLexical()})
	if err != nil {
		return err
	}
	if c.test.spec.GetLexical() {
		p = c.moved(p)
	}
	p = c.narrowed(p)
	// Decided before it is performed: the tree is made anew then.
	answers := make([]*decide.Answer, len(c.questions))
	for i, q := range c.questions {
		if answers[i], err = here.Answer(q); errors.Is(err, decide.ErrNotAsked) {
			continue // failed already
		} else if err != nil {
			return err
		}
	}
	outcomes, err := c.perform(ctx, p)
	if err != nil {
		return err
	}
	for i := range c.result.Expectations {
		if answers[i] != nil {
			c.result.Expectations[i].enforced(c.questions[i].Kind(), answers[i], outcomes[i], sup.ABI)
		}
	}
	return nil
}

// unlessFailed skips what has not failed already.
func (x *Expectation) unlessFailed(why string) {
	if x.Status != Failed {
		x.skip(why)
	}
}

// enforced compares; here is the answer for this very kernel.
func (x *Expectation) enforced(k profile.OpKind, here *decide.Answer, o outcome, abi int) {
	if o.Skip != "" {
		x.unlessFailed(o.Skip)
		return
	}
	x.Kernel = &Kernel{Under: errnoName(o.Under), Without: errnoName(o.Without)}
	says := judge(k, o.Without, o.Under)
	switch {
	case says.unclear != "" && here.Verdict == decide.Deny && o.Under == 0:
		x.fail("the kernel lets it through, decided was " + answerText(here))
	case says.unclear != "":
		x.unlessFailed(says.unclear)
	case !says.agrees(here.Verdict, here.Errno):
		x.fail(fmt.Sprintf("the kernel answers %s, decided was %s", says, answerText(here)))
	case x.Status != Passed:
	case x.Answer != nil && (x.Answer.Verdict != here.Verdict || x.Answer.Errno != here.Errno):
		x.skip(fmt.Sprintf("this kernel (ABI %d) answers %s, as it must: %s is of a newer one", abi, says, answerText(x.Answer)))
	case !says.agrees(x.Want.Verdict, x.Want.Errno):
		x.fail("the kernel answers " + says.String())
	}
}

// moved puts the rules of a policy for another machine into the tree. The tree
// has of that machine what the test is about, so rules on nothing are skipped.
func (c *course) moved(p *profile.Profile) *profile.Profile {
	q := *p
	q.Paths = append([]profile.PathRow(nil), p.Paths...)
	for i := range q.Paths {
		row := &q.Paths[i]
		row.Path, row.Missing, row.Within = filepath.Join(c.scratch.root, row.Path), profile.Skip, 0
	}
	return &q
}

// narrowed leaves the rules on ports that are asked about, and on port 0,
// which sockets are bound to by themselves. The kernel takes a rule for each
// port, and a range of all of them takes longer than all else.
func (c *course) narrowed(p *profile.Profile) *profile.Profile {
	asked := []uint16{0}
	for _, q := range c.questions {
		asked = append(asked, q.Operation().Port)
	}
	slices.Sort(asked)
	var rows []profile.PortRow
	for _, port := range slices.Compact(asked) {
		for _, row := range p.Ports {
			if row.First > port || port > row.Last {
				continue
			}
			// Neighbours that say the same must be one row.
			if k := len(rows) - 1; k >= 0 && rows[k].Last+1 == port && slices.Equal(rows[k].Access, row.Access) {
				rows[k].Last = port
				continue
			}
			rows = append(rows, profile.PortRow{First: port, Last: port, Access: row.Access})
		}
	}
	q := *p
	q.Ports = rows
	return &q
}

// perform runs the process that performs, and gives its outcomes.
func (c *course) perform(ctx context.Context, p *profile.Profile) ([]outcome, error) {
	j := job{Root: c.scratch.root, Tree: c.scratch.tree, Profile: p.Encode(), Moved: c.test.spec.GetLexical()}
	for _, q := range c.questions {
		j.Ops = append(j.Ops, q.String())
	}
	in, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", c.runner.Performer[1:]...)
	cmd.Args[0] = c.runner.Performer[0]
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("perform: %w: %s", err, strings.TrimSpace(errOut.String()))
	}
	outcomes := make([]outcome, 0, len(c.questions))
	for dec := json.NewDecoder(bufio.NewReader(&out)); dec.More(); {
		var o outcome
		if err := dec.Decode(&o); err != nil {
			return nil, fmt.Errorf("perform: %w", err)
		}
		if o.Err != "" {
			return nil, fmt.Errorf("perform %s: %s", c.questions[len(outcomes)], o.Err)
		}
		outcomes = append(outcomes, o)
	}
	if len(outcomes) != len(c.questions) {
		return nil, fmt.Errorf("perform: %d answers for %d operations", len(outcomes), len(c.questions))
	}
	return outcomes, nil
}
