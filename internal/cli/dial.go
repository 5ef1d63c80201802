package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/paths"
)

// maxMessage bounds one answer of policyd, bytes: a profile of 100,000 rules
// with its origins fits.
const maxMessage = 64 << 20

// window is how much policyd may send before it is read here, bytes. Unsized, gRPC measures the connection by pings
// with every answer, which takes longer than a unix socket's whole way.
const window = 256 << 10

// reconnect is how long a change is tried again after policyd went away while
// it was answering.
const reconnect = 10 * time.Second

// Client is a connection to policyd, made when the first call needs it.
type Client struct {
	Policies   apiv1.PolicyServiceClient
	Profiles   apiv1.ProfileServiceClient
	Sandboxes  apiv1.SandboxServiceClient
	Containers apiv1.ContainerServiceClient
	Admin      apiv1.AdminServiceClient
	Smack      apiv1.SmackServiceClient

	conn   *grpc.ClientConn
	socket string
	failed atomic.Pointer[error] // of the last attempt to connect
	met    atomic.Bool           // a connection was made once
}

// Dial prepares a client for a unix socket given as unix:///path, unix:path or
// a path; "" is the default of paths.Target.
func Dial(target string) (*Client, error) {
	if target == "" {
		target = paths.Target()
	}
	socket, isURL := strings.CutPrefix(target, "unix:")
	socket = strings.TrimPrefix(socket, "//")
	if !isURL && strings.Contains(socket, "/") && !strings.Contains(socket, ":") {
		var err error
		if socket, err = filepath.Abs(socket); err != nil {
			return nil, err
		}
	}
	if !filepath.IsAbs(socket) {
		return nil, Usage(fmt.Errorf("address %q: want unix:///path or a path (./NAME for one without folders)", target))
	}
	c := &Client{socket: socket}
	conn, err := grpc.NewClient("passthrough:///policyd",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithContextDialer(c.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithUserAgent("policyctl"),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
	)
	if err != nil {
		return nil, err
	}
	c.conn = conn
	c.Policies = apiv1.NewPolicyServiceClient(conn)
	c.Profiles = apiv1.NewProfileServiceClient(conn)
	c.Sandboxes = apiv1.NewSandboxServiceClient(conn)
	c.Containers = apiv1.NewContainerServiceClient(conn)
	c.Admin = apiv1.NewAdminServiceClient(conn)
	c.Smack = apiv1.NewSmackServiceClient(conn)
	return c, nil
}

// Ready asks policyd whether it serves; nil is yes. It looks at the socket anew,
// also when there was none a moment ago.
func (c *Client) Ready(ctx context.Context) error {
	c.conn.ResetConnectBackoff()
	res, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if s := res.GetStatus(); s != healthv1.HealthCheckResponse_SERVING {
		return status.Error(codes.Unavailable, "policyd is not ready: "+s.String())
	}
	return nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	if err != nil {
		c.failed.Store(&err)
		return nil, err
	}
	c.failed.Store(nil)
	c.met.Store(true)
	return conn, nil
}

func (c *Client) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := c.sent(ctx, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
	return c.explain(notUTF8(req, err))
}

func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, s grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	var cs grpc.ClientStream
	err := c.sent(ctx, func() (err error) { cs, err = s(ctx, desc, cc, method, opts...); return err })
	if err != nil {
		return nil, c.explain(err)
	}
	return explained{cs, c}, nil
}

// sent makes a call until it went out. A policyd that ends closes what it has accepted and not greeted yet, and the
// service manager's socket takes the next attempt to the policyd that comes: nothing was asked by then, so it can be again.
func (c *Client) sent(ctx context.Context, call func() error) error {
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		err := call()
		if !c.unsent(err) || wait > time.Second {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
			c.conn.ResetConnectBackoff()
		}
	}
}

