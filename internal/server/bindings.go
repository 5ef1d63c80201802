package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/binding"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/store"
)

// Limits of what a caller may say of a workload.
const (
	maxFacts     = 1024      // annotations and labels
	maxFactBytes = 512 << 10 // of all together; Kubernetes allows 256 KiB of annotations
)

// bound is what a workload gets: a reference to a policy with values of its parameters.
type bound struct {
	ref        string
	parameters map[string]string
	// annotated are those of parameters that the workload's own annotations give.
	annotated map[string]oci.Parameter
	// binding is nil where the configuration gives the policy.
	binding *binding.Binding
}

// key tells answers for workloads apart from those for references, which hold no NUL. With the Binding's version it is
// about that text of it; what annotations add is no part of that text.
func (b *bound) key(abi uint32) string {
	key := "\x00unmatched\x00" + b.ref
	if b.binding != nil {
		key = "\x00binding\x00" + b.binding.Name + "@" + strconv.FormatUint(b.binding.Version, 10)
	}
	key += "\x00" + strconv.FormatUint(uint64(abi), 10)
	if len(b.annotated) == 0 {
		return key
	}
	for _, name := range slices.Sorted(maps.Keys(b.annotated)) {
		key += "\x00" + name + "=" + b.annotated[name].Value
	}
	return key
}

// index gives the Bindings as they are stored. Without one that could be read it is an error: no answer is given that
// leaves a Binding out.
func (s *Server) index() (*binding.Index, error) {
	if x := s.bindings.Load(); x != nil {
		return x, nil
	}
	s.bindingsMu.Lock()
	defer s.bindingsMu.Unlock()
	if x := s.bindings.Load(); x != nil {
		return x, nil // read while this one waited
	}
	x, err := s.readBindings()
	if err == nil {
		s.bindings.Store(x)
	}
	return x, err
}

func (s *Server) readBindings() (*binding.Index, error) {
	versions, err := s.store.Bindings()
	if err != nil {
		return nil, err
	}
	list := make([]*binding.Binding, 0, len(versions))
	for _, v := range versions {
		list = append(list, &binding.Binding{
			Name: v.GetInfo().GetName(), Version: v.GetInfo().GetNumber(), Spec: v.GetResource().GetBinding().GetSpec(),
		})
	}
	return binding.New(list)
}

// bindingsChanged puts the Bindings as they are now into force. It is called after a change that may have been one of
// theirs, before changed and before the change is acknowledged. They are read within the lock, so what is put in place
// last has seen every change before it. Where they cannot be read nothing stays in force, and who asks reads again.
func (s *Server) bindingsChanged() {
	s.bindingsMu.Lock()
	defer s.bindingsMu.Unlock()
	x, err := s.readBindings()
	if err != nil {
		s.log.Error("bindings could not be read; nobody gets a policy by one until they can", "error", err)
		x = nil
	}
	s.bindings.Store(x)
}

// checkBinding holds the values that a Binding gives against the policy that it names: one that goes with it in the request,
// else the stored one.
func (s *Server) checkBinding(c *Caller, d *policy.Document, b *batch) (*apiv1.Finding, error) {
	spec := d.Resource.GetBinding().GetSpec()
	ref, err := store.ParseRef(store.KindLandlockPolicy, spec.GetPolicy())
	if err != nil {
		return d.BindingFinding("policy", err.Error()), nil
	}
	if err := c.require(config.RoleViewer, store.KindLandlockPolicy, ref.Name); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(b.docs, func(d *policy.Document) bool { return d.Kind == policy.KindPolicy && d.Name == ref.Name })
	if i < 0 || ref != (store.Ref{Name: ref.Name}) {
		v, err := s.resolve(spec.GetPolicy())
		switch {
		case i >= 0 && (errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrDeleted)):
			return nil, nil // the version may be the one that comes with it, which the store sees
		case errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrDeleted) || errors.Is(err, errs.ErrInvalid):
			return d.BindingFinding("policy", fmt.Sprintf("policy %q: %v", spec.GetPolicy(), err)), nil
		case err != nil:
			return nil, err
		}
		return bindingFinding(d, policy.CheckParameters(v.GetResource().GetLandlockPolicy(), spec.GetSet())), nil
	}
	return bindingFinding(d, policy.CheckParameters(b.docs[i].Resource.GetLandlockPolicy(), spec.GetSet())), nil
}

// breaks remarks on stored Bindings whose values a new version of their policy does not take: what they are about gets
// no profile then, since none is made up.
func (s *Server) breaks(d *policy.Document, b *batch) ([]*apiv1.Finding, error) {
	x, err := s.index()
	if err != nil {
		return nil, err
	}
	var out []*apiv1.Finding
	for _, bound := range x.Of(d.Name) {
		if bound.Spec.GetPolicy() != d.Name || slices.ContainsFunc(b.docs, func(d *policy.Document) bool { return d.Kind == policy.KindBinding && d.Name == bound.Name }) {
			continue // it names another version, or is itself written anew
		}
		if f := bindingFinding(d, policy.CheckParameters(d.Resource.GetLandlockPolicy(), bound.Spec.GetSet())); f != nil {
			out = append(out, &apiv1.Finding{
				Severity: apiv1.Finding_SEVERITY_WARNING, Code: "breaks-binding", File: d.File, Line: uint32(d.FirstLine), Field: "spec.parameters",
				Message: fmt.Sprintf("Binding %s does not fit this version, and what it matches is refused: %s", bound.Name, f.GetMessage()),
			})
		}
	}
	return out, nil
}

// bindingFinding makes an error of values one of the Binding.
func bindingFinding(d *policy.Document, err error) *apiv1.Finding {
	if err == nil {
		return nil
	}
	text := err.Error()
	var found *policy.Errors
	if errors.As(err, &found) {
		text = found.Findings()[0].GetMessage()
	}
	return d.BindingFinding("set", text)
}

