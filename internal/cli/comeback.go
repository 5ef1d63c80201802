package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

const (
	// comeBackWithin is how long policyd may take to be there again after it said that it restarts.
	comeBackWithin = time.Minute
	// comeBackPause is the time between two attempts to reach it.
	comeBackPause = 100 * time.Millisecond
	// inputKept is how much of standard input is kept for the case that policyd had not given it to the program before
	// it restarted: more than gRPC and policyd hold of one stream, bytes.
	inputKept = 1 << 20
)

// Reasons of policyd's for the end of a stream.
const (
	reasonRestarting   = "RESTARTING"
	reasonShuttingDown = "SHUTTING_DOWN"
)

// link is a stream of Run, or one of Attach in its words.
type link interface {
	Send(*apiv1.RunRequest) error
	Recv() (*apiv1.RunResponse, error)
}

// sentInput is the input so far, with its last bytes.
type sentInput struct {
	data   []byte
	end    uint64 // all of it
	sent   uint64 // of that, on this link
	closed bool
}

func (s *sentInput) add(p []byte) {
	s.end += uint64(len(p))
	s.data = append(s.data, p...)
	if over := len(s.data) - inputKept; over > inputKept/2 {
		s.data = s.data[:copy(s.data, s.data[over:])]
	}
}

// rest is what was not sent on this link.
func (s *sentInput) rest() []byte { return s.data[uint64(len(s.data))-(s.end-s.sent):] }

// flush sends what was not sent on this link; wants a.send. What it cannot send is sent on the next one.
func (a *Attached) flush() {
	for a.link != nil {
		p := a.in.rest()
		if len(p) == 0 {
			break
		}
		p = p[:min(len(p), chunk)]
		m := &apiv1.RunRequest{Request: &apiv1.RunRequest_Stdin{Stdin: append([]byte(nil), p...)}}
		if a.link.Send(m) != nil {
			a.link = nil // Recv tells why
			return
		}
		a.in.sent += uint64(len(p))
	}
	if a.link != nil && a.in.closed && a.link.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_CloseStdin{CloseStdin: true}}) != nil {
		a.link = nil
	}
}

// restartable tells whether the sandbox of a stream that ended with err may go on with another one; planned is when
// policyd said so.
func restartable(err error) (planned, may bool) {
	if status.Code(err) != codes.Unavailable {
		return false, false
	}
	switch Reason(err) {
	case reasonRestarting:
		return true, true
	case "": // the connection broke, perhaps before policyd could say it
		return false, true
	}
	return false, false
}

// comeBack goes on with the streams after the link ended with cause, or says why not.
func (a *Attached) comeBack(ctx context.Context, cause error) error {
	id := a.sandbox()
	planned, may := restartable(cause)
	if id == "" || !may || ctx.Err() != nil {
		return a.lost(cause)
	}
	a.away = true
	if planned {
		a.Notice("policyd restarts, sandbox %s goes on", id)
	}
	deadline := time.Now().Add(comeBackWithin)
	for {
		next, ready, err := a.reach(ctx, id, deadline)
		if err == nil {
			return a.goOn(ctx, next, ready)
		}
		_, unreachable := errors.AsType[*Unreachable](err)
		reason := Reason(err)
		again := status.Code(err) == codes.Unavailable && (reason == "" || reason == reasonRestarting || reason == reasonShuttingDown)
		switch {
		case ctx.Err() != nil || !planned && (unreachable || !again):
			return a.lost(cause)
		case time.Now().After(deadline):
			return fmt.Errorf("sandbox %s goes on without its streams: policyd is not back after %v; then see `policyctl logs -f %s`: %w", id, comeBackWithin, id, err)
		case !again:
			return fmt.Errorf("sandbox %s: policyd was restarted and does not give its streams: %w", id, err)
		}
		select {
		case <-time.After(comeBackPause):
		case <-ctx.Done():
			return a.lost(cause)
		}
	}
}

// Away tells after Run whether it ended while policyd was restarted: the sandbox goes on.
func (a *Attached) Away() bool { return a.away }

