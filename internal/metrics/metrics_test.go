package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// scrape gives what Prometheus would get.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// wants holds that the text has these lines.
func wants(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			t.Errorf("no line %q in\n%s", l, text)
		}
	}
}

func failed(code codes.Code, reason string) error {
	st, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Reason: reason})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func TestCalls(t *testing.T) {
	m := New()
	call := func(method string, resp any, err error) {
		t.Helper()
		got, gotErr := m.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return resp, err })
		if got != resp || !errors.Is(gotErr, err) {
			t.Errorf("%s: the answer was changed: %v, %v", method, got, gotErr)
		}
	}
	profile := apiv1.ProfileService_GetProfile_FullMethodName
	missing := []*apiv1.MissingRight{{Right: "bind_tcp"}}
	call(profile, &apiv1.GetProfileResponse{}, nil)
	call(profile, &apiv1.GetProfileResponse{NotModified: true, Missing: missing}, nil)
	call(profile, &apiv1.GetProfileResponse{Missing: missing}, nil)
	call(profile, nil, failed(codes.NotFound, "NO_BINDING"))
	call(profile, nil, failed(codes.NotFound, "NOT_FOUND"))
	start := apiv1.SandboxService_Start_FullMethodName
	call(start, &apiv1.StartResponse{Sandbox: &apiv1.Sandbox{Missing: missing}}, nil)
	call(start, nil, failed(codes.FailedPrecondition, "PATH_MISSING"))
	call(start, nil, status.Error(codes.Unavailable, "no details"))
	text := scrape(t, m)
	wants(t, text,
		`policyd_rpcs_total{code="OK",method="ProfileService/GetProfile"} 3`,
		`policyd_rpcs_total{code="NotFound",method="ProfileService/GetProfile"} 2`,
		`policyd_rpcs_total{code="Unavailable",method="SandboxService/Start"} 1`,
		`policyd_rpc_duration_seconds_count{method="SandboxService/Start"} 3`,
		`policyd_profile_requests_total{answer="profile"} 1`,
		`policyd_profile_requests_total{answer="degraded"} 1`,
		`policyd_profile_requests_total{answer="not_modified"} 1`,
		`policyd_profile_requests_total{answer="no_binding"} 1`,
		`policyd_profile_requests_total{answer="refused"} 1`,
		`policyd_sandbox_starts_total{how="detached"} 1`,
		`policyd_sandbox_starts_total{how="attached"} 0`,
		`policyd_sandbox_starts_degraded_total 1`,
		`policyd_sandbox_start_failures_total{reason="PATH_MISSING"} 1`,
		`policyd_sandbox_start_failures_total{reason="OTHER"} 1`,
		`policyd_sandbox_start_duration_seconds_count 1`,
	)
}

// stream is a client that takes everything.
type stream struct{ grpc.ServerStream }

func (stream) SendMsg(any) error { return nil }

func TestRunIsAStartByItsFirstMessage(t *testing.T) {
	m := New()
	run := func(sent []*apiv1.RunResponse, err error) {
		info := &grpc.StreamServerInfo{FullMethod: apiv1.SandboxService_Run_FullMethodName}
		got := m.Stream(nil, stream{}, info, func(_ any, ss grpc.ServerStream) error {
			for _, r := range sent {
				if err := ss.SendMsg(r); err != nil {
					t.Error(err)
				}
			}
			return err
		})
		if !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
	started := &apiv1.RunResponse{Response: &apiv1.RunResponse_Started{Started: &apiv1.Sandbox{}}}
	output := &apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: []byte("x")}}
	run([]*apiv1.RunResponse{started, output, output}, nil)
	run([]*apiv1.RunResponse{started}, status.Error(codes.Canceled, "the client went away"))
	run(nil, failed(codes.NotFound, "PROGRAM_NOT_FOUND"))
	// Another call that streams is no start.
	err := m.Stream(nil, stream{}, &grpc.StreamServerInfo{FullMethod: apiv1.AdminService_Events_FullMethodName}, func(_ any, ss grpc.ServerStream) error {
		return ss.SendMsg(&apiv1.EventsResponse{})
	})
	if err != nil {
		t.Error(err)
	}
	text := scrape(t, m)
	wants(t, text,
		`policyd_sandbox_starts_total{how="attached"} 2`,
		`policyd_sandbox_start_failures_total{reason="PROGRAM_NOT_FOUND"} 1`,
		`policyd_rpcs_total{code="OK",method="SandboxService/Run"} 1`,
		`policyd_rpcs_total{code="OK",method="AdminService/Events"} 1`,
	)
	if strings.Contains(text, `CANCELED`) || strings.Contains(text, `policyd_rpc_duration_seconds_count{method="SandboxService/Run"}`) {
		t.Errorf("the end of a program is no failed start, and its life no duration:\n%s", text)
	}
}