// checkWorkload holds the limits; the parts are compared only, so that any text will do.
func checkWorkload(field string, w *apiv1.Workload) error {
	if n := len(w.GetAnnotations()) + len(w.GetLabels()); n > maxFacts {
		return invalidField(field, "%d annotations and labels, at most %d", n, maxFacts)
	}
	n := len(w.GetImage()) + len(w.GetNamespace()) + len(w.GetUnit()) + len(w.GetSmackLabel()) + len(w.GetContainer())
	for _, m := range []map[string]string{w.GetAnnotations(), w.GetLabels()} {
		for k, v := range m {
			n += len(k) + len(v)
		}
	}
	switch {
	case n > maxFactBytes:
		return invalidField(field, "%d bytes, at most %d", n, maxFactBytes)
	case n == 0 && (w == nil || w.Uid == nil):
		return invalidField(field, "nothing is said of the workload")
	}
	return nil
}

// bind says what a workload gets.
func (s *Server) bind(w *apiv1.Workload) (*bound, error) {
	x, err := s.index()
	if err != nil {
		return nil, err
	}
	return s.boundBy(x.Best(w), w)
}

// boundBy is what a workload gets by a Binding; nil: by none.
func (s *Server) boundBy(by *binding.Binding, w *apiv1.Workload) (*bound, error) {
	b := &bound{binding: by}
	if by == nil {
		var err error
		if b, err = s.unbound(); err != nil {
			return nil, err
		}
	} else {
		b.ref, b.parameters = by.Spec.GetPolicy(), by.Spec.GetSet()
	}
	return b, b.annotate(w)
}

// unbound is what a workload gets that no Binding matches.
func (s *Server) unbound() (*bound, error) {
	ref := *s.unmatched.Load()
	if ref == "" {
		return nil, fmt.Errorf("%w the workload, and bindings.unmatched of the configuration refuses then", errs.ErrNoBinding)
	}
	return &bound{ref: ref}, nil
}

// about adds to an error how the workload came to the policy it is about.
func (b *bound) about(err error) error {
	if err == nil {
		return nil
	}
	if len(b.annotated) > 0 {
		err = fmt.Errorf("with the annotations %s: %w", oci.About(b.annotated), err)
	}
	if b.binding == nil {
		return fmt.Errorf("no Binding matches the workload, and for that the configuration (bindings.unmatched) names %s: %w", b.ref, err)
	}
	return fmt.Errorf("binding %s@%d names %s: %w", b.binding.Name, b.binding.Version, b.ref, err)
}

// profileFor is GetProfile for a workload.
func (s *Server) profileFor(ctx context.Context, c *Caller, req *apiv1.GetProfileRequest) (*answer, error) {
	switch {
	case req.GetRef() != "":
		return nil, invalidField("workload", "ref is given as well: only one of them")
	case len(req.GetParameters()) > 0:
		return nil, invalidField("parameters", "for a workload its Binding gives them")
	}
	if err := checkWorkload("workload", req.GetWorkload()); err != nil {
		return nil, err
	}
	generation := s.generation.Load()
	b, err := s.bind(req.GetWorkload())
	if err != nil {
		return nil, err
	}
	key := b.key(req.GetAbi())
	if a, ok := s.answers.get(key); ok {
		return a, c.require(config.RoleViewer, store.KindLandlockPolicy, a.policy)
	}
	a, err := s.answer(ctx, c, generation, key, req.GetAbi(), b)
	return a, b.about(err)
}

func (b *bound) name() string {
	if b.binding == nil {
		return ""
	}
	return b.binding.Name
}

// Resolve says which policy a workload gets, and why.
func (s *Server) Resolve(ctx context.Context, req *apiv1.ResolveRequest) (*apiv1.ResolveResponse, error) {
	c := callerFrom(ctx)
	if err := checkWorkload("workload", req.GetWorkload()); err != nil {
		return nil, err
	}
	x, err := s.index()
	if err != nil {
		return nil, err
	}
	matches := x.Find(req.GetWorkload())
	var first *binding.Binding
	if len(matches) > 0 {
		first = matches[0].Binding
	}
	b, err := s.boundBy(first, req.GetWorkload())
	if err != nil {
		return nil, s.withNear(c, x, req.GetWorkload(), err)
	}
	name, err := refName(store.KindLandlockPolicy, b.ref)
	if err != nil {
		return nil, b.about(err)
	}
	if err := c.require(config.RoleViewer, store.KindLandlockPolicy, name); err != nil {
		return nil, err
	}
	v, err := s.resolve(b.ref)
	if err != nil {
		return nil, b.about(err)
	}
	if len(b.annotated) > 0 {
		p := v.GetResource().GetLandlockPolicy()
		err := b.checkAnnotated(p)
		if err == nil {
			err = policy.CheckParameters(p, b.parameters)
		}
		if err != nil {
			return nil, b.about(err)
		}
	}
	resp := &apiv1.ResolveResponse{Policy: b.ref, Parameters: b.parameters, Version: v.GetInfo()}
	for i, m := range matches {
		if c.roleFor(m.Binding.Name) < config.RoleViewer {
			resp.Hidden++
			continue
		}
		r := &apiv1.ResolvedBinding{Name: m.Binding.Name, Version: m.Binding.Version, Policy: m.Binding.Spec.GetPolicy()}
		if i > 0 {
			r.Rule, r.Reason = binding.Why(matches[0], m)
		}
		resp.Matches = append(resp.Matches, r)
	}
	resp.Near = s.near(c, x, req.GetWorkload())
	return resp, nil
}
