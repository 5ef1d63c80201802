package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/store"
)

// maxDocuments bounds the documents of one request.
const maxDocuments = 1000

// batch is the documents of one request on their way to the store.
type batch struct {
	docs     []*policy.Document
	puts     []store.Put
	findings []*apiv1.Finding
	// host holds remarks on what this host cannot do. A policy may be meant for others, so strict leaves them as they are.
	host []*apiv1.Finding
	// fragments are those of the batch by name: they see each other, whatever their order.
	fragments map[string]*apiv1.Fragment
}

// prepare parses, checks, lints and pins documents; what it returns is ready to be stored. The error holds
// every finding of every file. role is what the caller must have for each document.
func (s *Server) prepare(c *Caller, role config.Role, files []*apiv1.SourceFile, resources []*apiv1.Resource, strict bool) (*batch, error) {
	b := &batch{fragments: map[string]*apiv1.Fragment{}}
	var all problems
	for _, f := range files {
		docs, err := policy.Parse(f.GetName(), f.GetContent())
		if err := all.add(err); err != nil {
			return nil, err
		}
		b.docs = append(b.docs, docs...)
	}
	for i, r := range resources {
		d, err := policy.FromResource(r)
		if err := all.addAt(fmt.Sprintf("resources[%d]", i), err); err != nil {
			return nil, err
		}
		if err == nil {
			b.docs = append(b.docs, d)
		}
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	switch n := len(b.docs); {
	case n == 0:
		return nil, invalidField("files", "no document")
	case n > maxDocuments:
		return nil, fmt.Errorf("%w: %d documents in one request; at most %d", errs.ErrTooLarge, n, maxDocuments)
	}
	seen := map[string]bool{}
	b.leaveTests()
	for _, d := range b.docs {
		if err := c.require(role, d.Kind, d.Name); err != nil {
			return nil, err
		}
		key := d.Kind + "/" + d.Name
		switch {
		case policy.IsReserved(d.Name):
			all.finding(d, "reserved-name", "metadata.name", fmt.Sprintf("the name %q belongs to the fragments that come with policyd", d.Name))
		case seen[key]:
			all.finding(d, "duplicate-document", "metadata.name", fmt.Sprintf("%s %q is in this request more than once", d.Kind, d.Name))
		}
		seen[key] = true
		if f := d.Resource.GetFragment(); f != nil {
			b.fragments[d.Name] = f
		}
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	src := &newestFragments{server: s, caller: c, batch: b.fragments}
	for _, d := range b.docs {
		put, compiled, err := s.prepareOne(d, src)
		if err := all.add(err); err != nil {
			return nil, err
		}
		if compiled != nil {
			b.host = append(b.host, s.lacks(d, compiled.Profile)...)
			broken, err := s.breaks(d, b)
			if err != nil {
				return nil, err
			}
			b.host = append(b.host, broken...)
		}
		if d.Kind == policy.KindBinding {
			f, err := s.checkBinding(c, d, b)
			if err != nil {
				return nil, err
			}
			if f != nil {
				all.found = append(all.found, f)
			}
		}
		b.puts = append(b.puts, put)
		b.findings = append(b.findings, policy.Lint(d, src)...)
	}
	if strict {
		for _, f := range b.findings {
			f.Severity = apiv1.Finding_SEVERITY_ERROR
		}
		all.found = append(all.found, b.findings...)
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	b.findings = append(b.findings, b.host...)
	return b, nil
}

// leaveTests takes the tests out, with a remark: they belong beside the text of a policy, and nothing here runs them.
func (b *batch) leaveTests() {
	var docs []*policy.Document
	for _, d := range b.docs {
		if d.Kind != policy.KindTest {
			docs = append(docs, d)
			continue
		}
		b.host = append(b.host, &apiv1.Finding{
			Severity: apiv1.Finding_SEVERITY_WARNING, Code: "not-stored", File: d.File, Line: uint32(d.FirstLine),
			Message: fmt.Sprintf("test %s is not stored; run it with policyctl test", d.Name),
		})
	}
	b.docs = docs
}

// prepareOne pins one document and compiles it once when it is a policy, so that what is stored can be started.
func (s *Server) prepareOne(d *policy.Document, src policy.FragmentSource) (put store.Put, compiled *policy.Compiled, err error) {
	pins, contents, err := policy.Pin(d, src)
	if err != nil {
		return store.Put{}, nil, err
	}
	if p := d.Resource.GetLandlockPolicy(); p != nil {
		o := policy.CompileOptions{Parameters: policy.ExampleParameters(p), Fragments: src, Document: d}
		if compiled, err = policy.Compile(p, o); err != nil {
			return store.Put{}, nil, err
		}
	}
	if p := d.Resource.GetSmackPolicy(); p != nil {
		if _, err = policy.CompileSmack(p, d); err != nil {
			return store.Put{}, nil, err
		}
	}
	return store.Put{
		Kind: d.Kind, Name: d.Name, Resource: d.Resource, Source: d.Source, SourceName: d.File, SourceLine: uint32(d.FirstLine),
		Digest: policy.ContentDigest(d.Resource, pins), Pins: pins, PinContents: contents,
	}, compiled, nil
}

// maxLacks bounds what one remark says of a kernel, bytes.
const maxLacks = 600

// lacks remarks on a policy that this host's kernel would refuse to start.
func (s *Server) lacks(d *policy.Document, p *profile.Profile) []*apiv1.Finding {
	_, _, err := enforceable(p, s.support)
	if err == nil {
		return nil
	}
	if s.support.State != landlock.Available && s.support.Err != nil {
		err = s.support.Err // all rights are missing then: no use in naming them
	}
	return []*apiv1.Finding{{
		Severity: apiv1.Finding_SEVERITY_WARNING, Code: "kernel-lacks", File: d.File, Line: uint32(d.FirstLine), Field: "spec.abi",
		Message: clip("policy "+d.Name+" cannot be started on this host: "+err.Error(), maxLacks),
	}}
}

// newestFragments finds fragments for documents that are being stored: those of the same request
// first, then the newest stored ones, which the caller must be allowed to see.
type newestFragments struct {
	server *Server
	caller *Caller
	batch  map[string]*apiv1.Fragment
}

func (n *newestFragments) Fragment(name string) (*apiv1.Fragment, error) {
	if policy.IsReserved(name) {
		return policy.Std().Fragment(name)
	}
	if f := n.batch[name]; f != nil {
		return f, nil
	}
	if err := n.caller.require(config.RoleViewer, store.KindFragment, name); err != nil {
		return nil, err
	}
	v, err := n.server.store.Get(store.KindFragment, name)
	if err != nil {
		return nil, err
	}
	return v.GetResource().GetFragment(), nil
}

// Apply stores documents, all or none.
func (s *Server) Apply(ctx context.Context, req *apiv1.ApplyRequest) (*apiv1.ApplyResponse, error) {
	c := callerFrom(ctx)
	b, err := s.prepare(c, config.RoleAdmin, req.GetFiles(), req.GetResources(), req.GetStrict())
	if err != nil {
		return nil, err
	}
	if len(b.puts) == 0 {
		return nil, invalidField("files", "nothing but tests, and policyd does not store tests: run them with policyctl test")
	}
	if req.GetExpect() != nil {
		if len(b.puts) != 1 {
			return nil, invalidField("expect", "the request has %d documents; an expected version goes with one", len(b.puts))
		}
		n := req.GetExpect().GetNumber()
		b.puts[0].Expect = &n
	}
	var applied []store.Applied
	if req.GetDryRun() {
		applied, err = s.foresee(b.puts)
	} else {
		applied, err = s.store.Apply(ctx, actorOf(ctx, req.GetMessage(), req.GetRequestId(), req), b.puts)
		if slices.ContainsFunc(b.puts, func(p store.Put) bool { return p.Kind == store.KindBinding }) {
			s.bindingsChanged()
		}
		s.changed()
	}
	if err != nil {
		return nil, about(err, b.puts)
	}
	resp := &apiv1.ApplyResponse{Findings: b.findings}
	for _, a := range applied {
		r := &apiv1.ApplyResponse_Result{Version: a.Info, Outcome: a.Outcome}
		if a.Info.GetKind() == store.KindLandlockPolicy {
			if r.RunningOlder, err = s.runningOlder(a.Info); err != nil {
				return nil, err
			}
		}
		resp.Results = append(resp.Results, r)
	}
	older, err := s.pinsOlder(c, b)
	if err != nil {
		return nil, err
	}
	resp.Findings = append(resp.Findings, older...)
	return resp, nil
}

// about names the document of an error when there is only one.
func about(err error, puts []store.Put) error {
	if len(puts) == 1 {
		return withResource(err, puts[0].Kind, puts[0].Name)
	}
	return err
}

// foresee tells what an apply would do.
func (s *Server) foresee(puts []store.Put) ([]store.Applied, error) {
	out := make([]store.Applied, 0, len(puts))
	for _, p := range puts {
		if err := s.store.CheckFleet(p.Kind, p.Name, false); err != nil {
			return nil, err
		}
		info, err := s.store.Info(p.Kind, p.Name)
		missing := errors.Is(err, errs.ErrNotFound) || errors.Is(err, errs.ErrDeleted)
		if err != nil && !missing {
			return nil, err
		}
		var newest uint64
		if !missing {
			newest = info.GetNumber()
		}
		if p.Expect != nil && *p.Expect != newest {
			return nil, fmt.Errorf("%w: %s %q has version %d, not %d", errs.ErrVersionMismatch, p.Kind, p.Name, newest, *p.Expect)
		}
		meta := policy.MetadataOf(p.Resource)
		a := store.Applied{Outcome: apiv1.ApplyResponse_OUTCOME_CREATED, Info: &apiv1.VersionInfo{
			Kind: p.Kind, Name: p.Name, Number: newest + 1, Digest: p.Digest, Parent: newest, Pins: p.Pins,
			Labels: meta.GetLabels(), Description: meta.GetDescription(),
		}}
		switch {
		case !missing && info.GetDigest() == p.Digest:
			a = store.Applied{Outcome: apiv1.ApplyResponse_OUTCOME_UNCHANGED, Info: info}
		case !missing:
			a.Outcome = apiv1.ApplyResponse_OUTCOME_CHANGED
		}
		out = append(out, a)
	}
	return out, nil
}

// pinsOlder remarks on stored policies that go on with the earlier content of a fragment of the batch.
func (s *Server) pinsOlder(c *Caller, b *batch) ([]*apiv1.Finding, error) {
	digests := map[string]string{}
	for name, f := range b.fragments {
		digests[name] = policy.ContentDigest(&apiv1.Resource{Kind: &apiv1.Resource_Fragment{Fragment: f}}, nil)
	}
	if len(digests) == 0 {
		return nil, nil
	}
	infos, _, err := s.store.List(store.KindLandlockPolicy, store.Filter{})
	if err != nil {
		return nil, err
	}
	inBatch := map[string]bool{}
	for _, p := range b.puts {
		inBatch[p.Kind+"/"+p.Name] = true
	}
	var out []*apiv1.Finding
	for _, info := range infos {
		if inBatch[info.GetKind()+"/"+info.GetName()] || c.roleFor(info.GetName()) < config.RoleViewer {
			continue
		}
		for _, pin := range info.GetPins() {
			if now, ok := digests[pin.GetName()]; ok && now != pin.GetDigest() {
				out = append(out, &apiv1.Finding{
					Severity: apiv1.Finding_SEVERITY_WARNING, Code: "pinned-older",
					Message: fmt.Sprintf("policy %s@%d keeps fragment %q as it was when the policy was stored; apply the policy again to take this one",
						info.GetName(), info.GetNumber(), pin.GetName()),
				})
			}
		}
	}
	return out, nil
}

// runningOlder counts the sandboxes alive on an older version of a policy.
func (s *Server) runningOlder(info *apiv1.VersionInfo) (uint32, error) {
	boxes, _, err := s.sandboxes.List(sandbox.Filter{Policy: info.GetName()})
	if err != nil {
		return 0, err
	}
	n := uint32(0)
	for _, b := range boxes {
		if b.GetVersion() < info.GetNumber() {
			n++
		}
	}
	return n, nil
}

// Validate checks documents as Apply would. Findings that are errors are the answer here, not an error.
func (s *Server) Validate(ctx context.Context, req *apiv1.ValidateRequest) (*apiv1.ValidateResponse, error) {
	b, err := s.prepare(callerFrom(ctx), config.RoleViewer, req.GetFiles(), req.GetResources(), req.GetStrict())
	var found *findingsError
	switch {
	case errors.As(err, &found):
		return &apiv1.ValidateResponse{Findings: found.found}, nil
	case err != nil:
		return nil, err
	}
	return &apiv1.ValidateResponse{Findings: b.findings}, nil
}
