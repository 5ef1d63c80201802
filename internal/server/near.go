package server

import (
	"errors"
	"fmt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/binding"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
)

// nearMost is how many near misses an answer has.
const nearMost = 10

// near gives the Bindings that the caller may see and that one thing keeps from matching.
func (s *Server) near(c *Caller, x *binding.Index, w *apiv1.Workload) []*apiv1.NearMiss {
	var out []*apiv1.NearMiss
	for _, m := range x.Near(w) {
		if len(out) == nearMost {
			break
		}
		if c.roleFor(m.Binding.Name) >= config.RoleViewer {
			out = append(out, &apiv1.NearMiss{Name: m.Binding.Name, Version: m.Binding.Version, Policy: m.Binding.Spec.GetPolicy(), Rule: m.Rule, Reason: m.Reason})
		}
	}
	return out
}

// withNear adds to the error of a workload that nothing matches what nearly does.
func (s *Server) withNear(c *Caller, x *binding.Index, w *apiv1.Workload, err error) error {
	if !errors.Is(err, errs.ErrNoBinding) {
		return err
	}
	for _, m := range s.near(c, x, w) {
		err = fmt.Errorf("%w\nnearly: binding %s@%d: %s: %s", err, m.GetName(), m.GetVersion(), m.GetRule(), m.GetReason())
	}
	return err
}
