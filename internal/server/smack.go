package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// smackVersion finds the SmackPolicy of a reference for a caller that has the role for it.
func (s *Server) smackVersion(c *Caller, role config.Role, ref string) (*apiv1.Version, error) {
	name, err := refName(store.KindSmackPolicy, ref)
	if err != nil {
		return nil, err
	}
	if err := c.require(role, store.KindSmackPolicy, name); err != nil {
		return nil, err
	}
	v, err := s.store.Get(store.KindSmackPolicy, ref)
	if err == nil && v.GetInfo().GetDeleted() {
		err = fmt.Errorf("policy %s: %w", ref, errs.ErrDeleted)
	}
	return v, withResource(err, store.KindSmackPolicy, ref)
}

// requireHost is an error unless the caller has the role for what is in force or assigned on this host; without either,
// for everything.
func (s *Server) requireHost(c *Caller, role config.Role) error {
	st, err := s.store.SmackState()
	if err != nil {
		return err
	}
	names := slices.DeleteFunc([]string{st.GetPolicy(), st.GetAssigned()}, func(n string) bool { return n == "" })
	for _, name := range names {
		if err := c.require(role, store.KindSmackPolicy, name); err != nil {
			return err
		}
	}
	if len(names) == 0 && c.most(true) < role {
		return fmt.Errorf("%w: to %s needs the role %s of everything, and %s has not", errs.ErrNotAllowed, c.doing, role, c)
	}
	return nil
}

// answered runs a change of the host once for a request id. What it answers is kept without the list of changes, which
// may be long.
func answered[T proto.Message](ctx context.Context, s *Server, a store.Actor, method string, into T, change func() (T, error)) (T, error) {
	var none T
	kept, err := s.store.Recall(a, method)
	if err != nil {
		return none, err
	}
	if kept != nil {
		if err := proto.Unmarshal(kept[1:], into); err != nil {
			return none, fmt.Errorf("%w: answer of request %s: %w", errs.ErrStoreCorrupt, a.RequestID, err)
		}
		return into, nil
	}
	res, err := change()
	s.tellHealth()
	if err != nil {
		return none, err
	}
	short := proto.CloneOf(res)
	if l, ok := proto.Message(short).(*apiv1.LoadResponse); ok {
		l.Changes = nil
	}
	b, err := proto.MarshalOptions{}.MarshalAppend([]byte{answerVersion}, short)
	if err == nil {
		err = s.store.Remember(ctx, a, method, b)
	}
	if err != nil {
		// The change is made and stored; a repeat finds nothing to do.
		s.log.Warn("the answer of a request is not kept", "request_id", a.RequestID, "error", err)
	}
	return res, nil
}

// answerVersion stands before a kept answer, which must not be empty.
const answerVersion = 1

// Load puts a policy into the host's smackfs.
func (s *Server) Load(ctx context.Context, req *apiv1.LoadRequest) (*apiv1.LoadResponse, error) {
	c := callerFrom(ctx)
	v, err := s.smackVersion(c, config.RoleAdmin, req.GetRef())
	if err != nil {
		return nil, err
	}
	o := smackhost.LoadOptions{
		Adopt: req.GetAdopt(), DryRun: req.GetDryRun(), Once: req.GetOnce(), Actor: actorOf(ctx, req.GetMessage(), req.GetRequestId(), req),
	}
	switch req.GetOrder() {
	case apiv1.SmackOrder_SMACK_ORDER_UNSPECIFIED, apiv1.SmackOrder_SMACK_ORDER_GRANTS_FIRST:
	case apiv1.SmackOrder_SMACK_ORDER_REVOKES_FIRST:
		o.Order = smackfs.RevokesFirst
	default:
		return nil, invalidField("order", "%d is not one", req.GetOrder())
	}
	load := func() (*apiv1.LoadResponse, error) {
		res, err := s.host.Load(ctx, v, o)
		return res, withResource(err, store.KindSmackPolicy, req.GetRef())
	}
	if o.DryRun {
		return load()
	}
	if err := s.checkFleetSmack(); err != nil {
		return nil, err
	}
	// It takes the place of another one.
	if st, err := s.store.SmackState(); err != nil {
		return nil, err
	} else if st.GetPolicy() != "" || st.GetAssigned() != "" {
		if err := s.requireHost(c, config.RoleAdmin); err != nil {
			return nil, err
		}
	}
	return answered(ctx, s, o.Actor, "smack.load", &apiv1.LoadResponse{}, load)
}

