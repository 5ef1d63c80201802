package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/peer"
	"policyd.dev/policyd/store"
)

// Bad documents over the API name the field and the place, and nothing is stored, not even the good ones beside them.
func TestBadDocuments(t *testing.T) {
	e := start(t, nil)
	good := echoPolicy("good")
	for _, tc := range []struct{ name, text, field, place string }{
		{"unknown key", string(echoPolicy("bad")) + "      pats: []\n", "spec.layers[0]", "file1.yaml:11:7"},
		{"unknown right", strings.Replace(string(echoPolicy("bad")), "write_file", "raed", 1), "spec.layers[0].paths[2].allow[1]", "file1.yaml:10:"},
		{"relative path", strings.Replace(string(echoPolicy("bad")), "/dev/null", "dev/null", 1), "spec.layers[0].paths[2].at[0]", "file1.yaml:10:"},
		{"dot dot", strings.Replace(string(echoPolicy("bad")), "/dev/null", "/dev/../null", 1), "spec.layers[0].paths[2].at[0]", "file1.yaml:10:"},
		{"port 65536", string(echoPolicy("bad")) + "      ports: [{allow: [bind_tcp], port: [65536]}]\n", "spec.layers[0].ports[0].port[0]", "file1.yaml:11:"},
		{"port -1", string(echoPolicy("bad")) + "      ports: [{allow: [bind_tcp], port: [-1]}]\n", "spec.layers[0].ports[0].port[0]", "file1.yaml:11:"},
		{"no such fragment", string(echoPolicy("bad")) + "      include: [no/such]\n", "spec.layers[0].include[0]", "file1.yaml:11:"},
		{"same name twice", string(good), "metadata.name", "file1.yaml:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(good, []byte(tc.text))})
			st := wantStatus(t, err, codes.InvalidArgument, "INVALID")
			v := detail[*errdetails.BadRequest](st).GetFieldViolations()
			if len(v) == 0 || !strings.HasPrefix(v[0].GetField(), tc.field) || !strings.HasPrefix(v[0].GetDescription(), tc.place) || v[0].GetReason() == "" {
				t.Errorf("violations %v, want field %s at %s", v, tc.field, tc.place)
			}
			val, err := e.policy.Validate(e.ctx(), &apiv1.ValidateRequest{Files: files(good, []byte(tc.text))})
			if err != nil || len(val.GetFindings()) == 0 || val.GetFindings()[0].GetSeverity() != apiv1.Finding_SEVERITY_ERROR {
				t.Errorf("validate: %v, %v", val, err)
			}
		})
	}
	// A message has fields only.
	_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Resources: []*apiv1.Resource{{Kind: &apiv1.Resource_LandlockPolicy{LandlockPolicy: &apiv1.LandlockPolicy{
		Metadata: &apiv1.Metadata{Name: "bad"},
		Spec:     &apiv1.LandlockSpec{Abi: 4, Layers: []*apiv1.Layer{{Paths: []*apiv1.PathRule{{Allow: []string{"read"}, At: []string{"relative"}}}}}},
	}}}}})
	st := wantStatus(t, err, codes.InvalidArgument, "INVALID")
	if v := detail[*errdetails.BadRequest](st).GetFieldViolations(); len(v) == 0 || v[0].GetField() != "resources[0].spec.layers[0].paths[0].at[0]" {
		t.Errorf("violations %v", v)
	}
	_, err = e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Resources: []*apiv1.Resource{{}}})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
	_, err = e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")

	if l, err := e.policy.List(e.ctx(), &apiv1.ListRequest{Kind: store.KindLandlockPolicy}); err != nil || len(l.GetVersions()) != 0 {
		t.Errorf("stored: %v, %v", l, err)
	}
	if seq, err := e.store.LastSeq(); err != nil || seq > 1 {
		t.Errorf("the log has %d entries, %v", seq, err)
	}
}

