package metrics

import (
	"context"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

const (
	howAttached = "attached"
	howDetached = "detached"
)

// reasonOther is that of an error which names none.
const reasonOther = "OTHER"

// reasonNoBinding is that of the table of errors of internal/server.
const reasonNoBinding = "NO_BINDING"

// Unary counts calls. It must see the errors that clients get, so it stands before the interceptors that make them.
func (m *Metrics) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if m == nil {
		return handler(ctx, req)
	}
	begun := time.Now()
	resp, err := handler(ctx, req)
	took := time.Since(begun)
	method := shortMethod(info.FullMethod)
	m.counters[rpcs].WithLabelValues(method, status.Code(err).String()).Inc()
	m.times[rpcDuration].WithLabelValues(method).Observe(took.Seconds())
	switch info.FullMethod {
	case apiv1.ProfileService_GetProfile_FullMethodName:
		got, _ := resp.(*apiv1.GetProfileResponse)
		m.counters[profileAsked].WithLabelValues(answer(got, err)).Inc()
	case apiv1.SandboxService_Start_FullMethodName:
		got, _ := resp.(*apiv1.StartResponse)
		m.started(howDetached, got.GetSandbox(), took, err)
	}
	return resp, err
}

// Stream counts calls that stream, and the starts among them.
func (m *Metrics) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if m == nil {
		return handler(srv, ss)
	}
	run := &runStream{ServerStream: ss, m: m, begun: time.Now()}
	if info.FullMethod == apiv1.SandboxService_Run_FullMethodName {
		ss = run
	}
	err := handler(srv, ss)
	m.counters[rpcs].WithLabelValues(shortMethod(info.FullMethod), status.Code(err).String()).Inc()
	if ss == run && !run.started && err != nil {
		m.started(howAttached, nil, 0, err)
	}
	return err
}

// runStream is a call of Run, which says that the program runs by its first message.
type runStream struct {
	grpc.ServerStream
	m       *Metrics
	begun   time.Time
	started bool
}

func (s *runStream) SendMsg(msg any) error {
	if !s.started {
		if sb := msg.(*apiv1.RunResponse).GetStarted(); sb != nil {
			s.started = true
			s.m.started(howAttached, sb, time.Since(s.begun), nil)
		}
	}
	return s.ServerStream.SendMsg(msg)
}

func (m *Metrics) started(how string, sb *apiv1.Sandbox, took time.Duration, err error) {
	if err != nil {
		m.counters[startFailures].WithLabelValues(reason(err)).Inc()
		return
	}
	m.counters[starts].WithLabelValues(how).Inc()
	m.times[startDuration].WithLabelValues().Observe(took.Seconds())
	if len(sb.GetMissing()) > 0 {
		m.counters[startsDegraded].WithLabelValues().Inc()
	}
}

// answer is the word for what GetProfile answered.
func answer(r *apiv1.GetProfileResponse, err error) string {
	switch {
	case err != nil && reason(err) == reasonNoBinding:
		return answerNoBinding
	case err != nil:
		return answerRefused
	case r.GetNotModified():
		return answerNotModified
	case len(r.GetMissing()) > 0:
		return answerDegraded
	}
	return answerProfile
}

// reason is the stable one that the client gets; the table of internal/server bounds them.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return reasonOther
}

// shortMethod is "PolicyService/Apply" of "/policyd.v1.PolicyService/Apply". Methods nobody registered do not come here.
func shortMethod(full string) string {
	service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return service[strings.LastIndexByte(service, '.')+1:] + "/" + method
}
