package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/clitest"
)

type attachStream = grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]

// reason is an error of policyd's.
func reason(code codes.Code, why string) error {
	st, err := status.New(code, "policyd says "+why).WithDetails(&errdetails.ErrorInfo{Reason: why, Domain: "policyd.dev"})
	if err != nil {
		return err
	}
	return st.Err()
}

// TestComesBack: what a client sends and receives around a restart.
func TestComesBack(t *testing.T) {
	input := bytes.Repeat([]byte("0123456789"), 20000)
	const given = 70000
	var got []byte
	var resized, closed bool
	tries := 0
	f := &clitest.Fake{
		OnRun: func(s runStream) error {
			if err := started(s); err != nil {
				return err
			}
			for n := 0; n < len(input); {
				m, err := s.Recv()
				if err != nil {
					return err
				}
				n += len(m.GetStdin())
			}
			if err := s.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: []byte("out")}}); err != nil {
				return err
			}
			if err := s.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stderr{Stderr: []byte("error")}}); err != nil {
				return err
			}
			return reason(codes.Unavailable, "RESTARTING")
		},
		OnAttach: func(s attachStream) error {
			if tries++; tries < 3 {
				return reason(codes.Unavailable, []string{"RESTARTING", "SHUTTING_DOWN"}[tries-1])
			}
			m, err := s.Recv()
			if err != nil {
				return err
			}
			if at := m.GetAttach(); at.GetId() != "abc" || at.GetStdoutOffset() != 3 || at.GetStderrOffset() != 5 {
				return status.Errorf(codes.InvalidArgument, "%v", m)
			}
			if err := s.Send(&apiv1.AttachResponse{Response: &apiv1.AttachResponse_Ready{Ready: &apiv1.AttachReady{StdinOffset: given}}}); err != nil {
				return err
			}
			for !closed || !resized {
				m, err := s.Recv()
				if err != nil {
					return err
				}
				got = append(got, m.GetStdin()...)
				closed = closed || m.GetCloseStdin()
				resized = resized || m.GetResize().GetRows() == 5
			}
			if err := s.Send(&apiv1.AttachResponse{Response: &apiv1.AttachResponse_Stdout{Stdout: []byte("put")}}); err != nil {
				return err
			}
			return s.Send(&apiv1.AttachResponse{Response: &apiv1.AttachResponse_Exit{Exit: &apiv1.ExitStatus{Code: 3}}})
		},
	}
	var out, errOut, notices bytes.Buffer
	a := &cli.Attached{
		Client: dial(t, f), Stdin: bytes.NewReader(input), Stdout: &out, Stderr: &errOut,
		Window: func() *apiv1.Terminal { return &apiv1.Terminal{Rows: 5} },
		Notice: func(format string, args ...any) { notices.WriteString(format) },
	}
	exit, err := a.Run(t.Context(), &apiv1.StartRequest{})
	if err != nil || exit.GetCode() != 3 || out.String() != "output" || errOut.String() != "error" || !strings.Contains(notices.String(), "restarts") {
		t.Errorf("%v, %v, %q, %q, %q", exit, err, &out, &errOut, &notices)
	}
	if !bytes.Equal(got, input[given:]) {
		t.Errorf("%d bytes were sent again, want %d", len(got), len(input)-given)
	}
}

// TestDoesNotComeBack: what is no restart ends the client at once, and so does a policyd that has no streams to give.
func TestDoesNotComeBack(t *testing.T) {
	ready := func(offset uint64) func(attachStream) error {
		return func(s attachStream) error {
			return s.Send(&apiv1.AttachResponse{Response: &apiv1.AttachResponse_Ready{Ready: &apiv1.AttachReady{StdinOffset: offset}}})
		}
	}
	for name, tc := range map[string]struct {
		end    error
		attach func(attachStream) error
		want   string
	}{
		"stopping":             {reason(codes.Unavailable, "SHUTTING_DOWN"), nil, "sandbox abc: connection lost"},
		"no restart":           {reason(codes.FailedPrecondition, "RESTARTING"), nil, "sandbox abc: connection lost"},
		"streams are lost":     {reason(codes.Unavailable, "RESTARTING"), func(attachStream) error { return reason(codes.FailedPrecondition, "NOT_RUNNING") }, "does not give its streams"},
		"an older policyd":     {reason(codes.Unavailable, "RESTARTING"), nil, "does not give its streams"},
		"not allowed":          {reason(codes.Unavailable, "RESTARTING"), func(attachStream) error { return reason(codes.PermissionDenied, "NOT_ALLOWED") }, "NOT_ALLOWED"},
		"not ready":            {reason(codes.Unavailable, "RESTARTING"), func(s attachStream) error { return s.Send(&apiv1.AttachResponse{}) }, "how far input"},
		"ahead of the input":   {reason(codes.Unavailable, "RESTARTING"), ready(99), "input was lost"},
		"connection is broken": {status.Error(codes.Unavailable, "broken"), func(attachStream) error { return reason(codes.FailedPrecondition, "NOT_RUNNING") }, "sandbox abc: connection lost"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &clitest.Fake{OnRun: func(s runStream) error {
				if err := started(s); err != nil {
					return err
				}
				return tc.end
			}, OnAttach: tc.attach}
			a := &cli.Attached{Client: dial(t, f), Stdout: io.Discard, Stderr: io.Discard, Notice: func(string, ...any) {}}
			begin := time.Now()
			exit, err := a.Run(t.Context(), &apiv1.StartRequest{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, %v; want %q", exit, err, tc.want)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestSignalsWhileAway: signals that policyd cannot be told of are told to the next one.
func TestSignalsWhileAway(t *testing.T) {
	away := make(chan struct{})
	tried := make(chan struct{}, 1)
	f := &clitest.Fake{OnRun: func(s runStream) error {
		if err := started(s); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		return reason(codes.Unavailable, "RESTARTING")
	}}
	signalled := make(chan int32, 1)
	f.OnSignal = func(_ context.Context, r *apiv1.SignalRequest) (*apiv1.SignalResponse, error) {
		select {
		case <-away:
			signalled <- r.GetSignal()
			return &apiv1.SignalResponse{}, nil
		default:
			select {
			case tried <- struct{}{}:
			default:
			}
			return nil, reason(codes.Unavailable, "SHUTTING_DOWN")
		}
	}
	f.OnAttach = func(s attachStream) error {
		select {
		case <-away:
		default:
			return reason(codes.Unavailable, "SHUTTING_DOWN")
		}
		if err := s.Send(&apiv1.AttachResponse{Response: &apiv1.AttachResponse_Ready{Ready: &apiv1.AttachReady{}}}); err != nil {
			return err
		}
		code := <-signalled
		return s.Send(&apiv1.AttachResponse{Response: &apiv1.AttachResponse_Exit{Exit: &apiv1.ExitStatus{Code: code}}})
	}
	signals := make(chan os.Signal, 1)
	noticed := make(chan struct{}, 1)
	a := &cli.Attached{
		Client: dial(t, f), Stdout: io.Discard, Stderr: io.Discard, Signals: signals,
		Notice: func(string, ...any) { noticed <- struct{}{} },
	}
	go func() {
		<-noticed
		signals <- syscall.SIGUSR2
		<-tried
		time.Sleep(50 * time.Millisecond)
		close(away)
	}()
	exit, err := a.Run(t.Context(), &apiv1.StartRequest{})
	if err != nil || exit.GetCode() != int32(syscall.SIGUSR2) {
		t.Errorf("%v, %v", exit, err)
	}
}
