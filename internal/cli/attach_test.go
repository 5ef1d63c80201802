package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/clitest"
)

type runStream = grpc.BidiStreamingServer[apiv1.RunRequest, apiv1.RunResponse]

func started(s runStream) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return s.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Started{Started: &apiv1.Sandbox{Id: "abc"}}})
}

func exited(s runStream, code int32) error {
	return s.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Exit{Exit: &apiv1.ExitStatus{Code: code}}})
}

func dial(t *testing.T, f *clitest.Fake) *cli.Client {
	t.Helper()
	f.Serve(t)
	c, err := cli.Dial(f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Every byte value, more than the flow control windows hold, both ways, and the
// end of input reaches the program while its output goes on.
func TestAttachedCarriesBytesAndHalfClose(t *testing.T) {
	f := &clitest.Fake{OnRun: func(s runStream) error {
		if err := started(s); err != nil {
			return err
		}
		var held [][]byte
		for {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			if b := m.GetStdin(); b != nil {
				if len(b) > 64<<10 {
					return status.Error(codes.InvalidArgument, "too much in one message")
				}
				held = append(held, b)
				continue
			}
			if !m.GetCloseStdin() {
				return status.Error(codes.InvalidArgument, "unexpected message")
			}
			break
		}
		for _, b := range held {
			if err := s.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: b}}); err != nil {
				return err
			}
		}
		if err := s.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stderr{Stderr: []byte("end\x00")}}); err != nil {
			return err
		}
		return exited(s, 7)
	}}
	c := dial(t, f)
	in := make([]byte, 3<<20)
	for i := range in {
		in[i] = byte(i * 7)
	}
	var out, errOut bytes.Buffer
	a := &cli.Attached{Client: c, Stdin: bytes.NewReader(in), Stdout: &out, Stderr: &errOut, Notice: t.Logf}
	exit, err := a.Run(t.Context(), &apiv1.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if exit.GetCode() != 7 || !bytes.Equal(out.Bytes(), in) || errOut.String() != "end\x00" {
		t.Errorf("exit %v, %d bytes of output, stderr %q", exit, out.Len(), errOut.String())
	}
}

// signalled collects the signals a fake gets by call.
type signalled struct {
	mu  sync.Mutex
	got []string
	c   chan struct{}
}

func (s *signalled) on(_ context.Context, r *apiv1.SignalRequest) (*apiv1.SignalResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := r.GetId() + " " + syscall.Signal(r.GetSignal()).String()
	if r.GetAll() {
		text += " all"
	}
	s.got = append(s.got, text)
	s.c <- struct{}{}
	return &apiv1.SignalResponse{}, nil
}

// A signal that comes before the program runs is not lost, and one passes by
// input that the program does not read.
func TestAttachedForwardsSignals(t *testing.T) {
	sigs := &signalled{c: make(chan struct{}, 10)}
	run := make(chan struct{})
	f := &clitest.Fake{OnSignal: sigs.on, OnRun: func(s runStream) error {
		<-run
		if err := started(s); err != nil {
			return err
		}
		<-sigs.c // nothing of standard input was read: its window is full
		<-sigs.c
		return exited(s, 130)
	}}
	c := dial(t, f)
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	a := &cli.Attached{
		Client: c, Stdin: endless{}, Stdout: io.Discard, Stderr: io.Discard, Signals: signals, Notice: t.Logf,
		Started: func(*apiv1.Sandbox) { signals <- syscall.SIGINT },
	}
	time.AfterFunc(50*time.Millisecond, func() { close(run) })
	exit, err := a.Run(t.Context(), &apiv1.StartRequest{})
	if err != nil || exit.GetCode() != 130 {
		t.Fatal(exit, err)
	}
	slices.Sort(sigs.got)
	if want := []string{"abc interrupt", "abc terminated"}; !slices.Equal(sigs.got, want) {
		t.Errorf("got %q", sigs.got)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestSecondInterruptEndsAll(t *testing.T) {
	sigs := &signalled{c: make(chan struct{}, 10)}
	f := &clitest.Fake{OnSignal: sigs.on, OnRun: func(s runStream) error {
		if err := started(s); err != nil {
			return err
		}
		<-sigs.c
		<-sigs.c
		return exited(s, 137)
	}}
	c := dial(t, f)
	signals := make(chan os.Signal, 2)
	a := &cli.Attached{
		Client: c, Stdout: io.Discard, Stderr: io.Discard, Signals: signals, Interactive: true, Notice: t.Logf,
		Started: func(*apiv1.Sandbox) { signals <- syscall.SIGINT; signals <- syscall.SIGINT },
	}
	exit, err := a.Run(t.Context(), &apiv1.StartRequest{})
	if err != nil || exit.GetCode() != 137 {
		t.Fatal(exit, err)
	}
	if want := []string{"abc interrupt", "abc killed all"}; !slices.Equal(sigs.got, want) {
		t.Errorf("got %q", sigs.got)
	}
}

// A policyd that does not answer cannot hold a person: two interrupts before the
// program runs, three after.
func TestInterruptsLeave(t *testing.T) {
	release := make(chan struct{})
	f := &clitest.Fake{OnRun: func(s runStream) error {
		select {
		case <-release:
		case <-s.Context().Done():
		}
		return s.Context().Err()
	}}
	c := dial(t, f)
	defer close(release)
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGINT
	signals <- syscall.SIGINT
	a := &cli.Attached{Client: c, Stdout: io.Discard, Stderr: io.Discard, Signals: signals, Interactive: true, Notice: t.Logf}
	_, err := a.Run(t.Context(), &apiv1.StartRequest{})
	if cli.StartExitCode(err) != cli.ExitInterrupted {
		t.Errorf("%v: exit code %d", err, cli.StartExitCode(err))
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestClosedReaderGivesSIGPIPE(t *testing.T) {
	sigs := &signalled{c: make(chan struct{}, 10)}
	f := &clitest.Fake{OnSignal: sigs.on, OnRun: func(s runStream) error {
		if err := started(s); err != nil {
			return err
		}
		for range 3 {
			if err := s.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: []byte("y\n")}}); err != nil {
				return err
			}
		}
		<-sigs.c
		return exited(s, 141)
	}}
	c := dial(t, f)
	a := &cli.Attached{Client: c, Stdout: brokenPipe{}, Stderr: io.Discard, Notice: t.Logf}
	exit, err := a.Run(t.Context(), &apiv1.StartRequest{})
	if err != nil || exit.GetCode() != 141 || !slices.Equal(sigs.got, []string{"abc broken pipe"}) {
		t.Errorf("%v %v %q", exit, err, sigs.got)
	}
}

func TestLostConnectionNamesSandbox(t *testing.T) {
	for _, c := range []struct {
		name string
		end  error
		want string
	}{
		{"stopping", status.Error(codes.Unavailable, "policyd is stopping"), "policyd is stopping"},
		{"without a status", nil, "without an exit status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &clitest.Fake{OnRun: func(s runStream) error { return errors.Join(started(s), c.end) }}
			if c.end != nil {
				f.OnRun = func(s runStream) error {
					if err := started(s); err != nil {
						return err
					}
					return c.end
				}
			}
			a := &cli.Attached{Client: dial(t, f), Stdout: io.Discard, Stderr: io.Discard, Notice: t.Logf}
			_, err := a.Run(t.Context(), &apiv1.StartRequest{})
			if err == nil || !strings.Contains(err.Error(), "sandbox abc") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if cli.StartExitCode(err) != cli.ExitFailed {
				t.Errorf("exit code %d", cli.StartExitCode(err))
			}
		})
	}
}
