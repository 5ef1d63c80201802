package server

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/sandbox"
)

// Attach goes on with the streams of a sandbox of Run that a policyd before this one handed over. Who started it alone
// may: an operator tends what others started, but does not type into it.
func (s *Server) Attach(stream grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return invalidField("request", "the first message must be attach")
		}
		return err
	}
	at := first.GetAttach()
	if at == nil {
		return invalidField("request", "the first message must be attach")
	}
	ctx, cancel := s.untilCut(stream.Context())
	defer cancel()
	sb, err := s.visible(ctx, at.GetId())
	if err != nil {
		return err
	}
	if c := callerFrom(ctx); !c.owns(sb) {
		return fmt.Errorf("%w: only who started a sandbox may attach to it, and %s did not", errs.ErrNotAllowed, c)
	}
	a, err := s.sandboxes.Attach(ctx, sb.GetId(), sandbox.Offsets{Stdout: at.GetStdoutOffset(), Stderr: at.GetStderrOffset()})
	if err != nil {
		return withResource(err, "sandbox", sb.GetId())
	}
	defer a.Close()
	notedSandbox(ctx, sb)
	ready := &apiv1.AttachReady{Sandbox: a.Sandbox(), StdinOffset: a.StdinOffset()}
	if err := stream.Send(&apiv1.AttachResponse{Response: &apiv1.AttachResponse_Ready{Ready: ready}}); err != nil {
		return err
	}
	return carry(ctx, cancel, attachStream{stream}, a)
}

// attachStream speaks Run's words.
type attachStream struct {
	grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]
}

func (s attachStream) Send(m *apiv1.RunResponse) error {
	out := &apiv1.AttachResponse{}
	switch m := m.GetResponse().(type) {
	case *apiv1.RunResponse_Stdout:
		out.Response = &apiv1.AttachResponse_Stdout{Stdout: m.Stdout}
	case *apiv1.RunResponse_Stderr:
		out.Response = &apiv1.AttachResponse_Stderr{Stderr: m.Stderr}
	case *apiv1.RunResponse_Exit:
		out.Response = &apiv1.AttachResponse_Exit{Exit: m.Exit}
	}
	return s.BidiStreamingServer.Send(out)
}

func (s attachStream) Recv() (*apiv1.RunRequest, error) {
	m, err := s.BidiStreamingServer.Recv()
	if err != nil {
		return nil, err
	}
	in := &apiv1.RunRequest{}
	switch m := m.GetRequest().(type) {
	case *apiv1.AttachRequest_Attach:
		in.Request = &apiv1.RunRequest_Start{} // as wrong here as there
	case *apiv1.AttachRequest_Stdin:
		in.Request = &apiv1.RunRequest_Stdin{Stdin: m.Stdin}
	case *apiv1.AttachRequest_CloseStdin:
		in.Request = &apiv1.RunRequest_CloseStdin{CloseStdin: m.CloseStdin}
	case *apiv1.AttachRequest_Signal:
		in.Request = &apiv1.RunRequest_Signal{Signal: m.Signal}
	case *apiv1.AttachRequest_Resize:
		in.Request = &apiv1.RunRequest_Resize{Resize: m.Resize}
	}
	return in, nil
}
