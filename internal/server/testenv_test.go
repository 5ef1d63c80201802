package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/sandbox"
	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// The test binary is also the supervisor of the sandboxes it starts, and the process a service manager hands sockets to.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		os.Exit(spawn.Supervise())
	}
	if len(os.Args) > 1 && os.Args[1] == callArg {
		os.Exit(callFromSandbox(os.Args[2]))
	}
	if os.Getenv(activationEnv) != "" {
		os.Exit(activatedMain())
	}
	goleak.VerifyTestMain(m)
}

// env is a whole policyd in this process, on a real socket with a real store.
type env struct {
	*Server
	t      testing.TB
	store  *store.Store
	boxes  *sandbox.Manager
	socket string
	policy apiv1.PolicyServiceClient
	prof   apiv1.ProfileServiceClient
	box    apiv1.SandboxServiceClient
	admin  apiv1.AdminServiceClient
	health healthv1.HealthClient
}

// testLimits are wide enough not to be met by accident.
func testLimits() config.Limits {
	l := config.Default(os.Geteuid()).Limits
	l.StartsPerSecond, l.StartBurst = 1e6, 1e6
	return l
}

// start runs a policyd; change may adjust its configuration. The clients are those of the user the test runs as.
func start(t testing.TB, change func(*Config)) *env {
	t.Helper()
	return startOn(t, storetest.Open(t), change)
}