func TestStateAndReload(t *testing.T) {
	m := New()
	if text := scrape(t, m); strings.Contains(text, "policyd_sandboxes ") {
		t.Error("a state that nobody can read was told")
	}
	m.Read(func(context.Context) State {
		return State{
			Ready: true, LandlockABI: 7, Sandboxes: &SandboxState{Alive: 3, Degraded: 2, Outdated: 1},
			Store: &StoreState{Documents: map[string]uint64{"Binding": 4}, Versions: 9, LogEntries: 10, SizeBytes: 11, FreeBytes: 12, CommittedWrites: 13},
			Fleet: &FleetState{State: "Stale", Connected: true, Desired: 8, Loaded: 7, Expiry: time.Unix(1000, 0)},
		}
	})
	m.RolloutHalted()
	m.Reloaded(nil)
	m.Reloaded(errors.New("a mistake"))
	m.Profile(FromCompiler, time.Millisecond)
	m.Profile(FromMemory, 0)
	text := scrape(t, m)
	wants(t, text,
		"policyd_ready 1", "policyd_landlock_abi 7", "policyd_sandboxes 3", "policyd_sandboxes_degraded 2", "policyd_sandboxes_outdated 1",
		`policyd_store_documents{kind="Binding"} 4`, "policyd_store_versions 9", "policyd_store_log_entries 10",
		"policyd_store_size_bytes 11", "policyd_store_free_bytes 12", "policyd_store_commits_total 13",
		`policyd_fleet_state{state="Stale"} 1`, `policyd_fleet_state{state="Loaded"} 0`, "policyd_fleet_connected 1", "policyd_fleet_desired_sequence 8",
		"policyd_fleet_loaded_sequence 7", "policyd_fleet_expiry_timestamp_seconds 1000", "policyd_fleet_rollout_halts_total 1",
		`policyd_state_readable{part="store"} 1`, `policyd_state_readable{part="smack"} 0`,
		`policyd_config_reloads_total{result="ok"} 1`, `policyd_config_reloads_total{result="error"} 1`, "policyd_config_last_reload_successful 0",
		`policyd_profiles_total{from="compiler"} 1`, `policyd_profiles_total{from="memory"} 1`, "policyd_compile_duration_seconds_count 1",
	)
	if strings.Contains(text, "policyd_smack_") {
		t.Error("smackfs could not be read and was told all the same")
	}
}

func TestNobodyAsks(t *testing.T) {
	var m *Metrics
	m.Reloaded(nil)
	m.Profile(FromStore, 0)
	m.RolloutHalted()
	m.Read(nil)
	if got, err := m.Unary(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return 1, nil }); got != 1 || err != nil {
		t.Error(got, err)
	}
	if err := m.Stream(nil, nil, nil, func(any, grpc.ServerStream) error { return nil }); err != nil {
		t.Error(err)
	}
}

// The names are those of Prometheus' conventions, and each is said once.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Table() {
		total := strings.HasSuffix(d.Name, "_total")
		switch {
		case seen[d.Name]:
			t.Errorf("%s stands twice", d.Name)
		case !regexp.MustCompile(`^policyd_[a-z]+(_[a-z]+)*$`).MatchString(d.Name):
			t.Errorf("%s is no name", d.Name)
		case total != (d.Kind == Counter):
			t.Errorf("%s is a %s", d.Name, d.Kind)
		case d.Kind == Histogram && !strings.HasSuffix(d.Name, "_seconds"):
			t.Errorf("%s has no unit", d.Name)
		case d.Help == "" || !strings.HasSuffix(d.Help, "."):
			t.Errorf("%s: help %q", d.Name, d.Help)
		}
		seen[d.Name] = true
	}
}

func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New().Serve(l, func(err error) { t.Error(err) })
	for path, want := range map[string]int{"/metrics": 200, "/": 200, "/debug/pprof/": 404, "/metrics/x": 404} {
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // only the status is looked at
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	resp, err := http.Post("http://"+l.Addr().String()+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}
