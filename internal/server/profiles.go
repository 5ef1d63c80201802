package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/store"
)

// answersMost bounds the memory of answers of GetProfile, bytes of profiles; they share those of compiled.
const answersMost = 64 << 20

// answer is what GetProfile says of a reference until something is changed. Both messages are shared
// by all calls and never changed.
type answer struct {
	whole       *apiv1.GetProfileResponse
	notModified *apiv1.GetProfileResponse
	// policy is the name the caller needs a role for.
	policy string
}

// GetProfile returns the compiled profile of a version, reduced to what the ABI asked for can enforce.
func (s *Server) GetProfile(ctx context.Context, req *apiv1.GetProfileRequest) (*apiv1.GetProfileResponse, error) {
	c := callerFrom(ctx)
	a, err := s.profileOf(ctx, c, req)
	if err != nil {
		return nil, err
	}
	if req.GetKnownDigest() != "" && req.GetKnownDigest() == a.whole.GetProfileDigest() {
		return s.labelled(a.notModified, req), nil
	}
	return s.labelled(a.whole, req), nil
}

// labelled adds to an answer with a Smack label why nothing may be started with it now, on this host.
func (s *Server) labelled(r *apiv1.GetProfileResponse, req *apiv1.GetProfileRequest) *apiv1.GetProfileResponse {
	if r.GetSmackLabel() == "" || req.GetAbi() != 0 {
		return r
	}
	err := s.host.Labels()
	if err == nil {
		return r
	}
	told := proto.CloneOf(r)
	told.SmackError = err.Error()
	return told
}

func (s *Server) profileOf(ctx context.Context, c *Caller, req *apiv1.GetProfileRequest) (*answer, error) {
	if req.GetWorkload() != nil {
		return s.profileFor(ctx, c, req)
	}
	key := answerKey(req)
	if a, ok := s.answers.get(key); ok {
		return a, c.require(config.RoleViewer, store.KindLandlockPolicy, a.policy)
	}
	return s.answer(ctx, c, s.generation.Load(), key, req.GetAbi(), &bound{ref: req.GetRef(), parameters: req.GetParameters()})
}

// answer makes the answer for what a workload or a reference leads to, and keeps it under the key unless something changed
// since the generation.
func (s *Server) answer(ctx context.Context, c *Caller, generation uint64, key string, abi uint32, b *bound) (*answer, error) {
	name, err := refName(store.KindLandlockPolicy, b.ref)
	if err != nil {
		return nil, err
	}
	if err := c.require(config.RoleViewer, store.KindLandlockPolicy, name); err != nil {
		return nil, err
	}
	sup := s.support
	if abi != 0 {
		if abi > profile.MaxABI {
			return nil, invalidField("abi", "%d is not one of 1 to %d", abi, profile.MaxABI)
		}
		sup = landlock.Support{State: landlock.Available, ABI: int(abi)}
	}
	v, err := s.resolve(b.ref)
	if err != nil {
		return nil, err
	}
	if err := b.checkAnnotated(v.GetResource().GetLandlockPolicy()); err != nil {
		return nil, err
	}
	full, err := s.compile(ctx, v, b.parameters)
	if err != nil {
		return nil, err
	}
	reduced, lost, err := enforceable(full.profile, sup)
	if err != nil {
		return nil, err
	}
	whole := &apiv1.GetProfileResponse{
		Profile: full.encoded, ProfileDigest: full.digest, Version: v.GetInfo(),
		Origins: full.origins, LayerPlaces: full.layerPlaces, Binding: b.name(),
		SmackLabel: v.GetResource().GetLandlockPolicy().GetSpec().GetProcess().GetSmackLabel(), Missing: missingRights(lost),
		Process: besideLabel(v.GetResource().GetLandlockPolicy().GetSpec().GetProcess()),
	}
	if whole.SmackLabel != "" && full.profile.Degrade && abi == 0 && s.host.Absent() {
		whole.Missing = append(whole.Missing, &apiv1.MissingRight{Kind: "smack", Right: whole.SmackLabel})
		whole.SmackLabel = ""
	}
	if len(lost) > 0 {
		// A profile without layers has no encoding: nothing of it can be enforced there, which missing tells.
		whole.Profile, whole.ProfileDigest, whole.Origins, whole.LayerPlaces = nil, "", nil, nil
		if len(reduced.Layers) > 0 {
			whole.Profile = reduced.Encode()
			whole.ProfileDigest = profile.Digest(whole.Profile)
		}
	}
	a := &answer{
		whole: whole,
		notModified: &apiv1.GetProfileResponse{
			NotModified: true, ProfileDigest: whole.ProfileDigest, Version: v.GetInfo(), Missing: whole.Missing, Binding: b.name(), SmackLabel: whole.SmackLabel,
			Process: whole.Process,
		},
		policy: name,
	}
	s.remember(generation, func() { s.answers.put(key, a, 1024+len(whole.Profile)) })
	return a, nil
}

// besideLabel is what a policy gives its processes without the Smack label, nil when that is nothing.
func besideLabel(p *apiv1.Process) *apiv1.Process {
	if p.GetUmask() == "" && len(p.GetLimits()) == 0 && len(p.GetEnvironment()) == 0 {
		return nil
	}
	return &apiv1.Process{Umask: p.GetUmask(), Limits: p.GetLimits(), Environment: p.GetEnvironment()}
}

// enforceable is what the kernel can do of a profile. Unless the policy says degrade, anything it cannot do is an
// error with each right.
func enforceable(p *profile.Profile, sup landlock.Support) (*profile.Profile, []profile.Need, error) {
	reduced, lost := p.Reduce(sup.ABI)
	if len(lost) == 0 || p.Degrade {
		return reduced, lost, nil
	}
	names := make([]string, 0, len(lost))
	for _, n := range lost {
		names = append(names, n.String())
	}
	err := fmt.Errorf("%w: it has Landlock ABI %d: %s", errs.ErrUnsupported, sup.ABI, strings.Join(names, "; "))
	if sup.State != landlock.Available && sup.Err != nil {
		err = fmt.Errorf("%w (the policy requires: %s)", sup.Err, strings.Join(names, "; "))
	}
	return nil, lost, withMissing(err, lost)
}

func missingRights(lost []profile.Need) []*apiv1.MissingRight {
	if len(lost) == 0 {
		return nil
	}
	out := make([]*apiv1.MissingRight, 0, len(lost))
	for _, n := range lost {
		kind := n.Kind.String()
		if !n.Confines() {
			kind = "log"
			if n.Name == "quiet" {
				kind = "quiet"
			}
		}
		out = append(out, &apiv1.MissingRight{Layer: n.LayerName, Kind: kind, Right: n.Name, NeedsAbi: uint32(n.ABI)})
	}
	return out
}

// compileStored compiles the newest version of every policy and returns the errors by name. Policies with parameters
// that have no default are compiled with values they may have.
func (s *Server) compileStored(ctx context.Context) (map[string]error, error) {
	infos, _, err := s.store.List(store.KindLandlockPolicy, store.Filter{})
	if err != nil {
		return nil, err
	}
	bad := map[string]error{}
	for _, info := range infos {
		v, err := s.resolve(info.GetName())
		if errors.Is(err, errs.ErrDeleted) || errors.Is(err, errs.ErrNotFound) {
			continue // meanwhile
		}
		if err == nil {
			_, err = s.compile(ctx, v, policy.ExampleParameters(v.GetResource().GetLandlockPolicy()))
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			bad[info.GetName()] = err
		}
	}
	return bad, nil
}
