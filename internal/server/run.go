package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/store"
)

const (
	// maxStdin is the most bytes of one message of input, by the contract of RunRequest.
	maxStdin = 64 << 10
	// stdinQueue is how many messages of input wait for a program that does not read, before the
	// client is held back. Signals and sizes behind them are then held back too.
	stdinQueue = 8
)

// Run starts a sandbox and carries its streams until all output was sent.
func (s *Server) Run(stream grpc.BidiStreamingServer[apiv1.RunRequest, apiv1.RunResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return invalidField("request", "the first message must be start")
		}
		return err
	}
	if first.GetStart() == nil {
		return invalidField("request", "the first message must be start")
	}
	ctx, cancel := s.untilCut(stream.Context())
	defer cancel()
	r, full, err := s.request(ctx, first.GetStart())
	if err != nil {
		return err
	}
	a, err := s.sandboxes.Run(ctx, r)
	if err != nil {
		return withResource(full.place(err), store.KindLandlockPolicy, r.Spec.GetRef())
	}
	defer a.Close()
	notedSandbox(ctx, a.Sandbox())
	if err := stream.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Started{Started: a.Sandbox()}}); err != nil {
		return err
	}
	return carry(ctx, cancel, stream, a)
}

// streams is the client's side of Run, or of Attach in its words.
type streams interface {
	Context() context.Context
	Send(*apiv1.RunResponse) error
	Recv() (*apiv1.RunRequest, error)
}

// carry carries the streams until all output was sent; cancel ends ctx.
func carry(ctx context.Context, cancel context.CancelFunc, stream streams, a *sandbox.Attached) error {
	// The receiver ends when the handler has returned and gRPC ends the stream's context, or on a message that is
	// wrong: then the handler ends for that.
	bad := make(chan error, 1)
	go func() {
		if err := carryInput(stream, a); err != nil {
			bad <- err
			cancel()
		}
	}()
	err := a.Stream(ctx, stream.Send)
	select {
	case wrong := <-bad:
		return wrong
	default:
		return err
	}
}

// carryInput passes on what the client sends, until it sends no more. The error is that of a message that breaks the contract.
func carryInput(stream streams, a *sandbox.Attached) error {
	ctx := stream.Context()
	input := make(chan []byte, stdinQueue) // nil: end of input
	write := func() {
		for {
			select {
			case p := <-input:
				if p == nil {
					_ = a.CloseStdin() // it is closed by the sandbox's end as well
					return
				}
				_ = a.WriteStdin(p) // what the program will never read is dropped
			case <-ctx.Done():
				return
			}
		}
	}
	writing := false // most programs get no input
	queue := func(p []byte) {
		if !writing {
			writing = true
			go write()
		}
		select {
		case input <- p:
		case <-ctx.Done():
		}
	}
	closed := false
	for {
		req, err := stream.Recv()
		if err != nil {
			// A half-closed stream is the end of input; a broken one ends with its context.
			if errors.Is(err, io.EOF) && !closed {
				queue(nil)
			}
			return nil
		}
		switch m := req.GetRequest().(type) {
		case *apiv1.RunRequest_Stdin:
			switch {
			case len(m.Stdin) > maxStdin:
				return invalidField("stdin", "%d bytes in one message; at most %d", len(m.Stdin), maxStdin)
			case closed:
				return invalidField("stdin", "standard input was closed")
			case len(m.Stdin) > 0:
				queue(m.Stdin)
			}
		case *apiv1.RunRequest_CloseStdin:
			if m.CloseStdin && !closed {
				closed = true
				queue(nil)
			}
		case *apiv1.RunRequest_Signal:
			err = a.Signal(int(m.Signal))
		case *apiv1.RunRequest_Resize:
			err = a.Resize(m.Resize)
		case *apiv1.RunRequest_Start:
			return invalidField("start", "only the first message starts")
		default:
			return invalidField("request", "an empty message")
		}
		if errors.Is(err, errs.ErrInvalid) {
			return err
		}
	}
}

// untilCut is untilStop for the streams of sandboxes: a stop waits for those until its deadline, then they are hung up.
func (s *Server) untilCut(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, s.cutting)
}

// untilStop is a context that also ends when the server is told to stop, so that calls which wait do not hold up a
// graceful stop; its cause is errs.ErrShutdown then.
func (s *Server) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, s.stopping)
}

func until(ctx, end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(end, func() { cancel(fmt.Errorf("%w", errs.ErrShutdown)) })
	return ctx, func() { stop(); cancel(nil) }
}
