package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// callArg makes the test binary the hostile program of a sandbox.
const callArg = "call-from-sandbox"

// callFromSandbox tries all that would make the sandbox wider, or end others. The exit status is how often it was let.
func callFromSandbox(socket string) (let int) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return 99
	}
	defer conn.Close()
	ctx := context.Background()
	box, policy, admin := apiv1.NewSandboxServiceClient(conn), apiv1.NewPolicyServiceClient(conn), apiv1.NewAdminServiceClient(conn)
	attempt := func(what string, err error) {
		fmt.Printf("%s: %v\n", what, err)
		if codeOf(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "sandbox") {
			let++
		}
	}
	_, err = box.Start(ctx, &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}}})
	attempt("start", err)
	run, err := box.Run(ctx)
	if err == nil {
		_ = run.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}}}}})
		_, err = run.Recv()
	}
	attempt("run", err)
	_, err = box.ListSandboxes(ctx, &apiv1.ListSandboxesRequest{})
	attempt("list", err)
	_, err = policy.Apply(ctx, &apiv1.ApplyRequest{Files: files(echoPolicy("wider"))})
	attempt("apply", err)
	_, err = policy.Delete(ctx, &apiv1.DeleteRequest{Kind: "LandlockPolicy", Name: "web", Expect: &apiv1.Expectation{Number: 1}})
	attempt("delete", err)
	_, err = admin.CheckStore(ctx, &apiv1.CheckStoreRequest{})
	attempt("check", err)
	if _, err = admin.Status(ctx, &apiv1.StatusRequest{}); err != nil {
		fmt.Println("status:", err)
		let += 50
	}
	return let
}

// A sandboxed program that reaches the socket must not get out through policyd: not by a wider policy, and not by its
// user's own rights.
func TestCallsFromASandbox(t *testing.T) {
	e := start(t, nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e.apply(echoPolicy("web", "        - {allow: [read, execute], at: ["+exe+"]}\n        - {allow: [read], at: [/proc, /sys]}\n"))
	sb, exit := e.run("web", exe, callArg, e.socket)
	if out, errOut := e.logs(sb.GetId()); exit.GetCode() != 0 || exit.GetSignal() != 0 {
		t.Errorf("%v\n%s%s", exit, out, errOut)
	}
}
