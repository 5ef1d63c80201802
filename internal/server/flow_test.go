package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// The main job over the socket: store, start, be refused by the kernel, change, roll back.
func TestMainJob(t *testing.T) {
	e := start(t, nil)
	first := e.apply(echoPolicy("web")).GetResults()[0]
	if first.GetOutcome() != apiv1.ApplyResponse_OUTCOME_CREATED || first.GetVersion().GetNumber() != 1 || first.GetVersion().GetAuthor() != callerName() {
		t.Errorf("first apply: %v", first)
	}
	if again := e.apply(echoPolicy("web")).GetResults()[0]; again.GetOutcome() != apiv1.ApplyResponse_OUTCOME_UNCHANGED || again.GetVersion().GetNumber() != 1 {
		t.Errorf("the same again: %v", again)
	}

	sb, exit := e.run("web", "/bin/sh", "-c", "echo out; echo err >&2; echo x > /tmp/refused-by-the-kernel; cat /etc/hostname >/dev/null")
	if exit.GetCode() != 0 {
		t.Errorf("exit %v", exit)
	}
	stdout, stderr := e.logs(sb.GetId())
	if stdout != "out\n" || !strings.HasPrefix(stderr, "err\n") || !strings.Contains(stderr, "denied") {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
	if sb.GetPolicy() != "web" || sb.GetVersion() != 1 || sb.GetOwner() != callerName() {
		t.Errorf("sandbox %v", sb)
	}

	sleeper := e.startProgram("web@1", "/bin/sleep", "60")
	second := e.apply(echoPolicy("web", "      scope: [signal]\n"), echoPolicy("other"))
	if r := second.GetResults(); len(r) != 2 || r[0].GetOutcome() != apiv1.ApplyResponse_OUTCOME_CHANGED || r[0].GetRunningOlder() != 1 {
		t.Errorf("second apply: %v", r)
	}
	got, err := e.box.GetSandbox(e.ctx(), &apiv1.GetSandboxRequest{Id: sleeper.GetId()[:8]})
	if err != nil || !got.GetSandbox().GetOutdated() {
		t.Errorf("sandbox of an older version: %v, %v", got, err)
	}
	if _, err := e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindLandlockPolicy, Name: "web"}); err == nil {
		t.Error("a policy with a sandbox alive was deleted")
	} else if st := wantStatus(t, err, codes.FailedPrecondition, "REFERENCED"); !strings.Contains(st.Message(), sleeper.GetId()+` of policy "web" is alive`) {
		t.Errorf("deletion refused: %q", st.Message())
	}
	if _, err := e.box.Remove(e.ctx(), &apiv1.RemoveRequest{Id: sleeper.GetId()}); err == nil {
		t.Error("a sandbox alive was removed")
	} else {
		wantStatus(t, err, codes.FailedPrecondition, "STILL_RUNNING")
	}
	if _, err := e.box.Signal(e.ctx(), &apiv1.SignalRequest{Id: sleeper.GetId(), All: true}); err != nil {
		t.Fatal(err)
	}
	w, err := e.box.Wait(e.ctx(), &apiv1.WaitRequest{Id: sleeper.GetId()})
	if err != nil || int(w.GetExit().GetCode()) != exitSIGKILL {
		t.Errorf("after kill: %v, %v", w, err)
	}
	_, err = e.box.Signal(e.ctx(), &apiv1.SignalRequest{Id: sleeper.GetId(), Signal: 15})
	wantStatus(t, err, codes.FailedPrecondition, "NOT_RUNNING")

	back, err := e.policy.Rollback(e.ctx(), &apiv1.RollbackRequest{Kind: store.KindLandlockPolicy, Name: "web", To: 1, Message: "no"})
	if err != nil || back.GetVersion().GetNumber() != 3 || back.GetVersion().GetDigest() != first.GetVersion().GetDigest() {
		t.Errorf("rollback: %v, %v", back, err)
	}
	if _, err := e.policy.SetTag(e.ctx(), &apiv1.SetTagRequest{Kind: store.KindLandlockPolicy, Ref: "web@2", Tag: "stable"}); err != nil {
		t.Fatal(err)
	}
	if sb, _ := e.run("web@stable", "/bin/true"); sb.GetVersion() != 2 {
		t.Errorf("web@stable started version %d", sb.GetVersion())
	}
	hist, err := e.policy.ListVersions(e.ctx(), &apiv1.ListVersionsRequest{Kind: store.KindLandlockPolicy, Name: "web", PageSize: 2})
	if err != nil || len(hist.GetVersions()) != 2 || hist.GetVersions()[0].GetNumber() != 3 || hist.GetNextPageToken() == "" {
		t.Fatalf("history: %v, %v", hist, err)
	}
	hist, err = e.policy.ListVersions(e.ctx(), &apiv1.ListVersionsRequest{Kind: store.KindLandlockPolicy, Name: "web", PageSize: 2, PageToken: hist.GetNextPageToken()})
	if err != nil || len(hist.GetVersions()) != 1 || hist.GetVersions()[0].GetNumber() != 1 || hist.GetNextPageToken() != "" {
		t.Errorf("history, page 2: %v, %v", hist, err)
	}
	list, err := e.policy.List(e.ctx(), &apiv1.ListRequest{Kind: store.KindLandlockPolicy})
	if err != nil || len(list.GetVersions()) != 2 {
		t.Errorf("list: %v, %v", list, err)
	}
	st, err := e.admin.Status(e.ctx(), &apiv1.StatusRequest{})
	if err != nil || st.GetStore().GetPolicies() != 2 || st.GetCaller() != callerName() || len(st.GetRoles()) == 0 || st.GetLandlock().GetAbi() == 0 {
		t.Errorf("status: %v, %v", st, err)
	}
}

