package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

type runStream = grpc.BidiStreamingClient[apiv1.RunRequest, apiv1.RunResponse]

func (e *env) attach(ctx context.Context, spec *apiv1.SandboxSpec) (runStream, *apiv1.Sandbox) {
	e.t.Helper()
	stream, err := e.box.Run(ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: &apiv1.StartRequest{Spec: spec}}}); err != nil {
		e.t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	return stream, first.GetStarted()
}

// drain reads to the end.
func drain(t *testing.T, stream runStream) (stdout, stderr []byte, exit *apiv1.ExitStatus) {
	t.Helper()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stdout, stderr, exit
		}
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		if exit != nil {
			t.Error("something comes after the exit status")
		}
		stdout, stderr = append(stdout, m.GetStdout()...), append(stderr, m.GetStderr()...)
		exit = m.GetExit()
	}
}

func TestRunCarriesBytes(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	stream, sb := e.attach(e.ctx(), &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/sh", "-c", "echo e >&2; cat; exit 7"}})
	if sb.GetPid() == 0 || sb.GetDetached() {
		t.Errorf("sandbox %v", sb)
	}
	data := make([]byte, 4<<20)
	rand.Read(data)
	go func() {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), maxStdin)
			if stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Stdin{Stdin: rest[:n]}}) != nil {
				return
			}
			rest = rest[n:]
		}
		_ = stream.CloseSend()
	}()
	stdout, stderr, exit := drain(t, stream)
	if !bytes.Equal(stdout, data) || string(stderr) != "e\n" || exit.GetCode() != 7 {
		t.Errorf("%d of %d bytes, stderr %q, exit %v", len(stdout), len(data), stderr, exit)
	}
}

func TestRunSignalsAndCloseStdin(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	stream, _ := e.attach(e.ctx(), &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/sleep", "60"}})
	if err := stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Signal{Signal: int32(syscall.SIGTERM)}}); err != nil {
		t.Fatal(err)
	}
	if _, _, exit := drain(t, stream); exit.GetCode() != 128+int32(syscall.SIGTERM) || exit.GetSignal() != int32(syscall.SIGTERM) {
		t.Errorf("exit %v", exit)
	}
	stream, _ = e.attach(e.ctx(), &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/cat"}})
	if err := stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_CloseStdin{CloseStdin: true}}); err != nil {
		t.Fatal(err)
	}
	if _, _, exit := drain(t, stream); exit.GetCode() != 0 {
		t.Errorf("exit %v", exit)
	}
}