func TestStrictMakesWarningsErrors(t *testing.T) {
	e := start(t, nil)
	text := files(echoPolicy("web", "        - {allow: [execute], at: [/opt], missing: skip}\n"))
	resp, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: text, DryRun: true})
	if err != nil || len(resp.GetFindings()) == 0 {
		t.Fatalf("no warning: %v, %v", resp, err)
	}
	_, err = e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: text, Strict: true})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
	e.apply(text[0].GetContent())
}

func TestBadRequests(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	spec := func(change func(*apiv1.SandboxSpec)) *apiv1.StartRequest {
		s := &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}}
		change(s)
		return &apiv1.StartRequest{Spec: s}
	}
	for _, tc := range []struct {
		name   string
		req    *apiv1.StartRequest
		code   codes.Code
		reason string
	}{
		{"no spec", &apiv1.StartRequest{}, codes.InvalidArgument, "INVALID"},
		{"no program", spec(func(s *apiv1.SandboxSpec) { s.Argv = nil }), codes.InvalidArgument, "INVALID"},
		{"empty program", spec(func(s *apiv1.SandboxSpec) { s.Argv = []string{""} }), codes.InvalidArgument, "INVALID"},
		{"NUL", spec(func(s *apiv1.SandboxSpec) { s.Argv = append(s.Argv, "a\x00b") }), codes.InvalidArgument, "INVALID"},
		{"huge argument", spec(func(s *apiv1.SandboxSpec) { s.Argv = append(s.Argv, strings.Repeat("x", 1<<20)) }), codes.InvalidArgument, "INVALID"},
		{"many arguments", spec(func(s *apiv1.SandboxSpec) { s.Argv = make([]string, 1<<17); s.Argv[0] = "x" }), codes.InvalidArgument, "INVALID"},
		{"bad environment", spec(func(s *apiv1.SandboxSpec) { s.Environment = []string{"novalue"} }), codes.InvalidArgument, "INVALID"},
		{"relative directory", spec(func(s *apiv1.SandboxSpec) { s.Directory = "tmp" }), codes.InvalidArgument, "INVALID"},
		{"terminal without a client", spec(func(s *apiv1.SandboxSpec) { s.Terminal = &apiv1.Terminal{Rows: 1, Columns: 1} }), codes.InvalidArgument, "INVALID"},
		{"bad ref", spec(func(s *apiv1.SandboxSpec) { s.Ref = "../web" }), codes.InvalidArgument, "INVALID"},
		{"no such policy", spec(func(s *apiv1.SandboxSpec) { s.Ref = "absent" }), codes.NotFound, "NOT_FOUND"},
		{"no such version", spec(func(s *apiv1.SandboxSpec) { s.Ref = "web@9" }), codes.NotFound, "NOT_FOUND"},
		{"unknown parameter", spec(func(s *apiv1.SandboxSpec) { s.Parameters = map[string]string{"x": "/y"} }), codes.InvalidArgument, "INVALID"},
		{"no such program", spec(func(s *apiv1.SandboxSpec) { s.Argv = []string{"/nonexistent"} }), codes.NotFound, "PROGRAM_NOT_FOUND"},
		{"no such command", spec(func(s *apiv1.SandboxSpec) { s.Argv = []string{"no-such-command"} }), codes.NotFound, "PROGRAM_NOT_FOUND"},
		{"not executable", spec(func(s *apiv1.SandboxSpec) { s.Argv = []string{"/etc/passwd"} }), codes.FailedPrecondition, "PROGRAM_REFUSED"},
		{"no such user", spec(func(s *apiv1.SandboxSpec) { s.User = "no-such-user" }), codes.InvalidArgument, "INVALID"},
		{"request id", &apiv1.StartRequest{RequestId: "a b", Spec: spec(func(*apiv1.SandboxSpec) {}).GetSpec()}, codes.InvalidArgument, "INVALID"},
		{"log limit", spec(func(s *apiv1.SandboxSpec) { s.LogLimit = 1 << 60 }), codes.ResourceExhausted, "LIMIT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := e.box.Start(e.ctx(), tc.req)
			wantStatus(t, err, tc.code, tc.reason)
		})
	}
	if l, err := e.box.ListSandboxes(e.ctx(), &apiv1.ListSandboxesRequest{All: true}); err != nil || len(l.GetSandboxes()) != 0 {
		t.Errorf("something was started: %v, %v", l, err)
	}

	calls := map[string]func() error{
		"kind": func() error { _, err := e.policy.List(e.ctx(), &apiv1.ListRequest{Kind: "Pod"}); return err },
		"page token": func() error {
			_, err := e.policy.ListVersions(e.ctx(), &apiv1.ListVersionsRequest{Kind: store.KindLandlockPolicy, Name: "web", PageToken: "x"})
			return err
		},
		"to": func() error {
			_, err := e.policy.Rollback(e.ctx(), &apiv1.RollbackRequest{Kind: store.KindLandlockPolicy, Name: "web"})
			return err
		},
		"tag": func() error {
			_, err := e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web", Tag: "9"})
			return err
		},
		"signal": func() error { _, err := e.box.Signal(e.ctx(), &apiv1.SignalRequest{Id: "zz"}); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) { wantStatus(t, call(), codes.InvalidArgument, "INVALID") })
	}
	_, err := e.box.Wait(e.ctx(), &apiv1.WaitRequest{Id: "0123456789ab"})
	wantStatus(t, err, codes.NotFound, "NOT_FOUND")
	_, err = e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "web", Expect: &apiv1.Expectation{Number: 9}})
	wantStatus(t, err, codes.Aborted, "VERSION_MISMATCH")
	_, err = e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web", Tag: "stable", Expect: &apiv1.Expectation{Number: 9}})
	wantStatus(t, err, codes.Aborted, "VERSION_MISMATCH")
}