func (e *env) logs(id string) (stdout, stderr string) {
	e.t.Helper()
	stream, err := e.box.Logs(e.ctx(), &apiv1.LogsRequest{Id: id})
	if err != nil {
		e.t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stdout, stderr
		}
		if err != nil {
			e.t.Fatalf("logs: %v", err)
		}
		stdout += string(m.GetStdout())
		stderr += string(m.GetStderr())
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	e := start(t, nil)
	req := &apiv1.ApplyRequest{Files: files(echoPolicy("web")), DryRun: true}
	for range 2 {
		resp, err := e.policy.Apply(e.ctx(), req)
		if err != nil || resp.GetResults()[0].GetOutcome() != apiv1.ApplyResponse_OUTCOME_CREATED {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	want := e.apply(echoPolicy("web")).GetResults()[0].GetVersion().GetDigest()
	resp, err := e.policy.Apply(e.ctx(), req)
	if err != nil || resp.GetResults()[0].GetOutcome() != apiv1.ApplyResponse_OUTCOME_UNCHANGED || resp.GetResults()[0].GetVersion().GetDigest() != want {
		t.Errorf("%v, %v", resp, err)
	}
	req.Files = files(echoPolicy("web", "      scope: [signal]\n"))
	resp, err = e.policy.Apply(e.ctx(), req)
	if err != nil || resp.GetResults()[0].GetOutcome() != apiv1.ApplyResponse_OUTCOME_CHANGED || resp.GetResults()[0].GetVersion().GetNumber() != 2 {
		t.Errorf("%v, %v", resp, err)
	}
	req.Expect = &apiv1.Expectation{Number: 7}
	_, err = e.policy.Apply(e.ctx(), req)
	wantStatus(t, err, codes.Aborted, "VERSION_MISMATCH")
}

// Of writers that all expect the same version one wins.
func TestAppliesWithTheSameExpectation(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	all := together(8, func(i int) error {
		_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{
			Files:  files(echoPolicy("web", "        - {allow: [read], at: [/srv/"+string(rune('a'+i))+"], missing: skip}\n")),
			Expect: &apiv1.Expectation{Number: 1},
		})
		return err
	})
	if countNil(all) != 1 {
		t.Errorf("%d writers won: %v", countNil(all), all)
	}
	for _, err := range all {
		if err != nil {
			st := wantStatus(t, err, codes.Aborted, "VERSION_MISMATCH")
			if r := detail[*errdetails.ResourceInfo](st); r.GetResourceName() != "web" {
				t.Errorf("resource %v", r)
			}
		}
	}
	_, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(echoPolicy("a"), echoPolicy("b")), Expect: &apiv1.Expectation{}})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
}

