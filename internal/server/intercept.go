package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/peer"
)

// RequestIDKey names the metadata that carries a request's id: taken from the client when it is
// sensible, else made, and sent back in the trailer.
const RequestIDKey = "x-request-id"

const maxRequestID = 128

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	c, ctx := s.begin(ctx, info.FullMethod)
	start := time.Now()
	defer func() {
		resp, err = s.finish(ctx, c, start, resp, err, recover())
		_ = grpc.SetTrailer(ctx, metadata.Pairs(RequestIDKey, c.id))
	}()
	if err := s.allowed(c); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	c, ctx := s.begin(ss.Context(), info.FullMethod)
	start := time.Now()
	defer func() {
		_, err = s.finish(ctx, c, start, nil, err, recover())
		ss.SetTrailer(metadata.Pairs(RequestIDKey, c.id))
	}()
	if err := s.allowed(c); err != nil {
		return err
	}
	if info.FullMethod == healthv1.Health_Watch_FullMethodName {
		// It would wait for the next change of health for ever, and hold up a graceful stop.
		var cancel context.CancelFunc
		ctx, cancel = s.untilStop(ctx)
		defer cancel()
		watch := &healthStream{contextStream: contextStream{ss, ctx}}
		err := handler(srv, watch)
		if s.stopping.Err() != nil && watch.last == healthv1.HealthCheckResponse_SERVING {
			// The end of the context came before the news of it.
			_ = watch.SendMsg(&healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}) // a client that is gone need not know
		}
		return err
	}
	return handler(srv, &contextStream{ss, ctx})
}

// healthStream is a watch of health that knows what it said last.
type healthStream struct {
	contextStream
	last healthv1.HealthCheckResponse_ServingStatus
}

func (s *healthStream) SendMsg(m any) error {
	if r, ok := m.(*healthv1.HealthCheckResponse); ok {
		s.last = r.GetStatus()
	}
	return s.contextStream.SendMsg(m)
}

// contextStream is a stream whose context knows the call.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *contextStream) Context() context.Context { return s.ctx }

// begin finds out who calls. A connection without an identity makes a caller without roles.
func (s *Server) begin(ctx context.Context, method string) (*call, context.Context) {
	id, ok := peer.FromContext(ctx)
	if !ok {
		id = &peer.Identity{}
	}
	c := &call{caller: s.authority.Load().caller(id), method: method}
	c.caller.doing = methods[method].doing
	if given := metadata.ValueFromIncomingContext(ctx, RequestIDKey); len(given) == 1 && validRequestID(given[0]) {
		c.id = given[0]
	} else {
		c.id = newRequestID()
	}
	return c, context.WithValue(ctx, callKey{}, c)
}

// validRequestID keeps ids from breaking lines of logs.
func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

func newRequestID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// allowed checks the table of roles. A method without a row is allowed to nobody.
func (s *Server) allowed(c *call) error {
	need, ok := methods[c.method]
	if !ok {
		return fmt.Errorf("%w: %s is in no table of roles", errs.ErrNotAllowed, c.method)
	}
	if c.caller.most(need.global) < need.least {
		scope := ""
		if need.global {
			scope = " of everything"
		}
		why := ""
		if reason := c.caller.Identity.Confined; reason != "" {
			why = ", whose process is at most viewer: " + reason
		}
		return fmt.Errorf("%w: to %s needs the role %s%s, and %s has not%s", errs.ErrNotAllowed, need.doing, need.least, scope, c.caller, why)
	}
	return nil
}

// finish turns what came out of a handler into the client's answer and the log's line.
func (s *Server) finish(ctx context.Context, c *call, start time.Time, resp any, err error, panicked any) (any, error) {
	if panicked != nil {
		s.log.ErrorContext(ctx, "handler panicked", "request_id", c.id, "method", shortMethod(c.method),
			"panic", panicked, "stack", string(debug.Stack()))
		resp, err = nil, fmt.Errorf("panic: %v", panicked)
	}
	need := methods[c.method]
	if err == nil {
		level := slog.LevelDebug
		if need.write {
			level = slog.LevelInfo
		}
		if s.log.Enabled(ctx, level) {
			s.log.LogAttrs(ctx, level, "request", s.attrs(c, start, codes.OK)...)
		}
		return resp, nil
	}
	st, known := toStatus(err, c.id)
	level := slog.LevelInfo
	switch {
	case !known:
		level = slog.LevelError
	case st.Code() == codes.PermissionDenied || st.Code() == codes.DataLoss:
		level = slog.LevelWarn
	case st.Code() == codes.Canceled:
		level = slog.LevelDebug
	}
	s.log.LogAttrs(ctx, level, "request refused", append(s.attrs(c, start, st.Code()),
		slog.String("error", err.Error()))...)
	return nil, st.Err()
}

func (s *Server) attrs(c *call, start time.Time, code codes.Code) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("request_id", c.id), slog.String("caller", c.caller.String()),
		slog.String("method", shortMethod(c.method)), slog.String("code", code.String()),
		slog.String("took", time.Since(start).Round(time.Microsecond).String()),
	}
	if id := c.caller.Identity; id.Local {
		attrs = append(attrs, slog.Int("pid", int(id.PID)))
		if program := id.Program(); program != "" {
			attrs = append(attrs, slog.String("program", program))
		}
	}
	return append(attrs, c.noted...)
}

// shortMethod is "PolicyService/Apply" of "/policyd.v1.PolicyService/Apply".
func shortMethod(full string) string {
	return strings.TrimPrefix(full[strings.LastIndexByte(full[:max(strings.LastIndexByte(full, '/'), 0)], '.')+1:], "/")
}