// unsent reports whether a call failed since a connection was accepted and closed again without a word: gRPC has no other
// sign of it than the text it gives such errors (pickfirst, "connection error").
func (c *Client) unsent(err error) bool {
	st, _ := status.FromError(err)
	return st.Code() == codes.Unavailable && c.failed.Load() == nil && c.met.Load() && strings.HasPrefix(st.Message(), "connection error:")
}

// explained makes the errors of a stream those of explain.
type explained struct {
	grpc.ClientStream
	c *Client
}

func (e explained) SendMsg(m any) error { return notUTF8(m, e.ClientStream.SendMsg(m)) }

func (e explained) RecvMsg(m any) error { return e.c.explain(e.ClientStream.RecvMsg(m)) }

// Unreachable is returned when no connection to policyd could be made.
type Unreachable struct {
	Socket string
	Err    error
}

// Error names the socket and says what to do about it.
func (u *Unreachable) Error() string {
	var hint string
	switch {
	case errors.Is(u.Err, fs.ErrNotExist):
		hint = "is policyd running? start it with `policyd`, or as a service, or name another socket with --socket or $" + paths.SocketEnv
	case errors.Is(u.Err, fs.ErrPermission):
		hint = "this user may not open the socket; it is for the members of its group (see `ls -l " + u.Socket + "`)"
	default:
		hint = "nothing answers there; start it with `policyd`, or as a service"
	}
	cause := u.Err
	if op, ok := errors.AsType[*net.OpError](u.Err); ok {
		cause = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](cause); ok {
		cause = call.Err
	}
	return fmt.Sprintf("policyd is not reachable at %s: %v: %s", u.Socket, cause, hint)
}

// Unwrap gives the error of the connection.
func (u *Unreachable) Unwrap() error { return u.Err }

// GRPCStatus makes it Unavailable, or PermissionDenied when the socket may not
// be opened.
func (u *Unreachable) GRPCStatus() *status.Status {
	if errors.Is(u.Err, fs.ErrPermission) {
		return status.New(codes.PermissionDenied, u.Error())
	}
	return status.New(codes.Unavailable, u.Error())
}

// explain turns "connection error" into the socket's own error, and gRPC's word
// on a message that is too large into one that names the limit.
func (c *Client) explain(err error) error {
	if status.Code(err) == codes.ResourceExhausted {
		return tooLarge(err)
	}
	if status.Code(err) != codes.Unavailable || Reason(err) != "" {
		return err
	}
	if cause := c.failed.Load(); cause != nil {
		return &Unreachable{Socket: c.socket, Err: *cause}
	}
	return err
}

// tooLarge explains a message that was refused for its size. Both ends say it
// with the same words (recvMsg in gRPC's rpc_util.go); the limit tells them apart.
func tooLarge(err error) error {
	var size, limit uint64
	st, _ := status.FromError(err)
	if n, _ := fmt.Sscanf(st.Message(), "grpc: received message larger than max (%d vs. %d)", &size, &limit); n != 2 || limit == maxMessage {
		return err
	}
	return status.Errorf(codes.ResourceExhausted, "the request has %d bytes and policyd takes %d at most: apply fewer files at once, or raise limits.messageSize of policyd's configuration and start it again", size, limit)
}

// Retry makes a change that carries a request id. When policyd goes away after
// it may have received the request, the same request is sent again: its id
// makes that have no second effect.
func Retry[T any](ctx context.Context, c *Client, call func(context.Context, ...grpc.CallOption) (T, error)) (T, error) {
	got, err := call(ctx)
	if status.Code(err) != codes.Unavailable || !c.met.Load() {
		return got, err
	}
	again, cancel := context.WithTimeout(ctx, reconnect)
	defer cancel()
	again2, err2 := call(again, grpc.WaitForReady(true))
	if err2 != nil && ctx.Err() == nil && again.Err() != nil {
		return got, c.explain(err)
	}
	return again2, err2
}

// RequestID makes an id for one change.
func RequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
