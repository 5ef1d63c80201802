package server

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// A start refused for a path names the rule it stands in, attached or not.
func TestRefusedPathNamesItsRule(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("gone", "        - {allow: [read_file], at: [/nowhere/at/all]}\n"))
	e.apply(echoPolicy("self", "        - {allow: [read_file], at: [/proc/self/status]}\n"))
	for _, tc := range []struct {
		policy, reason, path string
		skip                 bool
	}{
		{"gone", "PATH_MISSING", "/nowhere/at/all", true},
		{"self", "PATH_REFUSED", "/proc/self/status", false},
	} {
		spec := &apiv1.SandboxSpec{Ref: tc.policy, Argv: []string{"/bin/true"}}
		_, started := e.box.Start(e.ctx(), &apiv1.StartRequest{Spec: spec})
		stream, err := e.box.Run(e.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: &apiv1.StartRequest{Spec: spec}}}); err != nil {
			t.Fatal(err)
		}
		_, ran := stream.Recv()
		for _, err := range []error{started, ran} {
			text := wantStatus(t, err, codes.FailedPrecondition, tc.reason).Message()
			if want := `file0.yaml:11: spec.layers[0].paths[3] has "` + tc.path + `"`; !strings.Contains(text, want) {
				t.Errorf("%q lacks %q", text, want)
			}
			if strings.Contains(text, "missing: skip") != tc.skip {
				t.Errorf("%q: way out for a missing path: want %v", text, tc.skip)
			}
		}
	}
}