func TestRequestIDs(t *testing.T) {
	e := start(t, nil)
	req := &apiv1.ApplyRequest{Files: files(echoPolicy("web")), RequestId: "r1", Message: "m"}
	one, err := e.policy.Apply(e.ctx(), req)
	if err != nil {
		t.Fatal(err)
	}
	e.apply(echoPolicy("web", "      scope: [signal]\n"))
	two, err := e.policy.Apply(e.ctx(), req)
	if err != nil || two.GetResults()[0].GetVersion().GetNumber() != 1 || two.GetResults()[0].GetOutcome() != one.GetResults()[0].GetOutcome() {
		t.Errorf("the repeat says %v, %v", two, err)
	}
	if info, err := e.store.Info(store.KindLandlockPolicy, "web"); err != nil || info.GetNumber() != 2 {
		t.Errorf("the repeat made a version: %v, %v", info, err)
	}
	other := proto.CloneOf(req)
	other.Message = "another"
	_, err = e.policy.Apply(e.ctx(), other)
	wantStatus(t, err, codes.InvalidArgument, "REQUEST_ID_REUSED")

	startReq := &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "web", Argv: []string{"/bin/true"}}, RequestId: "s1"}
	ids := make([]string, 4)
	for _, err := range together(len(ids), func(i int) error {
		r, err := e.box.Start(e.ctx(), startReq)
		ids[i] = r.GetSandbox().GetId()
		return err
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("repeats of one start made several sandboxes: %v", ids)
		}
	}
	startReq.Spec.Argv = []string{"/bin/false"}
	_, err = e.box.Start(e.ctx(), startReq)
	wantStatus(t, err, codes.InvalidArgument, "REQUEST_ID_REUSED")

	// The id of a call comes back, whether it was given or made.
	for _, given := range []string{"call-7", "", "with blank", strings.Repeat("x", 200)} {
		var trailer metadata.MD
		ctx := e.ctx()
		if given != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, RequestIDKey, given)
		}
		if _, err := e.admin.Status(ctx, &apiv1.StatusRequest{}, grpc.Trailer(&trailer)); err != nil {
			t.Fatal(err)
		}
		got := trailer.Get(RequestIDKey)
		if len(got) != 1 || given == "call-7" && got[0] != given || given != "call-7" && !validRequestID(got[0]) {
			t.Errorf("request id %q came back as %q", given, got)
		}
	}
}

