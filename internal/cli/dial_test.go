package cli_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/clitest"
)

func TestDialTargets(t *testing.T) {
	f := &clitest.Fake{OnStatus: func(context.Context, *apiv1.StatusRequest) (*apiv1.StatusResponse, error) {
		return &apiv1.StatusResponse{Version: "v"}, nil
	}}
	f.Serve(t)
	for _, target := range []string{f.Socket, "unix:" + f.Socket, "unix://" + f.Socket} {
		c, err := cli.Dial(target)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := c.Admin.Status(t.Context(), &apiv1.StatusRequest{}); err != nil || s.GetVersion() != "v" {
			t.Errorf("%s: %v", target, err)
		}
		c.Close()
	}
	for _, target := range []string{"tcp://localhost:1", "relative.sock", "unix://relative", "unix:./relative", "localhost:1/x"} {
		if _, err := cli.Dial(target); cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// A path with a folder in it may be a relative one.
func TestDialRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"./p.sock": here + "/p.sock", "run/p.sock": here + "/run/p.sock", "/x/p.sock": "/x/p.sock"} {
		c, err := cli.Dial(target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		_, err = c.Admin.Status(t.Context(), &apiv1.StatusRequest{})
		if err == nil || !strings.Contains(err.Error(), "not reachable at "+want+":") {
			t.Errorf("%s: %v", target, err)
		}
		c.Close()
	}
}

func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{filepath.Join(dir, "none.sock"), plain} {
		c, err := cli.Dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Admin.Status(t.Context(), &apiv1.StatusRequest{})
		if cli.ExitCode(err) != cli.ExitUnreachable || !strings.Contains(err.Error(), socket) {
			t.Errorf("%s: exit code %d: %v", socket, cli.ExitCode(err), err)
		}
		s, err := c.Admin.Backup(t.Context(), &apiv1.BackupRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		if cli.ExitCode(err) != cli.ExitUnreachable || !strings.Contains(err.Error(), socket) {
			t.Errorf("stream to %s: exit code %d: %v", socket, cli.ExitCode(err), err)
		}
	}
}

// A policyd that goes away while it answers gets the same request again.
func TestRetrySendsSameRequest(t *testing.T) {
	var calls atomic.Int32
	var first, second string
	f := &clitest.Fake{}
	f.OnApply = func(_ context.Context, r *apiv1.ApplyRequest) (*apiv1.ApplyResponse, error) {
		if calls.Add(1) == 1 {
			first = r.GetRequestId()
			return nil, status.Error(codes.Unavailable, "policyd is stopping")
		}
		second = r.GetRequestId()
		return &apiv1.ApplyResponse{}, nil
	}
	c := dial(t, f)
	req := &apiv1.ApplyRequest{RequestId: cli.RequestID()}
	_, err := cli.Retry(t.Context(), c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.ApplyResponse, error) {
		return c.Policies.Apply(ctx, req, o...)
	})
	if err != nil || first != second || first == "" || calls.Load() != 2 {
		t.Errorf("%v: %d calls, ids %q and %q", err, calls.Load(), first, second)
	}
}

// Other failures are answers, and a policyd that never was there is not waited for.
func TestRetryOnlyWhatWasLost(t *testing.T) {
	var calls atomic.Int32
	f := &clitest.Fake{OnApply: func(context.Context, *apiv1.ApplyRequest) (*apiv1.ApplyResponse, error) {
		calls.Add(1)
		return nil, status.Error(codes.Aborted, "version is not the expected one")
	}}
	c := dial(t, f)
	apply := func(c *cli.Client) error {
		_, err := cli.Retry(t.Context(), c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.ApplyResponse, error) {
			return c.Policies.Apply(ctx, &apiv1.ApplyRequest{}, o...)
		})
		return err
	}
	if err := apply(c); status.Code(err) != codes.Aborted || calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	none, err := cli.Dial(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if err := apply(none); cli.ExitCode(err) != cli.ExitUnreachable {
		t.Errorf("%v", err)
	}
}

// What gRPC says of a message beyond a limit names neither the limit nor whose it is.
func TestMessageTooLarge(t *testing.T) {
	server := "grpc: received message larger than max (5700128 vs. 4194304)"
	f := &clitest.Fake{OnStatus: func(context.Context, *apiv1.StatusRequest) (*apiv1.StatusResponse, error) {
		return nil, status.Error(codes.ResourceExhausted, server)
	}}
	f.Serve(t)
	c, err := cli.Dial(f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Admin.Status(t.Context(), &apiv1.StatusRequest{})
	for _, want := range []string{"5700128 bytes", "4194304", "limits.messageSize", "policyd's configuration"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no word of %s", err, want)
		}
	}
	if got := cli.ExitCode(err); got != cli.ExitRefused {
		t.Errorf("exit code %d", got)
	}
	server = "limit reached"
	if _, err = c.Admin.Status(t.Context(), &apiv1.StatusRequest{}); strings.Contains(err.Error(), "messageSize") {
		t.Errorf("another limit: %v", err)
	}
}

