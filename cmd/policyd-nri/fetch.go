package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/binding"
	"policyd.dev/policyd/internal/cli"
)

const (
	asking   = 4                // questions at once
	patience = 30 * time.Second // for the answer to one
)

// listAll learns of every policy.
func (f *follower) listAll(ctx context.Context) error {
	names := map[string]bool{}
	for req := (&apiv1.ListRequest{Kind: kindPolicy}); ; {
		res, err := f.client.Policies.List(ctx, req)
		if err != nil {
			return err
		}
		for _, v := range res.GetVersions() {
			names[v.GetName()] = true
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	maps.DeleteFunc(f.refs, func(name string, _ []question) bool { return !names[name] })
	for name := range names {
		if err := f.list(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// list learns of the tags of a policy.
func (f *follower) list(ctx context.Context, name string) error {
	refs := []question{{ref: name}}
	for req := (&apiv1.ListVersionsRequest{Kind: kindPolicy, Name: name}); ; {
		res, err := f.client.Policies.ListVersions(ctx, req)
		if code := status.Code(err); code == codes.NotFound || code == codes.PermissionDenied {
			delete(f.refs, name)
			return nil
		}
		if err != nil {
			return err
		}
		for _, v := range res.GetVersions() {
			for _, tag := range v.GetTags() {
				refs = append(refs, question{ref: name + "@" + tag})
			}
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if f.refs == nil {
		f.refs = map[string][]question{}
	}
	f.refs[name] = refs
	return nil
}

// bind reads the Bindings.
func (f *follower) bind(ctx context.Context) (*binding.Index, error) {
	now := map[string]bound{}
	var all []*binding.Binding
	for req := (&apiv1.ListRequest{Kind: kindBinding}); ; {
		res, err := f.client.Policies.List(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, v := range res.GetVersions() {
			have := f.bindings[v.GetName()]
			if have.Binding != nil && have.Version == v.GetNumber() && have.digest == v.GetDigest() {
				now[v.GetName()] = have
				all = append(all, have.Binding)
				continue
			}
			ref := fmt.Sprintf("%s@%d", v.GetName(), v.GetNumber())
			got, err := f.client.Policies.GetVersion(ctx, &apiv1.GetVersionRequest{Kind: kindBinding, Ref: ref})
			if err != nil {
				return nil, fmt.Errorf("binding %s: %w", ref, err)
			}
			b := &binding.Binding{Name: v.GetName(), Version: v.GetNumber(), Spec: got.GetVersion().GetResource().GetBinding().GetSpec()}
			now[v.GetName()] = bound{b, v.GetDigest()}
			all = append(all, b)
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	x, err := binding.New(all)
	if err != nil {
		return nil, err
	}
	f.bindings = now
	return x, nil
}

// ask puts the answers to questions into the memory. Only that policyd could not be asked is an error.
func (f *follower) ask(ctx context.Context, questions []question) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(asking)
	for _, q := range questions {
		g.Go(func() error {
			a, err := f.question(ctx, q)
			if err != nil {
				return err
			}
			f.memory.put(a)
			return nil
		})
	}
	return g.Wait()
}

// nobody is a workload that no Binding matches: to select on an annotation, a Binding would have to know its key.
var nobody = &apiv1.Workload{Annotations: map[string]string{"nri.policyd.dev/" + cli.RequestID(): ""}}

func (f *follower) question(ctx context.Context, q question) (*answer, error) {
	req := &apiv1.GetProfileRequest{Ref: q.ref, Parameters: q.parameters}
	switch {
	case q.workload != nil:
		req = &apiv1.GetProfileRequest{Workload: q.workload}
	case q.unmatched():
		req = &apiv1.GetProfileRequest{Workload: nobody}
	}
	have := f.memory.current(q)
	if have != nil {
		req.KnownDigest = have.digest
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := f.client.Profiles.GetProfile(ctx, req)
	switch status.Code(err) {
	case codes.OK:
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return nil, err
	default:
		return &answer{question: q, err: errors.New(status.Convert(err).Message())}, nil
	}
	v := res.GetVersion()
	a := &answer{question: q, digest: res.GetProfileDigest(), version: fmt.Sprintf("%s@%d", v.GetName(), v.GetNumber())}
	for _, m := range res.GetMissing() {
		a.missing = append(a.missing, fmt.Sprintf("%s of layer %s (ABI %d)", m.GetRight(), m.GetLayer(), m.GetNeedsAbi()))
	}
	switch {
	case q.decides != "" && res.GetBinding() != q.binding:
		a.err = fmt.Errorf("meanwhile another Binding decides (%q)", res.GetBinding())
	case res.GetSmackLabel() != "":
		a.err = fmt.Errorf("it gives its processes the Smack label %q, which only policyd-runc can", res.GetSmackLabel())
	case res.GetProcess() != nil:
		a.err = errors.New("it has process.umask, process.limits or process.environment, which containers are not given")
	case res.GetNotModified():
		a.file = have.file
	case len(res.GetProfile()) == 0:
		a.err = errors.New("this kernel can enforce nothing of it")
	case profile.Digest(res.GetProfile()) != a.digest:
		a.err = errors.New("policyd's answer does not match its digest")
	default:
		a.file, a.err = f.memory.keepProfile(a.digest, res.GetProfile())
	}
	return a, nil
}