func startOn(t testing.TB, st *store.Store, change func(*Config)) *env {
	t.Helper()
	dir := openDir(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	containment, err := spawn.DetectContainment(spawn.Options{Launcher: exe, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	sup := landlock.Probe()
	if sup.State != landlock.Available {
		testkernel.Skip(t, "Landlock", "use a kernel with CONFIG_SECURITY_LANDLOCK and landlock in lsm=")
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	boxes, err := sandbox.New(t.Context(), sandbox.Config{
		StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"), Store: st, Support: sup,
		Containment: containment, Log: log, HangupGrace: 200 * time.Millisecond, Outdated: Outdated(st),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		list, _, err := boxes.List(sandbox.Filter{})
		if err != nil {
			t.Error(err)
		}
		for _, sb := range list {
			_ = boxes.Signal(sb.GetId(), 0, true) // it may have ended meanwhile
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for _, sb := range list {
			_, _ = boxes.Wait(ctx, sb.GetId())
		}
		if err := boxes.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	cfg := Config{
		Store: st, Sandboxes: boxes, Support: sup, Containment: containment.Name(), Limits: testLimits(), Log: log, UID: os.Geteuid(),
	}
	if change != nil {
		change(&cfg)
	}
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Server: srv, t: t, store: st, boxes: boxes, socket: filepath.Join(dir, "policyd.sock")}
	l, err := ListenUnix(e.socket, 0o666, -1)
	if err != nil {
		srv.Stop(0)
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop(5 * time.Second)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	e.connect(e.dial(nil))
	return e
}

// openDir is a temporary folder that other users can enter.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "srv") //nolint:usetesting // other users must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (e *env) connect(conn grpc.ClientConnInterface) {
	e.policy, e.prof = apiv1.NewPolicyServiceClient(conn), apiv1.NewProfileServiceClient(conn)
	e.box, e.admin = apiv1.NewSandboxServiceClient(conn), apiv1.NewAdminServiceClient(conn)
	e.health = healthv1.NewHealthClient(conn)
}

// dial connects as a user; nil: as the one the test runs as.
func (e *env) dial(as *spawn.Credential) *grpc.ClientConn {
	e.t.Helper()
	conn, err := grpc.NewClient("passthrough:///policyd",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if as == nil {
				return (&net.Dialer{}).DialContext(ctx, "unix", e.socket)
			}
			return dialAs(e.socket, as)
		}))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { conn.Close() })
	return conn
}

// as is the same policyd seen by another user. Only root can do that.
func (e *env) as(uid, gid uint32, groups ...uint32) *env {
	e.t.Helper()
	testkernel.RequireRoot(e.t)
	other := *e
	other.connect(e.dial(&spawn.Credential{UID: uid, GID: gid, Groups: groups}))
	return &other
}

// dialAs connects from a thread that has become another user: the kernel records the credentials of the thread
// that calls connect(2). The thread ends with the goroutine, which stays locked to it; the process's first thread
// would only be parked, and who asks for this process's user (/proc/PID, signals) would get that one's for good.
func dialAs(socket string, as *spawn.Credential) (net.Conn, error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	var connect func()
	connect = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			elsewhere := make(chan struct{})
			go func() { defer close(elsewhere); connect() }()
			<-elsewhere // this thread is taken meanwhile
			return
		}
		fd, err := connectAs(socket, as)
		done <- result{fd, err}
	}
	go connect()
	r := <-done
	if r.err != nil {
		return nil, r.err
	}
	f := os.NewFile(uintptr(r.fd), socket)
	defer f.Close()
	return net.FileConn(f)
}

func connectAs(socket string, as *spawn.Credential) (int, error) {
	groups := append([]uint32{as.GID}, as.Groups...)
	// Raw calls: those of package syscall change every thread.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return -1, fmt.Errorf("setgroups: %w", errno)
	}
	g, u := uintptr(as.GID), uintptr(as.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, g, g, g); errno != 0 {
		return -1, fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, u, u, u); errno != 0 {
		return -1, fmt.Errorf("setresuid: %w", errno)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// echoPolicy lets a program of the system run and read; web is its name.
func echoPolicy(name string, more ...string) []byte {
	text := `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: ` + name + `}
spec:
  abi: 6
  layers:
    - paths:
        - {allow: [read, execute], at: [/usr, /etc]}
        - {allow: [read, execute], at: [/lib, /lib64, /bin], missing: skip}
        - {allow: [read, write_file], at: [/dev/null]}
`
	for _, m := range more {
		text += m
	}
	return []byte(text)
}

func files(contents ...[]byte) []*apiv1.SourceFile {
	var out []*apiv1.SourceFile
	for i, c := range contents {
		out = append(out, &apiv1.SourceFile{Name: fmt.Sprintf("file%d.yaml", i), Content: c})
	}
	return out
}

// apply stores texts and fails the test when that is refused.
func (e *env) apply(contents ...[]byte) *apiv1.ApplyResponse {
	e.t.Helper()
	resp, err := e.policy.Apply(e.ctx(), &apiv1.ApplyRequest{Files: files(contents...)})
	if err != nil {
		e.t.Fatalf("apply: %v", err)
	}
	return resp
}

func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	e.t.Cleanup(cancel)
	return ctx
}

// run starts a detached program and waits for its end.
func (e *env) run(ref string, argv ...string) (*apiv1.Sandbox, *apiv1.ExitStatus) {
	e.t.Helper()
	sb := e.startProgram(ref, argv...)
	w, err := e.box.Wait(e.ctx(), &apiv1.WaitRequest{Id: sb.GetId()})
	if err != nil {
		e.t.Fatalf("wait: %v", err)
	}
	return sb, w.GetExit()
}

func (e *env) startProgram(ref string, argv ...string) *apiv1.Sandbox {
	e.t.Helper()
	resp, err := e.box.Start(e.ctx(), &apiv1.StartRequest{Spec: &apiv1.SandboxSpec{Ref: ref, Argv: argv}})
	if err != nil {
		e.t.Fatalf("start %v under %s: %v", argv, ref, err)
	}
	return resp.GetSandbox()
}

// wantStatus fails the test unless err has the code and the reason.
func wantStatus(t testing.TB, err error, code codes.Code, reason string) *status.Status {
	t.Helper()
	st, _ := status.FromError(err)
	if st.Code() != code {
		t.Errorf("got %v, want %v %s", err, code, reason)
		return st
	}
	info := detail[*errdetails.ErrorInfo](st)
	if info.GetReason() != reason || info.GetDomain() != Domain {
		t.Errorf("got reason %q of %q, want %q (%v)", info.GetReason(), info.GetDomain(), reason, err)
	}
	return st
}

// detail is the first detail of a type, or its zero value.
func detail[D any](st *status.Status) (none D) {
	for _, d := range st.Details() {
		if d, ok := d.(D); ok {
			return d
		}
	}
	return none
}

// eventually waits for something another goroutine or process brings about.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// together calls f n times at once and returns the errors.
func together(n int, f func(i int) error) []error {
	out := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { out[i] = f(i) })
	}
	wg.Wait()
	return out
}

func countNil(all []error) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(err error) bool { return err != nil }))
}

const exitSIGKILL = 128 + int(syscall.SIGKILL)

func callerName() string { return fmt.Sprintf("uid:%d", os.Getuid()) }

func codeOf(err error) codes.Code { return status.Code(err) }

func sprint(args ...any) string { return strings.TrimSpace(fmt.Sprintln(args...)) }

// runAttached runs a program to its end and drops its output.
func (e *env) runAttached(ctx context.Context, req *apiv1.StartRequest) error {
	stream, err := e.box.Run(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&apiv1.RunRequest{Request: &apiv1.RunRequest_Start{Start: req}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return ignoreEOF(err)
		}
	}
}
