// Package clitest is a fake policyd for tests of clients: a gRPC server on a
// unix socket whose answers a test sets as functions. Only tests import it; it
// imports the API and gRPC.
package clitest

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Fake answers calls by its functions; a nil one is codes.Unimplemented.
type Fake struct {
	apiv1.UnimplementedPolicyServiceServer
	apiv1.UnimplementedSandboxServiceServer
	apiv1.UnimplementedAdminServiceServer

	OnApply  func(context.Context, *apiv1.ApplyRequest) (*apiv1.ApplyResponse, error)
	OnStatus func(context.Context, *apiv1.StatusRequest) (*apiv1.StatusResponse, error)
	OnSignal func(context.Context, *apiv1.SignalRequest) (*apiv1.SignalResponse, error)
	OnRun    func(grpc.BidiStreamingServer[apiv1.RunRequest, apiv1.RunResponse]) error
	OnAttach func(grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]) error
	OnBackup func(*apiv1.BackupRequest, grpc.ServerStreamingServer[apiv1.BackupResponse]) error
	OnUsage  func(context.Context, *apiv1.UsageRequest) (*apiv1.UsageResponse, error)

	// Socket is where it listens, after Serve.
	Socket string
	server *grpc.Server
}

// Serve serves on a socket in a folder of the test's until it ends.
func (f *Fake) Serve(t testing.TB) {
	t.Helper()
	if f.Socket == "" {
		f.Socket = filepath.Join(t.TempDir(), "policyd.sock")
	}
	l, err := net.Listen("unix", f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	apiv1.RegisterPolicyServiceServer(s, f)
	apiv1.RegisterSandboxServiceServer(s, f)
	apiv1.RegisterAdminServiceServer(s, f)
	f.server = s
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
}

// Stop breaks every connection and removes the socket.
func (f *Fake) Stop() { f.server.Stop() }

// Apply implements PolicyService.
func (f *Fake) Apply(ctx context.Context, r *apiv1.ApplyRequest) (*apiv1.ApplyResponse, error) {
	if f.OnApply == nil {
		return f.UnimplementedPolicyServiceServer.Apply(ctx, r)
	}
	return f.OnApply(ctx, r)
}

// Status implements AdminService.
func (f *Fake) Status(ctx context.Context, r *apiv1.StatusRequest) (*apiv1.StatusResponse, error) {
	if f.OnStatus == nil {
		return f.UnimplementedAdminServiceServer.Status(ctx, r)
	}
	return f.OnStatus(ctx, r)
}

// Backup implements AdminService.
func (f *Fake) Backup(r *apiv1.BackupRequest, s grpc.ServerStreamingServer[apiv1.BackupResponse]) error {
	if f.OnBackup == nil {
		return f.UnimplementedAdminServiceServer.Backup(r, s)
	}
	return f.OnBackup(r, s)
}

// Signal implements SandboxService.
func (f *Fake) Signal(ctx context.Context, r *apiv1.SignalRequest) (*apiv1.SignalResponse, error) {
	if f.OnSignal == nil {
		return f.UnimplementedSandboxServiceServer.Signal(ctx, r)
	}
	return f.OnSignal(ctx, r)
}

// Run implements SandboxService.
func (f *Fake) Run(s grpc.BidiStreamingServer[apiv1.RunRequest, apiv1.RunResponse]) error {
	if f.OnRun == nil {
		return f.UnimplementedSandboxServiceServer.Run(s)
	}
	return f.OnRun(s)
}

// Attach implements SandboxService.
func (f *Fake) Attach(s grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]) error {
	if f.OnAttach == nil {
		return f.UnimplementedSandboxServiceServer.Attach(s)
	}
	return f.OnAttach(s)
}

// Usage implements SandboxService.
func (f *Fake) Usage(ctx context.Context, r *apiv1.UsageRequest) (*apiv1.UsageResponse, error) {
	if f.OnUsage == nil {
		return f.UnimplementedSandboxServiceServer.Usage(ctx, r)
	}
	return f.OnUsage(ctx, r)
}
