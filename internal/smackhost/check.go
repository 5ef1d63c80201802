package smackhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
)

// Question reads what is asked; errors wrap errs.ErrInvalid.
func Question(subject, object, access string) (smack.Query, error) {
	q := smack.Query{Subject: subject, Object: object}
	for _, l := range []string{subject, object} {
		if err := smack.CheckLabel(l); err != nil {
			return q, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
		}
	}
	var err error
	if q.Access, err = smack.ParseAccess(access); err != nil {
		return q, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if q.Access&smack.AllAccess == 0 {
		return q, fmt.Errorf("%w: access %q asks for nothing: name letters of rwxatlb", errs.ErrInvalid, access)
	}
	return q, nil
}

// Decide answers by the kernel's algorithm, for a kernel that holds the policy and nothing else.
func Decide(c *policy.CompiledSmack, q smack.Query, bringup bool) *apiv1.CheckAccessResponse {
	d := c.Policy.Decide(q, bringup)
	res := &apiv1.CheckAccessResponse{Allowed: d.Allowed, Reason: d.Reason.String(), Detail: d.String()}
	origins := c.Origins(q.Subject, q.Object)
	for _, o := range origins {
		res.Rules = append(res.Rules, &apiv1.SmackRuleSource{
			Layer: c.Policy.Layers[o.Layer].Name, Rule: o.Rule, File: o.File, Line: o.Line,
		})
	}
	for _, refused := range d.Refused {
		row := &apiv1.SmackDenial{Layer: refused.Layer, Missing: refused.Missing.String()}
		for _, o := range origins { // the last of the layer decides
			if c.Policy.Layers[o.Layer].Name == refused.Layer {
				row.File, row.Line = o.File, o.Line
			}
		}
		res.Denials = append(res.Denials, row)
	}
	return res
}

// Check answers a question by a version, or, when that is nil, by the policy in force; kernel asks access2 as well.
func (m *Manager) Check(ctx context.Context, v *apiv1.Version, q smack.Query, kernel bool) (*apiv1.CheckAccessResponse, error) {
	if err := m.take(ctx); err != nil {
		return nil, err
	}
	defer m.give()
	r, err := m.read()
	if err != nil {
		return nil, err
	}
	fs, noSmack := m.cfg.Find()
	current := v == nil
	if current {
		if !r.inForce() {
			return nil, fmt.Errorf("%w: no SmackPolicy is in force on this host: name one", errs.ErrNotFound)
		}
		if v, err = m.version(r.GetPolicy(), r.GetVersion()); err != nil {
			return nil, err
		}
	}
	c, err := m.compile(v)
	if err != nil {
		return nil, err
	}
	bringup := noSmack == nil && bringsUp(fs)
	res := Decide(c, q, bringup)
	if current && slices.Contains(r.GetRevoked(), q.Subject) {
		d := (&smack.Set{}).Decide(q, smack.Kernel{Bringup: bringup, Unconfined: c.Policy.Settings.Unconfined})
		res = &apiv1.CheckAccessResponse{
			Allowed: d.Allowed, Reason: d.Reason.String(), Detail: d.String() + fmt.Sprintf("; the subject %s was revoked", q.Subject),
		}
	}
	res.Policy, res.Version = v.GetInfo().GetName(), v.GetInfo().GetNumber()
	if !kernel {
		return res, nil
	}
	if noSmack != nil {
		return nil, noSmack
	}
	answer, err := smackfs.Ask(fs, q)
	switch {
	case err != nil:
		return nil, err
	case answer.Allowed:
		res.KernelAnswer = "1"
	case len(answer.Unknown) > 0:
		res.KernelAnswer = "unknown label"
	default:
		res.KernelAnswer = "0"
	}
	return res, nil
}

// bringsUp tells whether the kernel is built for bringing systems up: only such a one has the file.
func bringsUp(fs smackfs.FS) bool {
	f, err := fs.Open("unconfined", unix.O_RDONLY)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	f.Close()
	return true
}