func TestMessageTooLarge(t *testing.T) {
	e := start(t, func(c *Config) { c.Limits.MessageBytes = 64 << 10 })
	_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(bytes.Repeat([]byte("#\n"), 64<<10))})
	if codeOf(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("got %v", err)
	}
	e.apply(echoPolicy("web"))
}

// A file of 100,000 rules is within the limits of the language, so the default limits take it.
func TestApplyManyRules(t *testing.T) {
	e := start(t, nil)
	var b bytes.Buffer
	b.WriteString("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: large}\nspec:\n  abi: 4\n  layers:\n    - paths:\n")
	for i := range 100_000 {
		fmt.Fprintf(&b, "        - {allow: [read], at: [/srv/data/folder-%06d]}\n", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	resp, err := e.policy.Apply(ctx, &apiv1.ApplyRequest{Files: files(b.Bytes())})
	if err != nil {
		t.Fatalf("apply of %d bytes: %v", b.Len(), err)
	}
	if n := resp.GetResults()[0].GetVersion().GetNumber(); n != 1 {
		t.Errorf("version %d", n)
	}
	got, err := e.policy.GetVersion(ctx, &apiv1.GetVersionRequest{Kind: store.KindLandlockPolicy, Ref: "large"})
	if err != nil || got.GetVersion().GetSource() != b.String() {
		t.Errorf("what came back is not what was stored: %v", err)
	}
}

func TestLimitsOfUsers(t *testing.T) {
	now := time.Now()
	e := start(t, func(c *Config) {
		c.Limits.Sandboxes, c.Limits.StartsPerSecond, c.Limits.StartBurst = 2, 0, 4
		c.Now = func() time.Time { return now }
	})
	u := e.as(60001, 60001)
	e.apply(echoPolicy("web"))
	var ids []string
	for range 2 {
		ids = append(ids, u.startProgram("web", "/bin/sleep", "60").GetId())
	}
	req := &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}}}
	quota := func(err error, limit string) {
		t.Helper()
		st := wantStatus(t, err, codes.ResourceExhausted, "LIMIT")
		v := detail[*errdetails.QuotaFailure](st).GetViolations()
		if len(v) != 1 || v[0].GetSubject() != "uid:60001" || v[0].GetQuotaMetric() != limit || !strings.HasPrefix(v[0].GetDescription(), limit+": ") {
			t.Errorf("violations %v, want %s", v, limit)
		}
	}
	_, err := u.box.Start(e.ctx(), req)
	quota(err, limitSandboxes)
	if _, err := u.box.Signal(e.ctx(), &apiv1.SignalRequest{Id: ids[0], All: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.box.Wait(e.ctx(), &apiv1.WaitRequest{Id: ids[0]}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a place is free", func() bool { return e.boxes.AliveBy(60001) == 1 })
	if _, err := u.box.Start(e.ctx(), req); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	_, err = u.box.Start(e.ctx(), req)
	quota(err, limitStarts)
	// Another user, and the admin, are not held up by it.
	if _, err := e.as(60002, 60002).box.Start(e.ctx(), req); err != nil {
		t.Errorf("another user: %v", err)
	}
	for range 10 {
		if _, err := e.box.Start(e.ctx(), req); err != nil {
			t.Errorf("admin: %v", err)
		}
	}

	e.Reload(nil, config.Limits{Sandboxes: 10, StartsPerSecond: 1, StartBurst: 100, LogBytes: 1 << 20, UserLogBytes: 0})
	_, err = u.box.Start(e.ctx(), req)
	quota(err, limitLogs)
}

func TestBucketsAreForgotten(t *testing.T) {
	var r startRates
	r.set(config.Limits{StartsPerSecond: 1, StartBurst: 2})
	now := time.Now()
	for i := range 100 {
		if err := r.take(fmt.Sprint(i), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.take("1", now.Add(2*sweepEvery)); err != nil {
		t.Fatal(err)
	}
	if len(r.buckets) != 1 {
		t.Errorf("%d buckets are kept", len(r.buckets))
	}
}

// A handler that panics, or fails for a reason without a row, costs one call and tells the client nothing but an id.
func TestPanicsAndUnknownErrors(t *testing.T) {
	e := start(t, func(c *Config) { c.Log = slog.New(slog.DiscardHandler) })
	ctx := grpcpeer.NewContext(context.Background(), &grpcpeer.Peer{
		AuthInfo: peer.AuthInfo{Identity: &peer.Identity{Local: true, UID: uint32(os.Geteuid())}},
	})
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(RequestIDKey, "the-id"))
	info := &grpc.UnaryServerInfo{FullMethod: apiv1.AdminService_Status_FullMethodName}
	streamInfo := &grpc.StreamServerInfo{FullMethod: apiv1.AdminService_Events_FullMethodName}
	for name, fail := range map[string]func() error{
		"panic": func() error { panic("the secret") },
		"index": func() error { return []error{}[len(os.Args)] },
		"error": func() error { return errors.New("the secret") },
	} {
		_, unary := e.unary(ctx, nil, info, func(context.Context, any) (any, error) { return nil, fail() })
		stream := e.stream(nil, &fakeStream{ctx: ctx}, streamInfo, func(any, grpc.ServerStream) error { return fail() })
		for kind, err := range map[string]error{"unary": unary, "stream": stream} {
			st := wantStatus(t, err, codes.Internal, ReasonInternal)
			if strings.Contains(st.String(), "secret") || !strings.Contains(st.Message(), "the-id") {
				t.Errorf("%s in a %s call reaches the client as %v", name, kind, err)
			}
		}
	}
}

// fakeStream is a stream nobody reads.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *fakeStream) Context() context.Context { return s.ctx }
func (s *fakeStream) SetTrailer(metadata.MD)   {}

func TestReflection(t *testing.T) {
	e := start(t, nil)
	stream, err := reflectionv1.NewServerReflectionClient(e.dial(nil)).ServerReflectionInfo(e.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil || !strings.Contains(m.String(), "policyd.v1.PolicyService") {
		t.Errorf("%v, %v", m, err)
	}
}
