package server

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/store"
)

// Status tells about the daemon, its kernel and the caller.
func (s *Server) Status(ctx context.Context, _ *apiv1.StatusRequest) (*apiv1.StatusResponse, error) {
	c := callerFrom(ctx)
	s.settle(ctx)
	stats, err := s.store.Stats()
	if err != nil {
		return nil, err
	}
	if c.most(true) < config.RoleOperator {
		stats.Path = "" // where root keeps it is nobody else's business
	}
	alive, _, err := s.sandboxes.List(sandbox.Filter{})
	if err != nil {
		return nil, err
	}
	resp := &apiv1.StatusResponse{
		Version: buildinfo.Version, Started: timestamppb.New(s.started), Landlock: landlockStatus(s.support),
		Configuration: s.configuration.Load(),
		Smack:         s.smackStatus(ctx, c), Store: stats, Caller: c.String(), Roles: c.roles(), Containment: s.containment, Kernel: kernelRelease(),
		Fleet: s.fleetStatus(),
	}
	for _, sb := range alive {
		if c.requireSandbox(sb) != nil {
			continue
		}
		resp.Sandboxes++
		if len(sb.GetMissing()) > 0 {
			resp.Degraded++
		}
		if sb.GetOutdated() {
			resp.Outdated++
		}
	}
	return resp, nil
}

func landlockStatus(sup landlock.Support) *apiv1.LandlockStatus {
	st := &apiv1.LandlockStatus{Abi: uint32(sup.ABI)}
	switch sup.State {
	case landlock.Available:
		st.State = apiv1.LandlockStatus_STATE_AVAILABLE
	case landlock.NotBuilt:
		st.State = apiv1.LandlockStatus_STATE_NOT_BUILT
	case landlock.Disabled:
		st.State = apiv1.LandlockStatus_STATE_DISABLED
	case landlock.Blocked:
		st.State = apiv1.LandlockStatus_STATE_BLOCKED
	}
	for _, n := range sup.Errata {
		st.Errata = append(st.Errata, uint32(n))
	}
	if sup.Err != nil {
		st.Detail = sup.Err.Error()
	}
	return st
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// eventsPage is how many entries of the log are read at once.
const eventsPage = 256

// Events streams the log, from a number or the last few, and goes on with follow.
func (s *Server) Events(req *apiv1.EventsRequest, stream grpc.ServerStreamingServer[apiv1.EventsResponse]) error {
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	s.settle(ctx)
	// Watch before the first read: what comes between the two wakes the loop.
	wake, unwatch := s.store.Watch()
	defer unwatch()
	from := max(req.GetFrom(), 1)
	if tail := uint64(req.GetTail()); tail > 0 {
		last, err := s.store.LastSeq()
		if err != nil {
			return err
		}
		if last >= tail {
			from = max(from, last-tail+1)
		}
	}
	for {
		events, err := s.store.Events(from, eventsPage)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := stream.Send(&apiv1.EventsResponse{Event: e}); err != nil {
				return err
			}
			from = e.GetSeq() + 1
		}
		switch {
		case len(events) > 0:
			continue
		case !req.GetFollow():
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settlePatience is how long a reader of the store waits for starts that are under way to it.
const settlePatience = 2 * time.Second

// settle lets a reader see the starts and ends that were answered before it asked. A store that takes none
// (it is full) must still be readable, so this only waits a while.
func (s *Server) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	if err := s.sandboxes.Flush(ctx); err != nil {
		s.log.Warn("starts and ends are not in the store yet", "error", err)
	}
}

// backupChunk is the size of a message of a backup, bytes.
const backupChunk = 256 << 10

// Backup streams a consistent copy of the store.
func (s *Server) Backup(_ *apiv1.BackupRequest, stream grpc.ServerStreamingServer[apiv1.BackupResponse]) error {
	s.settle(stream.Context())
	w := &backupWriter{stream: stream}
	_, err := s.store.Backup(w)
	return err
}

// backupWriter cuts what it is given into messages.
type backupWriter struct {
	stream grpc.ServerStreamingServer[apiv1.BackupResponse]
	total  uint64
}

// SetSize implements [store.Sizer]; the size goes with the first bytes.
func (w *backupWriter) SetSize(bytes int64) { w.total = uint64(bytes) }

var _ store.Sizer = (*backupWriter)(nil)

func (w *backupWriter) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		chunk := p[:min(len(p), backupChunk)]
		if err := w.stream.Send(&apiv1.BackupResponse{Data: chunk, TotalBytes: w.total}); err != nil {
			return n, err
		}
		w.total = 0
		n += len(chunk)
		p = p[len(chunk):]
	}
	return n, nil
}

// CheckStore verifies the store and compiles every stored policy.
func (s *Server) CheckStore(ctx context.Context, _ *apiv1.CheckStoreRequest) (*apiv1.CheckStoreResponse, error) {
	s.settle(ctx)
	problems, entries, head, err := s.store.Check(ctx)
	if err != nil {
		return nil, err
	}
	bad, err := s.compileStored(ctx)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.CheckStoreResponse{Problems: problems, LogEntries: entries, LogHead: head}
	for _, name := range sortedKeys(bad) {
		resp.Findings = append(resp.Findings, storedFindings(name, bad[name])...)
	}
	return resp, nil
}

// storedFindings are the findings of a stored policy that no longer compiles.
func storedFindings(name string, err error) []*apiv1.Finding {
	var p problems
	if err := p.add(err); err != nil {
		return []*apiv1.Finding{{Severity: apiv1.Finding_SEVERITY_ERROR, Code: "stored-policy", Message: "policy " + name + ": " + err.Error()}}
	}
	for _, f := range p.found {
		if !strings.Contains(f.GetMessage(), name) {
			f.Message = "policy " + name + ": " + f.GetMessage()
		}
	}
	return p.found
}
