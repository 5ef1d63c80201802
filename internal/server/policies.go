package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/store"
)

// Sizes of pages.
const (
	defaultPage = 100
	maxPage     = 1000
)

func pageSize(asked uint32) int {
	if asked == 0 {
		return defaultPage
	}
	return int(min(asked, maxPage))
}

func checkKind(kind string) error {
	if slices.Contains(store.Kinds(), kind) {
		return nil
	}
	return invalidField("kind", "%.80q is not one of %s", kind, strings.Join(store.Kinds(), ", "))
}

// refName is the name in a reference, for the check of roles before anything is looked up.
func refName(kind, ref string) (string, error) {
	if err := checkKind(kind); err != nil {
		return "", err
	}
	r, err := store.ParseRef(kind, ref)
	if err != nil {
		return "", err
	}
	return r.Name, nil
}

// GetVersion returns a version, or a shipped fragment.
func (s *Server) GetVersion(ctx context.Context, req *apiv1.GetVersionRequest) (*apiv1.GetVersionResponse, error) {
	name, err := refName(req.GetKind(), req.GetRef())
	if err != nil {
		return nil, err
	}
	if err := callerFrom(ctx).require(config.RoleViewer, req.GetKind(), name); err != nil {
		return nil, err
	}
	if req.GetKind() == store.KindFragment && policy.IsReserved(name) {
		for _, d := range policy.StdFragments() {
			if d.Name == req.GetRef() {
				return &apiv1.GetVersionResponse{Version: shipped(d)}, nil
			}
		}
	}
	v, err := s.store.Get(req.GetKind(), req.GetRef())
	if err != nil {
		return nil, withResource(err, req.GetKind(), req.GetRef())
	}
	return &apiv1.GetVersionResponse{Version: v}, nil
}

// shipped is a fragment of the standard set as a version. It has no number: it changes with policyd.
func shipped(d *policy.Document) *apiv1.Version {
	meta := d.Resource.GetFragment().GetMetadata()
	return &apiv1.Version{
		Info: &apiv1.VersionInfo{
			Kind: d.Kind, Name: d.Name, Digest: policy.ContentDigest(d.Resource, nil), Author: "policyd",
			Labels: meta.GetLabels(), Description: meta.GetDescription(),
		},
		Resource: d.Resource, Source: d.Source, SourceName: d.File, SourceLine: uint32(d.FirstLine),
	}
}

// List lists the newest versions that the caller may see. The shipped fragments come after the stored ones.
func (s *Server) List(ctx context.Context, req *apiv1.ListRequest) (*apiv1.ListResponse, error) {
	if err := checkKind(req.GetKind()); err != nil {
		return nil, err
	}
	c := callerFrom(ctx)
	infos, next, err := s.store.List(req.GetKind(), store.Filter{
		Labels: req.GetLabels(), After: req.GetPageToken(), Limit: pageSize(req.GetPageSize()),
	})
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ListResponse{NextPageToken: next}
	for _, info := range infos {
		if c.roleFor(info.GetName()) >= config.RoleViewer {
			resp.Versions = append(resp.Versions, info)
		}
	}
	if next == "" && req.GetKind() == store.KindFragment {
		for _, d := range policy.StdFragments() {
			if v := shipped(d).GetInfo(); hasLabels(v, req.GetLabels()) {
				resp.Versions = append(resp.Versions, v)
			}
		}
	}
	return resp, nil
}

