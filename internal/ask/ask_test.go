package ask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// server answers as the question's reference says.
type server struct {
	apiv1.UnimplementedProfileServiceServer
	asked chan *apiv1.GetProfileRequest
}

func (s *server) GetProfile(ctx context.Context, q *apiv1.GetProfileRequest) (*apiv1.GetProfileResponse, error) {
	s.asked <- q
	what, rest, _ := strings.Cut(q.GetRef(), ":")
	switch what {
	case "code":
		var code codes.Code
		var text string
		fmt.Sscanf(rest, "%d", &code)
		_, text, _ = strings.Cut(rest, ",")
		return nil, status.Error(code, text)
	case "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	case "big":
		var n int
		fmt.Sscanf(rest, "%d", &n)
		return &apiv1.GetProfileResponse{Profile: make([]byte, n), Version: &apiv1.VersionInfo{Name: "big", Number: 1}}, nil
	}
	return &apiv1.GetProfileResponse{
		Profile: []byte("the profile"), ProfileDigest: "sha256:12", Version: &apiv1.VersionInfo{Kind: "LandlockPolicy", Name: "web", Number: 7, Author: "uid:0"},
		Missing: []*apiv1.MissingRight{{Layer: "host", Kind: "fs", Right: "truncate", NeedsAbi: 3}, {Kind: "smack", Right: "Web"}}, Binding: "edge",
		Origins: []*apiv1.Origin{{}}, SmackLabel: "Web", SmackError: "no smack",
		Process: &apiv1.Process{SmackLabel: "Web", Umask: "0077", Limits: map[string]string{"nofile": "1", "core": "0"}},
	}, nil
}

func serve(t testing.TB, o ...grpc.ServerOption) (string, *server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g, s := grpc.NewServer(o...), &server{asked: make(chan *apiv1.GetProfileRequest, 1)}
	apiv1.RegisterProfileServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return path, s
}

// What is asked arrives as it was meant, and what is answered comes back, from gRPC's own server.
func TestProfile(t *testing.T) {
	path, s := serve(t)
	long := strings.Repeat("x", 400<<10) // more than any window is open at first
	for _, q := range []*Question{
		{Ref: "web@stable"},
		{Ref: "web", Parameters: map[string]string{"state": "/var/lib/web", "b": ""}},
		{Workload: &Workload{Image: "nginx:1", Namespace: "edge", Container: "app", Annotations: map[string]string{"a": "b", "": "ü"}, Labels: map[string]string{"l": "m"}}},
		{Workload: &Workload{Annotations: map[string]string{"long": long}}},
		{},
	} {
		a, err := Profile(path, q, 10*time.Second)
		if err != nil {
			t.Fatalf("%.80v: %v", q, err)
		}
		want := &apiv1.GetProfileRequest{Ref: q.Ref, Parameters: q.Parameters}
		if w := q.Workload; w != nil {
			want.Workload = &apiv1.Workload{Image: w.Image, Namespace: w.Namespace, Container: w.Container, Annotations: w.Annotations, Labels: w.Labels}
		}
		if got := <-s.asked; !proto.Equal(got, want) {
			t.Errorf("asked %.300v, want %.300v", got, want)
		}
		if want := (&Answer{
			Profile: []byte("the profile"), Digest: "sha256:12", Version: "web@7", Binding: "edge", SmackLabel: "Web", SmackError: "no smack",
			Process: []string{"umask", "limits"},
			Missing: []string{"fs truncate of layer host (Landlock ABI 3)", "Smack label Web (this kernel has no Smack)"},
		}); !reflect.DeepEqual(a, want) {
			t.Errorf("answer %+v, want %+v", a, want)
		}
	}
	for _, n := range []int{0, 1, 16384, 65536, 5 << 20} {
		a, err := Profile(path, &Question{Ref: fmt.Sprintf("big:%d", n)}, 20*time.Second)
		if err != nil || len(a.Profile) != n {
			t.Errorf("%d bytes: %v", n, err)
		}
		<-s.asked
	}
}