// The interface carries UTF-8 alone; what is not is named as the command line has it, not as the encoder says.
func TestNotUTF8(t *testing.T) {
	f := &clitest.Fake{}
	f.Serve(t)
	c, err := cli.Dial(f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{
		Ref: "we\xc0b", Argv: []string{"l\xe9", "caf\xc3\xa9", "b\xff"}, Parameters: map[string]string{"a": "/\xfe", "\x80": "1", "b": "2"},
		Environment: []string{"A=1", "B=\xfd", "\xfc=1"}, Directory: "/\xed\xa0\x80", User: "\xf8", Group: "\xf9",
	}}
	stream, err := c.Sandboxes.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, unary := c.Sandboxes.Start(t.Context(), req)
	_, apply := c.Policies.Apply(t.Context(), &apiv1.ApplyRequest{
		Message: "gr\xfc\xdfe", Files: []*apiv1.SourceFile{{Name: "a\xff.yaml", Content: []byte("\xff")}},
	})
	_, tag := c.Policies.SetTag(t.Context(), &apiv1.SetTagRequest{Ref: "web", Tag: "\xff"})
	spec := []string{
		`reference: "we\xc0b"`, `program: "l\xe9"`, `argument 2 of the program: "b\xff"`, `--set: "a=/\xfe"`, `--set: "\x80=1"`,
		`environment variable B (--env): "B=\xfd"`, `--env: "\xfc=1"`, `--dir: "/\xed\xa0\x80"`, `--user: "\xf8"`, `--group: "\xf9"`,
	}
	for _, tc := range []struct {
		err  error
		want []string
	}{
		{unary, spec},
		{stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: req}}), spec},
		{apply, []string{`--message: "gr\xfc\xdfe"`, `name of a file: "a\xff.yaml"`}},
		{tag, []string{`tag: "\xff"`}},
	} {
		if cli.ExitCode(tc.err) != cli.ExitUsage || cli.StartExitCode(tc.err) != cli.ExitFailed {
			t.Errorf("exit codes %d and %d: %v", cli.ExitCode(tc.err), cli.StartExitCode(tc.err), tc.err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(tc.err.Error(), want+" is not UTF-8") {
				t.Errorf("%v: no word of %s", tc.err, want)
			}
		}
		if n := strings.Count(tc.err.Error(), "is not UTF-8"); n != len(tc.want) {
			t.Errorf("%d texts are named, want %d: %v", n, len(tc.want), tc.err)
		}
	}
}

// A policyd that ends lets go of connections that it has accepted: nothing was asked yet, and the one that comes is asked.
func TestLetGo(t *testing.T) {
	f := &clitest.Fake{
		OnStatus: func(context.Context, *apiv1.StatusRequest) (*apiv1.StatusResponse, error) {
			return &apiv1.StatusResponse{}, nil
		},
		OnBackup: func(*apiv1.BackupRequest, grpc.ServerStreamingServer[apiv1.BackupResponse]) error { return nil },
	}
	f.Serve(t)
	front := filepath.Join(t.TempDir(), "front.sock")
	l, err := net.Listen("unix", front)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var accepted atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if accepted.Add(1)%3 != 0 {
				c.Close()
				continue
			}
			back, err := net.Dial("unix", f.Socket)
			if err != nil {
				c.Close()
				return
			}
			go func() { _, _ = io.Copy(back, c); back.Close() }()
			go func() { _, _ = io.Copy(c, back); c.Close() }()
		}
	}()
	for range 2 {
		c, err := cli.Dial(front)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Admin.Status(t.Context(), &apiv1.StatusRequest{}); err != nil {
			t.Errorf("after %d connections: %v", accepted.Load(), err)
		}
		c.Close()
	}
	c, err := cli.Dial(front)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Admin.Backup(t.Context(), &apiv1.BackupRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("a stream after %d connections: %v", accepted.Load(), err)
	}
	// One that never greets is not waited for.
	l.Close()
	if l, err = net.Listen("unix", front); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	none, err := cli.Dial(front)
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if _, err := none.Admin.Status(t.Context(), &apiv1.StatusRequest{}); cli.ExitCode(err) != cli.ExitUnreachable {
		t.Errorf("exit code %d: %v", cli.ExitCode(err), err)
	}
	l.Close()
}