// reach asks policyd once for the streams.
func (a *Attached) reach(ctx context.Context, id string, deadline time.Time) (link, *apiv1.AttachReady, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(time.Until(deadline), cancel)
	defer timer.Stop()
	a.Client.conn.ResetConnectBackoff()
	ready, stream, err := attach(ctx, a.Client, &apiv1.AttachStart{Id: id, StdoutOffset: a.received[0], StderrOffset: a.received[1]})
	if err != nil {
		cancel()
		if time.Now().After(deadline) {
			err = status.Error(codes.Unavailable, "policyd does not answer")
		}
		return nil, nil, err
	}
	a.leave = cancel
	return attachLink{stream}, ready, nil
}

func attach(ctx context.Context, c *Client, start *apiv1.AttachStart) (*apiv1.AttachReady, grpc.BidiStreamingClient[apiv1.AttachRequest, apiv1.AttachResponse], error) {
	stream, err := c.Sandboxes.Attach(ctx)
	if err != nil {
		return nil, nil, err
	}
	// An error of Send is told by Recv.
	_ = stream.Send(&apiv1.AttachRequest{Request: &apiv1.AttachRequest_Attach{Attach: start}})
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	if first.GetReady() == nil {
		return nil, nil, status.Error(codes.Internal, "policyd did not say how far input has come")
	}
	return first.GetReady(), stream, nil
}

// goOn makes the new link the one that is used, and sends what the program has not got.
func (a *Attached) goOn(ctx context.Context, next link, ready *apiv1.AttachReady) error {
	a.recv, a.away = next, false
	a.send.Lock()
	defer a.send.Unlock()
	if at := ready.GetStdinOffset(); at > a.in.end || a.in.end-at > uint64(len(a.in.data)) {
		return fmt.Errorf("sandbox %s: policyd was restarted, and input was lost: the program has %d bytes of %d", a.sandbox(), at, a.in.end)
	}
	a.in.sent, a.link = ready.GetStdinOffset(), next
	a.linked.Broadcast()
	// Not here: the program may read its input only when its output is taken.
	go func() {
		defer a.onPanic()
		a.send.Lock()
		if a.link == next {
			a.flush()
		}
		a.send.Unlock()
		a.mu.Lock()
		late := a.early
		a.early = nil
		a.mu.Unlock()
		a.resize()
		for _, sig := range late {
			a.forward(ctx, sig)
		}
	}()
	return nil
}

// attachLink speaks Run's words.
type attachLink struct {
	grpc.BidiStreamingClient[apiv1.AttachRequest, apiv1.AttachResponse]
}

func (l attachLink) Send(m *apiv1.RunRequest) error {
	out := &apiv1.AttachRequest{}
	switch m := m.GetRequest().(type) {
	case *apiv1.RunRequest_Stdin:
		out.Request = &apiv1.AttachRequest_Stdin{Stdin: m.Stdin}
	case *apiv1.RunRequest_CloseStdin:
		out.Request = &apiv1.AttachRequest_CloseStdin{CloseStdin: m.CloseStdin}
	case *apiv1.RunRequest_Signal:
		out.Request = &apiv1.AttachRequest_Signal{Signal: m.Signal}
	case *apiv1.RunRequest_Resize:
		out.Request = &apiv1.AttachRequest_Resize{Resize: m.Resize}
	}
	return l.BidiStreamingClient.Send(out)
}

func (l attachLink) Recv() (*apiv1.RunResponse, error) {
	m, err := l.BidiStreamingClient.Recv()
	if err != nil {
		return nil, err
	}
	in := &apiv1.RunResponse{}
	switch m := m.GetResponse().(type) {
	case *apiv1.AttachResponse_Stdout:
		in.Response = &apiv1.RunResponse_Stdout{Stdout: m.Stdout}
	case *apiv1.AttachResponse_Stderr:
		in.Response = &apiv1.RunResponse_Stderr{Stderr: m.Stderr}
	case *apiv1.AttachResponse_Exit:
		in.Response = &apiv1.RunResponse_Exit{Exit: m.Exit}
	}
	return in, nil
}