func TestFragments(t *testing.T) {
	e := start(t, nil)
	frag := func(path string) []byte {
		return []byte("apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: team/x}\nspec:\n  abi: 4\n  paths: [{allow: [read], at: [" + path + "]}]\n")
	}
	pol := echoPolicy("web", "      include: [team/x]\n")
	// Both in one request, the user before what it uses.
	if r := e.apply(pol, frag("/opt")).GetResults(); len(r) != 2 || len(r[0].GetVersion().GetPins()) != 1 {
		t.Fatalf("results %v", r)
	}
	before, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "web"})
	if err != nil {
		t.Fatal(err)
	}
	resp := e.apply(frag("/srv"))
	if f := resp.GetFindings(); len(f) == 0 || f[len(f)-1].GetCode() != "pinned-older" || !strings.Contains(f[len(f)-1].GetMessage(), "web@1") {
		t.Errorf("findings %v", f)
	}
	after, err := e.prof.GetProfile(e.ctx(), &apiv1.GetProfileRequest{Ref: "web"})
	if err != nil || after.GetProfileDigest() != before.GetProfileDigest() {
		t.Errorf("a fragment changed a stored policy: %v", err)
	}
	if r := e.apply(pol).GetResults()[0]; r.GetOutcome() != apiv1.ApplyResponse_OUTCOME_CHANGED {
		t.Errorf("the policy with the new fragment: %v", r)
	}
	_, err = e.policy.Delete(e.ctx(), &apiv1.DeleteRequest{Kind: store.KindFragment, Name: "team/x"})
	wantStatus(t, err, codes.FailedPrecondition, "REFERENCED")

	_, err = e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(bytes.ReplaceAll(frag("/opt"), []byte("team/x"), []byte("std/mine")))})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")

	v, err := e.policy.GetVersion(e.ctx(), &apiv1.GetVersionRequest{Kind: store.KindFragment, Ref: "std/base"})
	if err != nil || v.GetVersion().GetSource() == "" {
		t.Errorf("std/base: %v, %v", v, err)
	}
	list, err := e.policy.List(e.ctx(), &apiv1.ListRequest{Kind: store.KindFragment})
	if err != nil || len(list.GetVersions()) < 2 || list.GetVersions()[0].GetName() != "team/x" {
		t.Errorf("list of fragments: %v, %v", list, err)
	}
}

func TestHealth(t *testing.T) {
	st := storetest.Open(t)
	e := startOn(t, st, nil)
	eventually(t, "serving", func() bool {
		for _, name := range e.services() {
			r, err := e.health.Check(e.ctx(), &healthv1.HealthCheckRequest{Service: name})
			if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
				return false
			}
		}
		return true
	})
	if !e.Ready() {
		t.Error("serving, but not ready")
	}
}

// gate is a log whose writer waits at the first error until it is opened.
type gate struct {
	slog.Handler
	reached, open chan struct{}
	once          *sync.Once
}

func (g *gate) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelError {
		g.once.Do(func() {
			close(g.reached)
			<-g.open
		})
	}
	return nil
}

// Before all that is stored has been compiled, policyd is not ready and says so on its socket.
func TestHealthBeforeStoredPoliciesAreCompiled(t *testing.T) {
	st := storetest.Open(t)
	storeBadPolicy(t, st)
	g := &gate{slog.NewTextHandler(io.Discard, nil), make(chan struct{}), make(chan struct{}), new(sync.Once)}
	e := startOn(t, st, func(c *Config) { c.Log = slog.New(g) })
	<-g.reached // compiling is at the last of the stored policies
	for _, name := range e.services() {
		r, err := e.health.Check(e.ctx(), &healthv1.HealthCheckRequest{Service: name})
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health of %q while stored policies are compiled: %v, %v", name, r, err)
		}
	}
	if e.Ready() {
		t.Error("ready before stored policies are compiled")
	}
	close(g.open)
	eventually(t, "ready", e.Ready)
}

// A stored policy that no longer compiles is told; everything else goes on.
func TestStoredPolicyThatDoesNotCompile(t *testing.T) {
	st := storetest.Open(t)
	storeBadPolicy(t, st)
	e := startOn(t, st, nil)
	eventually(t, "ready", e.Ready)
	check, err := e.admin.CheckStore(e.ctx(), &apiv1.CheckStoreRequest{})
	if err != nil || len(check.GetFindings()) == 0 || !strings.Contains(check.GetFindings()[0].GetMessage(), "old") {
		t.Errorf("check: %v, %v", check, err)
	}
	_, err = e.box.Start(e.ctx(), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: "old", Argv: []string{"/bin/true"}}})
	wantStatus(t, err, codes.InvalidArgument, "INVALID")
	e.apply(echoPolicy("new"))
	if _, exit := e.run("new", "/bin/true"); exit.GetCode() != 0 {
		t.Errorf("exit %v", exit)
	}
}

