package server

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// TestAttachRefuses: what cannot be attached to, and messages that break the contract.
func TestAttachRefuses(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	_, carried := e.attach(e.ctx(), &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/sleep", "60"}})
	detached := e.startProgram("web", "/bin/sleep", "60")
	over, _ := e.run("web", "/bin/true")
	at := func(id string) *apiv1.AttachRequest {
		return &apiv1.AttachRequest{Request: &apiv1.AttachRequest_Attach{Attach: &apiv1.AttachStart{Id: id}}}
	}
	for name, tc := range map[string]struct {
		first *apiv1.AttachRequest // nil: the client sends nothing
		code  codes.Code
	}{
		"nothing":      {nil, codes.InvalidArgument},
		"empty":        {&apiv1.AttachRequest{}, codes.InvalidArgument},
		"input first":  {&apiv1.AttachRequest{Request: &apiv1.AttachRequest_Stdin{Stdin: []byte("x")}}, codes.InvalidArgument},
		"no id":        {at(""), codes.InvalidArgument},
		"unknown":      {at("ffffffffffff"), codes.NotFound},
		"has a client": {at(carried.GetId()), codes.AlreadyExists},
		"detached":     {at(detached.GetId()), codes.InvalidArgument},
		"ended":        {at(over.GetId()), codes.InvalidArgument},
	} {
		stream, err := e.box.Attach(e.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if tc.first == nil {
			err = stream.CloseSend()
		} else {
			err = stream.Send(tc.first)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.Code(err) != tc.code {
			t.Errorf("%s: %v, want %v", name, err, tc.code)
		}
	}
	if sb, err := e.box.GetSandbox(e.ctx(), &apiv1.GetSandboxRequest{Id: carried.GetId()}); err != nil || sb.GetSandbox().GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("%v, %v", sb, err)
	}
}
