package cli_test

import (
	"context"
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
	for _, target := range []string{"tcp://localhost:1", "relative.sock", "unix://relative"} {
		if _, err := cli.Dial(target); cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%s: %v", target, err)
		}
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

// The interface carries UTF-8 alone; what is not is named, not what the encoder says.
func TestNotUTF8(t *testing.T) {
	f := &clitest.Fake{}
	f.Serve(t)
	c, err := cli.Dial(f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{
		Ref: "web", Argv: []string{"ls", "b\xff"}, Parameters: map[string]string{"a": "/\xfe"},
	}}
	stream, err := c.Sandboxes.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, unary := c.Sandboxes.Start(t.Context(), req)
	for _, err := range []error{unary, stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: req}})} {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v", err)
			continue
		}
		for _, want := range []string{`spec.argv[1]: "b\xff" is not UTF-8`, `spec.parameters["a"]: "/\xfe" is not UTF-8`} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: no word of %s", err, want)
			}
		}
	}
}