// storeBadPolicy puts a policy named old into the store that no longer compiles.
func storeBadPolicy(t *testing.T, st *store.Store) {
	t.Helper()
	bad := &apiv1.Resource{Kind: &apiv1.Resource_LandlockPolicy{LandlockPolicy: &apiv1.LandlockPolicy{
		Metadata: &apiv1.Metadata{Name: "old"},
		Spec:     &apiv1.LandlockSpec{Abi: 4, Layers: []*apiv1.Layer{{Paths: []*apiv1.PathRule{{Allow: []string{"right_of_the_past"}, At: []string{"/usr"}}}}}},
	}}}
	_, err := st.Apply(context.Background(), store.Actor{Name: "uid:0"}, []store.Put{{
		Kind: store.KindLandlockPolicy, Name: "old", Resource: bad, Digest: "sha256:" + strings.Repeat("0", 64),
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEventsAndBackup(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	ctx, cancel := context.WithCancel(e.ctx())
	stream, err := e.admin.Events(ctx, &apiv1.EventsRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	sb, _ := e.run("web", "/bin/true")
	var types []string
	for len(types) == 0 || types[len(types)-1] != "exit" {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, m.GetEvent().GetType())
		if m.GetEvent().GetType() == "start" && m.GetEvent().GetSubject() != "sandbox/"+sb.GetId() {
			t.Errorf("start of %s", m.GetEvent().GetSubject())
		}
	}
	if got := strings.Join(types, " "); got != "create apply start exit" {
		t.Errorf("events %s", got)
	}
	cancel()
	tail, err := e.admin.Events(e.ctx(), &apiv1.EventsRequest{Tail: 1})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := tail.Recv(); err != nil || m.GetEvent().GetType() != "exit" {
		t.Errorf("tail: %v, %v", m, err)
	}
	if _, err := tail.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the tail: %v", err)
	}

	backup, err := e.admin.Backup(e.ctx(), &apiv1.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var copied bytes.Buffer
	var total uint64
	for {
		m, err := backup.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		total += m.GetTotalBytes()
		copied.Write(m.GetData())
	}
	if total == 0 || total != uint64(copied.Len()) {
		t.Errorf("backup of %d bytes said %d", copied.Len(), total)
	}
	path := filepath.Join(t.TempDir(), "restored.db")
	if _, err := store.Restore(&copied, path, false); err != nil {
		t.Fatal(err)
	}
	restored := storetest.OpenAt(t, path, store.Options{})
	if v, err := restored.Get(store.KindLandlockPolicy, "web"); err != nil || v.GetInfo().GetNumber() != 1 {
		t.Errorf("restored: %v, %v", v, err)
	}
	check, err := e.admin.CheckStore(e.ctx(), &apiv1.CheckStoreRequest{})
	if err != nil || len(check.GetProblems()) > 0 || check.GetLogEntries() < 3 || check.GetLogHead() == "" {
		t.Errorf("check: %v, %v", check, err)
	}
}

// The log holds a start and an end as soon as they were answered, though they reach the store in groups.
func TestEventsAfterRun(t *testing.T) {
	e := start(t, nil)
	e.apply(echoPolicy("web"))
	for range 5 {
		box, _ := e.run("web", "/bin/true")
		stream, err := e.admin.Events(e.ctx(), &apiv1.EventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for {
			r, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.GetEvent().GetSubject() == "sandbox/"+box.GetId() {
				seen[r.GetEvent().GetType()] = true
			}
		}
		if !seen["start"] || !seen["exit"] {
			t.Fatalf("of sandbox %s the log tells %v", box.GetId(), seen)
		}
	}
}