func TestRunTerminal(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web", "        - {allow: [read, write, ioctl_dev], at: [/dev/pts, /dev/tty, /dev/ptmx]}\n"))
	stream, _ := e.attach(e.ctx(), &apiv1.SandboxSpec{
		Ref: "web", Argv: []string{"/bin/sh", "-c", "stty size; read x; stty size"}, Terminal: &apiv1.Terminal{Rows: 7, Columns: 33},
	})
	m, err := stream.Recv()
	if err != nil || !strings.Contains(string(m.GetStdout()), "7 33") {
		t.Fatalf("%v, %v", m, err)
	}
	for _, req := range []*apiv1.RunRequest{
		{Request: &apiv1.RunRequest_Resize{Resize: &apiv1.Terminal{Rows: 9, Columns: 44}}},
		{Request: &apiv1.RunRequest_Stdin{Stdin: []byte("\n")}},
	} {
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	if out, _, exit := drain(t, stream); !strings.Contains(string(out), "9 44") || exit.GetCode() != 0 {
		t.Errorf("%q, exit %v", out, exit)
	}
}

func TestRunBreaksOffOnBadMessages(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	for name, bad := range map[string]*apiv1.RunRequest{
		"second start":          {Request: &apiv1.RunRequest_Start{Start: &apiv1.StartRequest{}}},
		"empty":                 {},
		"much input":            {Request: &apiv1.RunRequest_Stdin{Stdin: make([]byte, maxStdin+1)}},
		"signal":                {Request: &apiv1.RunRequest_Signal{Signal: 999}},
		"resize of no terminal": {Request: &apiv1.RunRequest_Resize{Resize: &apiv1.Terminal{Rows: 1, Columns: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			stream, sb := e.attach(e.ctx(), &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/sleep", "60"}})
			if err := stream.Send(bad); err != nil {
				t.Fatal(err)
			}
			_, err := stream.Recv()
			wantStatus(t, err, codes.InvalidArgument, "INVALID")
			if _, err := e.box.Wait(e.ctx(), &apiv1.WaitRequest{Id: sb.GetId()}); err != nil {
				t.Errorf("the sandbox did not end: %v", err)
			}
		})
	}
	for name, first := range map[string]*apiv1.RunRequest{"stdin first": {Request: &apiv1.RunRequest_Stdin{Stdin: []byte("x")}}, "nothing": nil} {
		stream, err := e.box.Run(e.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if first != nil {
			err = stream.Send(first)
		} else {
			err = stream.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if st := wantStatus(t, err, codes.InvalidArgument, "INVALID"); !strings.Contains(st.Message(), "the first message must be start") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that goes away takes its attached sandbox with it, a detached one goes on.
func TestRunClientGoesAway(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	detached := e.startProgram("web", "/bin/sleep", "60")
	ctx, cancel := context.WithCancel(e.ctx())
	_, sb := e.attach(ctx, &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/sh", "-c", "trap '' HUP; while :; do sleep 1; done"}})
	cancel()
	w, err := e.box.Wait(e.ctx(), &apiv1.WaitRequest{Id: sb.GetId()})
	if err != nil || w.GetExit().GetCode() == 0 {
		t.Errorf("%v, %v", w, err)
	}
	got, err := e.box.GetSandbox(e.ctx(), &apiv1.GetSandboxRequest{Id: detached.GetId()})
	if err != nil || got.GetSandbox().GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("detached: %v, %v", got, err)
	}
}

// Stopping ends what waits at once, and what does not end by the deadline.
func TestStop(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	detached := e.startProgram("web", "/bin/sleep", "60")
	waited := make(chan error, 1)
	go func() {
		_, err := e.box.Wait(e.ctx(), &apiv1.WaitRequest{Id: detached.GetId()})
		waited <- err
	}()
	events, err := e.admin.Events(e.ctx(), &apiv1.EventsRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	attached, _ := e.attach(e.ctx(), &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/sleep", "60"}})
	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}
	e.Stop(300 * time.Millisecond)
	if err := <-waited; codeOf(err) != codes.Unavailable {
		t.Errorf("wait: %v", err)
	}
	for err == nil {
		_, err = events.Recv()
	}
	wantStatus(t, err, codes.Unavailable, "SHUTTING_DOWN")
	if _, err := attached.Recv(); err == nil {
		t.Error("the attached one goes on")
	}
	if sb, err := e.boxes.Get(detached.GetId()); err != nil || sb.GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("detached: %v, %v", sb, err)
	}
	if _, err := e.admin.Status(e.ctx(), &apiv1.StatusRequest{}); codeOf(err) != codes.Unavailable {
		t.Errorf("after stop: %v", err)
	}
}

// Who watches the health hears that it ends, and does not hold up a stop that has all the time of the world.
func TestStopEndsWatchersOfHealth(t *testing.T) {
	e := start(t, nil)
	watch, err := e.health.Watch(e.ctx(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			break
		}
	}
	e.Stop(time.Hour)
	last := healthv1.HealthCheckResponse_SERVING
	for err == nil {
		var m *healthv1.HealthCheckResponse
		if m, err = watch.Recv(); err == nil {
			last = m.GetStatus()
		}
	}
	if last != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the last word before the end is %v", last)
	}
	if c := codeOf(err); c != codes.Unavailable && c != codes.Canceled {
		t.Errorf("the watch ends with %v", err)
	}
}