func hasLabels(info *apiv1.VersionInfo, want map[string]string) bool {
	for k, v := range want {
		if got, ok := info.GetLabels()[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// ListVersions lists a history; the page token is the number of the last version of the page before.
func (s *Server) ListVersions(ctx context.Context, req *apiv1.ListVersionsRequest) (*apiv1.ListVersionsResponse, error) {
	if err := checkKind(req.GetKind()); err != nil {
		return nil, err
	}
	if err := callerFrom(ctx).require(config.RoleViewer, req.GetKind(), req.GetName()); err != nil {
		return nil, err
	}
	var before uint64
	if t := req.GetPageToken(); t != "" {
		var err error
		if before, err = strconv.ParseUint(t, 10, 64); err != nil || before == 0 {
			return nil, invalidField("page_token", "%.80q is not one that ListVersions gave", t)
		}
	}
	limit := pageSize(req.GetPageSize())
	infos, err := s.store.History(req.GetKind(), req.GetName(), before, limit+1)
	if err != nil {
		return nil, withResource(err, req.GetKind(), req.GetName())
	}
	resp := &apiv1.ListVersionsResponse{Versions: infos}
	if len(infos) > limit {
		resp.Versions = infos[:limit]
		resp.NextPageToken = strconv.FormatUint(infos[limit-1].GetNumber(), 10)
	}
	return resp, nil
}

// Rollback makes an earlier version's content the newest.
func (s *Server) Rollback(ctx context.Context, req *apiv1.RollbackRequest) (*apiv1.RollbackResponse, error) {
	if err := checkKind(req.GetKind()); err != nil {
		return nil, err
	}
	if err := callerFrom(ctx).require(config.RoleOperator, req.GetKind(), req.GetName()); err != nil {
		return nil, err
	}
	if req.GetTo() == 0 {
		return nil, invalidField("to", "no version number")
	}
	info, err := s.store.Rollback(ctx, actorOf(ctx, req.GetMessage(), req.GetRequestId(), req),
		req.GetKind(), req.GetName(), req.GetTo(), expected(req.GetExpect()))
	if req.GetKind() == store.KindBinding {
		s.bindingsChanged()
	}
	s.changed()
	if err != nil {
		return nil, withResource(err, req.GetKind(), req.GetName())
	}
	resp := &apiv1.RollbackResponse{Version: info}
	if req.GetKind() == store.KindLandlockPolicy {
		if resp.RunningOlder, err = s.runningOlder(info); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func expected(e *apiv1.Expectation) *uint64 {
	if e == nil {
		return nil
	}
	n := e.GetNumber()
	return &n
}

// SetTag points a tag at a version, or removes it.
func (s *Server) SetTag(ctx context.Context, req *apiv1.SetTagRequest) (*apiv1.SetTagResponse, error) {
	name, err := refName(req.GetKind(), req.GetRef())
	if err != nil {
		return nil, err
	}
	if err := callerFrom(ctx).require(config.RoleOperator, req.GetKind(), name); err != nil {
		return nil, err
	}
	info, err := s.store.SetTag(ctx, actorOf(ctx, "", req.GetRequestId(), req), req.GetKind(), req.GetRef(), req.GetTag(), req.GetRemove(), expected(req.GetExpect()))
	s.changed()
	if err != nil {
		return nil, withResource(err, req.GetKind(), req.GetRef())
	}
	return &apiv1.SetTagResponse{Version: info}, nil
}

// Delete removes a document; it is refused while something refers to it.
func (s *Server) Delete(ctx context.Context, req *apiv1.DeleteRequest) (*apiv1.DeleteResponse, error) {
	if err := checkKind(req.GetKind()); err != nil {
		return nil, err
	}
	if err := callerFrom(ctx).require(config.RoleAdmin, req.GetKind(), req.GetName()); err != nil {
		return nil, err
	}
	if req.GetKind() == store.KindLandlockPolicy {
		// The store refuses too, but learns of a start only with the next group commit.
		alive, _, err := s.sandboxes.List(sandbox.Filter{Policy: req.GetName()})
		if err != nil {
			return nil, err
		}
		if len(alive) > 0 {
			text := fmt.Sprintf("sandbox %s of policy %q is alive", alive[0].GetId(), req.GetName())
			if more := len(alive) - 1; more > 0 {
				text += fmt.Sprintf(", and %d more", more)
			}
			return nil, withResource(fmt.Errorf("%w: %s", errs.ErrReferenced, text), req.GetKind(), req.GetName())
		}
	}
	err := s.store.Delete(ctx, actorOf(ctx, "", req.GetRequestId(), req), req.GetKind(), req.GetName(), expected(req.GetExpect()), req.GetPurge())
	if req.GetKind() == store.KindBinding {
		s.bindingsChanged()
	}
	s.changed()
	if err != nil {
		return nil, withResource(err, req.GetKind(), req.GetName())
	}
	return &apiv1.DeleteResponse{}, nil
}