// Unload takes back what policyd loaded.
func (s *Server) Unload(ctx context.Context, req *apiv1.UnloadRequest) (*apiv1.UnloadResponse, error) {
	a := actorOf(ctx, req.GetMessage(), req.GetRequestId(), req)
	return answered(ctx, s, a, "smack.unload", &apiv1.UnloadResponse{}, func() (*apiv1.UnloadResponse, error) {
		if err := s.requireHost(callerFrom(ctx), config.RoleAdmin); err != nil {
			return nil, err
		}
		if err := s.checkFleetSmack(); err != nil {
			return nil, err
		}
		n, warnings, err := s.host.Unload(ctx, a)
		return &apiv1.UnloadResponse{Revoked: uint32(n), Warnings: warnings}, err
	})
}

// Revoke takes everything away from a subject.
func (s *Server) Revoke(ctx context.Context, req *apiv1.RevokeRequest) (*apiv1.RevokeResponse, error) {
	a := actorOf(ctx, req.GetMessage(), req.GetRequestId(), req)
	return answered(ctx, s, a, "smack.revoke", &apiv1.RevokeResponse{}, func() (*apiv1.RevokeResponse, error) {
		if err := s.requireHost(callerFrom(ctx), config.RoleAdmin); err != nil {
			return nil, err
		}
		n, err := s.host.Revoke(ctx, req.GetSubject(), a)
		return &apiv1.RevokeResponse{Revoked: uint32(n)}, err
	})
}

// GetSmack compares the kernel with a policy.
func (s *Server) GetSmack(ctx context.Context, req *apiv1.GetSmackRequest) (*apiv1.GetSmackResponse, error) {
	c := callerFrom(ctx)
	if req.GetRef() == "" {
		st, err := s.store.SmackState()
		if err != nil {
			return nil, err
		}
		if name := st.GetPolicy(); name != "" {
			if err := c.require(config.RoleViewer, store.KindSmackPolicy, name); err != nil {
				return nil, err
			}
		}
		return s.host.State(ctx, nil, req.GetForeign())
	}
	v, err := s.smackVersion(c, config.RoleViewer, req.GetRef())
	if err != nil {
		return nil, err
	}
	return s.host.State(ctx, v, req.GetForeign())
}

// CheckAccess decides a question.
func (s *Server) CheckAccess(ctx context.Context, req *apiv1.CheckAccessRequest) (*apiv1.CheckAccessResponse, error) {
	c := callerFrom(ctx)
	q, err := smackhost.Question(req.GetSubject(), req.GetObject(), req.GetAccess())
	if err != nil {
		return nil, err
	}
	var v *apiv1.Version
	if req.GetRef() != "" {
		if v, err = s.smackVersion(c, config.RoleViewer, req.GetRef()); err != nil {
			return nil, err
		}
	} else {
		st, err := s.store.SmackState()
		if err != nil {
			return nil, err
		}
		if name := st.GetPolicy(); name != "" {
			if err := c.require(config.RoleViewer, store.KindSmackPolicy, name); err != nil {
				return nil, err
			}
		}
	}
	return s.host.Check(ctx, v, q, req.GetKernel())
}

// smackStatus is the short form of GetSmack.
func (s *Server) smackStatus(ctx context.Context, c *Caller) *apiv1.SmackStatus {
	h, err := s.host.State(ctx, nil, false)
	if err != nil {
		return &apiv1.SmackStatus{Detail: err.Error()}
	}
	st := &apiv1.SmackStatus{
		Available: h.GetState() == apiv1.GetSmackResponse_STATE_AVAILABLE, Detail: h.GetDetail(), State: h.GetState(),
		Rules: h.GetRules(), Own: h.GetOwn(), Labels: h.GetLabels(), LabelBudget: h.GetLabelBudget(), Failed: h.GetFailed(),
	}
	if name := h.GetPolicy(); name != "" && c.roleFor(name) >= config.RoleViewer {
		st.Policy, st.Version = name, h.GetVersion()
	}
	return st
}

// againAfter is the pause between two tries to load the assigned policy.
const againAfter = 2 * time.Second

// loadAgain tries to load the assigned policy as long as it is not in force: smackfs may be mounted late.
func (s *Server) loadAgain(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.stopping.Done():
			return
		case <-tick.C:
		}
		before := s.host.Failed()
		if before == nil {
			continue
		}
		if err := s.host.Boot(s.stopping); err != nil && err.Error() != before.Error() && s.stopping.Err() == nil {
			s.log.Error("the assigned smack policy is not in force", "error", err)
		}
		s.tellHealth()
	}
}
