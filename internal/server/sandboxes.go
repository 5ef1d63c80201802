package server

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/store"
)

// Bounds of what a start may carry, in the kernel's own terms: MAX_ARG_STRLEN of binfmts.h and a
// count no program needs.
const (
	maxArguments = 1 << 16
	maxArgument  = 128 << 10
)

// request authorizes a start and gathers what it needs, and gives the profile with its origins. The version found
// here is the one that is started, whatever becomes of the policy meanwhile.
func (s *Server) request(ctx context.Context, req *apiv1.StartRequest) (*sandbox.Request, *compiled, error) {
	c := callerFrom(ctx)
	spec := req.GetSpec()
	if spec == nil {
		return nil, nil, invalidField("spec", "is missing")
	}
	if err := checkSpec(spec); err != nil {
		return nil, nil, err
	}
	if id := req.GetRequestId(); id != "" && !validRequestID(id) {
		return nil, nil, invalidField("request_id", "is longer than %d characters or holds blanks", maxRequestID)
	}
	name, err := refName(store.KindLandlockPolicy, spec.GetRef())
	if err != nil {
		return nil, nil, err
	}
	if err := c.require(config.RoleUser, store.KindLandlockPolicy, name); err != nil {
		return nil, nil, err
	}
	limits := s.limits.Load()
	exempt := c.most(true) == config.RoleAdmin
	if !exempt {
		if err := s.starts.take(c.String(), s.now()); err != nil {
			return nil, nil, err
		}
	}
	if most := limits.LogBytes; spec.GetLogLimit() > most {
		return nil, nil, limitReached(c.String(), limitLogs, "log_limit is %d bytes; at most %d are kept of one sandbox", spec.GetLogLimit(), most)
	}
	account, err := c.account(spec, name, s.uid)
	if err != nil {
		return nil, nil, err
	}
	v, err := s.resolve(spec.GetRef())
	if err != nil {
		return nil, nil, err
	}
	full, err := s.compile(ctx, v, spec.GetParameters())
	if err != nil {
		return nil, nil, err
	}
	if full.unsupported != nil {
		return nil, nil, full.unsupported
	}
	process := v.GetResource().GetLandlockPolicy().GetSpec().GetProcess()
	label, pool, relabel, err := s.smackLabel(c, name, spec, process.GetSmackLabel())
	if err != nil {
		return nil, nil, err
	}
	r := &sandbox.Request{
		Spec: spec, Version: v.GetInfo(), Profile: full.profile, ProfileDigest: full.digest,
		Process: process, SmackLabel: label, SmackPool: pool, SmackRelabel: relabel,
		Cred: account.cred, User: account.user,
		Owner: c.String(), OwnerUID: c.ownerUID(), RequestID: req.GetRequestId(),
	}
	if !c.Identity.Local && r.RequestID != "" {
		// Clients of the network share a uid; their request ids must not meet.
		r.RequestID = c.String() + " " + r.RequestID
	}
	if !exempt {
		r.Admit = func(alive int) error { return s.admit(c, limits, alive) }
	}
	return r, full, nil
}

// ownerUID is the uid a sandbox is counted under; a client of the network has none.
func (c *Caller) ownerUID() uint32 {
	if c.Identity.Local {
		return c.Identity.UID
	}
	return noID
}

func (s *Server) admit(c *Caller, limits *config.Limits, alive int) error {
	if alive >= limits.Sandboxes {
		return limitReached(c.String(), limitSandboxes, "%s has %d sandboxes alive; at most %d", c, alive, limits.Sandboxes)
	}
	if used := s.sandboxes.LogBytesBy(c.ownerUID()); used >= limits.UserLogBytes {
		return limitReached(c.String(), limitLogs, "the output kept of sandboxes of %s has %d bytes; at most %d; remove sandboxes that have ended", c, used, limits.UserLogBytes)
	}
	return nil
}

func checkSpec(spec *apiv1.SandboxSpec) error {
	switch argv := spec.GetArgv(); {
	case len(argv) == 0 || argv[0] == "":
		return invalidField("spec.argv", "no program")
	case len(argv) > maxArguments:
		return invalidField("spec.argv", "%d arguments; at most %d", len(argv), maxArguments)
	case len(spec.GetEnvironment()) > maxArguments:
		return invalidField("spec.environment", "%d entries; at most %d", len(spec.GetEnvironment()), maxArguments)
	}
	for field, list := range map[string][]string{"spec.argv": spec.GetArgv(), "spec.environment": spec.GetEnvironment()} {
		for i, text := range list {
			if len(text) >= maxArgument {
				return invalidField(fmt.Sprintf("%s[%d]", field, i), "%d bytes; the kernel takes less than %d", len(text), maxArgument)
			}
		}
	}
	return nil
}

