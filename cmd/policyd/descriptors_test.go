package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// limited starts policyd under a limit of open files, as ulimit sets it.
func limited(t *testing.T, ulimit string) *process {
	t.Helper()
	needLandlock(t)
	p := command(t, folder(t))
	args := append([]string{"-c", "ulimit " + ulimit + `; exec "$0" "$@"`}, p.cmd.Args...)
	shell := exec.Command("/bin/sh", args...)
	shell.Env, shell.Stdout, shell.Stderr = p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr
	p.cmd = shell
	p.run()
	return p
}

func (p *process) apply() {
	t := p.t
	t.Helper()
	if _, err := apiv1.NewPolicyServiceClient(p.dial()).Apply(ctx(t), &apiv1.ApplyRequest{Files: []*apiv1.SourceFile{{Name: "p", Content: []byte(sleepPolicy)}}}); err != nil {
		t.Fatal(err)
	}
}

// policyd takes all descriptors it may have, and programs get the limit it was started with: those that use select(2)
// must not have more than they can name.
func TestSoftLimitOfDescriptors(t *testing.T) {
	p := limited(t, "-Sn 64")
	p.apply()
	var own unix.Rlimit
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &own); err != nil {
		t.Fatal(err)
	}
	if own.Cur+1 < own.Max { // the runtime may keep one below the hard limit
		t.Errorf("policyd may open %d files of %d", own.Cur, own.Max)
	}
	boxes := apiv1.NewSandboxServiceClient(p.dial())
	res, err := boxes.Start(ctx(t), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "sleep", Argv: []string{"/bin/sh", "-c", "ulimit -Sn"}}})
	if err != nil {
		t.Fatal(err)
	}
	id := res.GetSandbox().GetId()
	if _, err := boxes.Wait(ctx(t), &apiv1.WaitRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	logs, err := boxes.Logs(ctx(t), &apiv1.LogsRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for {
		m, err := logs.Recv()
		if err != nil {
			break
		}
		out.Write(m.GetStdout())
	}
	if out.String() != "64\n" {
		t.Errorf("the program may open %q files, want 64", out.String())
	}
	p.stop(syscall.SIGTERM)
}

// Starts beyond what policyd can open are refused with a reason, and it goes on.
func TestNoDescriptorsLeft(t *testing.T) {
	p := limited(t, "-n 200")
	p.apply()
	conn := p.dial()
	boxes := apiv1.NewSandboxServiceClient(conn)
	if _, err := boxes.ListSandboxes(ctx(t), &apiv1.ListSandboxesRequest{}); err != nil { // connects
		t.Fatal(err)
	}
	var ids []string
	var refused error
	for range 200 {
		res, err := boxes.Start(ctx(t), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "sleep", Argv: []string{"/bin/sleep", "60"}}})
		if err != nil {
			refused = err
			break
		}
		ids = append(ids, res.GetSandbox().GetId())
	}
	if status.Code(refused) != codes.ResourceExhausted || !strings.Contains(status.Convert(refused).Message(), "may open no more files") {
		t.Errorf("after %d starts: %v", len(ids), refused)
	}
	for _, id := range ids {
		if _, err := boxes.Signal(ctx(t), &apiv1.SignalRequest{Id: id, All: true}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := boxes.Wait(ctx(t), &apiv1.WaitRequest{Id: id}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	p.end(p.sleeper().GetId())
	p.stop(syscall.SIGTERM)
}

// What is made in advance never takes the descriptors that those who connect need.
func TestFewDescriptors(t *testing.T) {
	p := limited(t, "-n 64")
	p.logs("nothing could be made ready for sandboxes")
	p.apply()
	for range 3 {
		p.end(p.sleeper().GetId())
	}
	p.stop(syscall.SIGTERM)
}