func TestRefusals(t *testing.T) {
	path, s := serve(t, grpc.MaxRecvMsgSize(1<<20))
	for _, tc := range []struct {
		ref      string
		code     codes.Code
		message  string
		noAnswer bool
	}{
		{"code:5,policy \"wbe\" does not exist", codes.NotFound, `policy "wbe" does not exist`, false},
		{"code:7,100%: ü\nline", codes.PermissionDenied, "100%: ü\nline", false},
		{"code:14,not ready", codes.Unavailable, "not ready", true},
		{"code:4,", codes.DeadlineExceeded, "", true},
		{"slow:", codes.DeadlineExceeded, "no answer in time", true},
	} {
		patience := 10 * time.Second
		if tc.ref == "slow:" {
			patience = 100 * time.Millisecond
		}
		_, err := Profile(path, &Question{Ref: tc.ref}, patience)
		e, ok := errors.AsType[*Error](err)
		if !ok || codes.Code(e.Code) != tc.code || !strings.Contains(e.Message, tc.message) || NoAnswer(err) != tc.noAnswer {
			t.Errorf("%q: %#v", tc.ref, err)
		}
		<-s.asked
	}
	// Told before the server has taken all of it.
	_, err := Profile(path, &Question{Ref: strings.Repeat("x", 30<<20)}, 10*time.Second)
	if e, ok := errors.AsType[*Error](err); !ok || codes.Code(e.Code) != codes.ResourceExhausted {
		t.Errorf("too large: %v", err)
	}
	// Of a service that is not there.
	c, err := dial(path, time.Now().Add(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	_, err = roundTrip(c, "/policyd.v1.ProfileService/GetProfiles", nil)
	if e, ok := errors.AsType[*Error](err); !ok || codes.Code(e.Code) != codes.Unimplemented {
		t.Errorf("unknown method: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	deaf := filepath.Join(dir, "deaf")
	if l, err = net.Listen("unix", deaf); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closing := filepath.Join(dir, "closing")
	lc, err := net.Listen("unix", closing)
	if err != nil {
		t.Fatal(err)
	}
	defer lc.Close()
	go func() {
		for {
			c, err := lc.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	for name, want := range map[string]string{
		"absent": "no socket is there: is policyd running", "dead": "connection refused", "deaf": "no answer in time", "closing": "policyd at ", "file": "connection refused",
		strings.Repeat("x", 200): "the path has",
	} {
		_, err := Profile(filepath.Join(dir, name), &Question{Ref: "web"}, 200*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), want) || !NoAnswer(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// played is a server that says what it was told to, whatever it hears.
type played struct{ io.Reader }

func (played) Write(b []byte) (int, error) { return len(b), nil }

// FuzzAnswer: whatever is at the other end, there is an end, and no answer out of nothing.
func FuzzAnswer(f *testing.F) {
	path, s := serve(f)
	c, err := net.Dial("unix", path)
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close()
	heard := &recorder{conn: c}
	if _, err := roundTrip(heard, method, (&Question{Ref: "web"}).encode()); err != nil {
		f.Fatal(err)
	}
	<-s.asked
	f.Add(heard.in)
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte("\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		body, err := roundTrip(played{strings.NewReader(string(in))}, method, []byte("q"))
		if err == nil && len(in) < 5+len(body)+9 {
			t.Fatalf("%d bytes of answer from %d", len(body), len(in))
		}
		if err == nil {
			_, _ = decode(body)
		}
	})
}

type recorder struct {
	conn net.Conn
	in   []byte
}

func (r *recorder) Write(b []byte) (int, error) { return r.conn.Write(b) }

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.conn.Read(b)
	r.in = append(r.in, b[:n]...)
	return n, err
}

// FuzzDecode: what protobuf reads is read the same; what is no message is refused.
func FuzzDecode(f *testing.F) {
	for _, m := range []*apiv1.GetProfileResponse{
		{Profile: []byte("p"), ProfileDigest: "sha256:12", Version: &apiv1.VersionInfo{Name: "web", Number: 1 << 40, Author: "a"}},
		{Missing: []*apiv1.MissingRight{{Layer: "l", Kind: "fs", Right: "r", NeedsAbi: 9}, {}}, Binding: "b", NotModified: true, SmackLabel: "x", SmackError: "y", Process: &apiv1.Process{Environment: map[string]string{"A": "b"}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(b)
		if err != nil {
			return
		}
		m := &apiv1.GetProfileResponse{}
		if proto.Unmarshal(b, m) != nil {
			return // text that is no UTF-8, a group: nothing of policyd's
		}
		if string(a.Profile) != string(m.GetProfile()) || a.Digest != m.GetProfileDigest() || a.Binding != m.GetBinding() ||
			a.SmackLabel != m.GetSmackLabel() || a.SmackError != m.GetSmackError() || len(a.Missing) != len(m.GetMissing()) {
			t.Fatalf("%+v, protobuf reads %v", a, m)
		}
	})
}

// leaver lets go of the first connections, as a policyd does that ends.
type leaver struct {
	net.Listener
	left int
}

func (l *leaver) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.left == 0 {
			return c, err
		}
		l.left--
		c.Close()
	}
}

// Who is let go of without an answer asks again, and not for ever.
func TestLetGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g, s := grpc.NewServer(), &server{asked: make(chan *apiv1.GetProfileRequest, 1)}
	apiv1.RegisterProfileServiceServer(g, s)
	leaving := &leaver{l, 3}
	go func() { _ = g.Serve(leaving) }()
	t.Cleanup(g.Stop)
	a, err := Profile(path, &Question{Ref: "web"}, 10*time.Second)
	if err != nil || a.Version != "web@7" || leaving.left != 0 {
		t.Fatalf("%+v, %v, %d left", a, err, leaving.left)
	}
	<-s.asked
}