// Start starts a detached sandbox.
func (s *Server) Start(ctx context.Context, req *apiv1.StartRequest) (*apiv1.StartResponse, error) {
	r, full, err := s.request(ctx, req)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandboxes.Start(ctx, r)
	if err != nil {
		return nil, withResource(full.place(err), store.KindLandlockPolicy, req.GetSpec().GetRef())
	}
	notedSandbox(ctx, sb)
	return &apiv1.StartResponse{Sandbox: sb}, nil
}

// visible finds a sandbox the caller may tend.
func (s *Server) visible(ctx context.Context, id string) (*apiv1.Sandbox, error) {
	sb, err := s.sandboxes.Get(id)
	if err != nil {
		return nil, withResource(err, "sandbox", id)
	}
	return sb, callerFrom(ctx).requireSandbox(sb)
}

// GetSandbox returns a sandbox of the caller's.
func (s *Server) GetSandbox(ctx context.Context, req *apiv1.GetSandboxRequest) (*apiv1.GetSandboxResponse, error) {
	sb, err := s.visible(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	return &apiv1.GetSandboxResponse{Sandbox: sb}, nil
}

// ListSandboxes lists what the caller may tend; a page may hold less than its size.
func (s *Server) ListSandboxes(ctx context.Context, req *apiv1.ListSandboxesRequest) (*apiv1.ListSandboxesResponse, error) {
	c := callerFrom(ctx)
	list, next, err := s.sandboxes.List(sandbox.Filter{
		Ended: req.GetAll(), Policy: req.GetPolicy(), After: req.GetPageToken(), Limit: pageSize(req.GetPageSize()),
	})
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ListSandboxesResponse{NextPageToken: next}
	for _, sb := range list {
		if c.requireSandbox(sb) == nil {
			resp.Sandboxes = append(resp.Sandboxes, sb)
		}
	}
	return resp, nil
}

// Wait returns when the sandbox has ended, or when policyd is told to stop.
func (s *Server) Wait(ctx context.Context, req *apiv1.WaitRequest) (*apiv1.WaitResponse, error) {
	sb, err := s.visible(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	exit, err := s.sandboxes.Wait(ctx, sb.GetId())
	if err != nil {
		return nil, withResource(err, "sandbox", sb.GetId())
	}
	return &apiv1.WaitResponse{Exit: exit}, nil
}

// Signal sends a signal, or ends everything.
func (s *Server) Signal(ctx context.Context, req *apiv1.SignalRequest) (*apiv1.SignalResponse, error) {
	sb, err := s.visible(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	if err := s.sandboxes.Signal(sb.GetId(), int(req.GetSignal()), req.GetAll()); err != nil {
		return nil, withResource(err, "sandbox", sb.GetId())
	}
	return &apiv1.SignalResponse{}, nil
}

// Logs streams kept output.
func (s *Server) Logs(req *apiv1.LogsRequest, stream grpc.ServerStreamingServer[apiv1.LogsResponse]) error {
	sb, err := s.visible(stream.Context(), req.GetId())
	if err != nil {
		return err
	}
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	return s.sandboxes.Logs(ctx, sb.GetId(), sandbox.LogOptions{Follow: req.GetFollow(), Tail: req.GetTail()}, stream.Send)
}

// Remove forgets an ended sandbox.
func (s *Server) Remove(ctx context.Context, req *apiv1.RemoveRequest) (*apiv1.RemoveResponse, error) {
	sb, err := s.visible(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	if err := s.sandboxes.Remove(ctx, sb.GetId()); err != nil {
		return nil, withResource(err, "sandbox", sb.GetId())
	}
	return &apiv1.RemoveResponse{}, nil
}

// Usage tells what the sandboxes the caller may tend use now.
func (s *Server) Usage(ctx context.Context, _ *apiv1.UsageRequest) (*apiv1.UsageResponse, error) {
	c := callerFrom(ctx)
	resp := &apiv1.UsageResponse{}
	for _, u := range s.sandboxes.Usage() {
		if c.requireSandbox(u.GetSandbox()) == nil {
			resp.Usages = append(resp.Usages, u)
		}
	}
	return resp, nil
}
