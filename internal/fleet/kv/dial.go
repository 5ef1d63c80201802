package kv

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
)

// Endpoint is where etcd is and how to prove who we are. Files are read again
// for every new connection, so that they can be replaced without a restart.
type Endpoint struct {
	// URLs are https://host:2379, or http:// for tests and loopback.
	URLs []string
	// CA is a PEM file of authorities of etcd's certificate; "": the system's.
	CA string
	// Cert and Key are PEM files of the client's certificate; its common name is
	// the etcd user when etcd runs with --client-cert-auth and auth is on.
	Cert, Key string
	// User and Password are for an etcd without client certificates.
	User, Password string
	// MostBytes bounds one answer; no bound for 0. What a node reads is small, whoever reads all nodes needs more.
	MostBytes int
	// DialTimeout bounds one attempt; 5 s for 0.
	DialTimeout time.Duration
}

// Dial makes a client. It does not wait for a connection: the first call does.
func Dial(e Endpoint) (*clientv3.Client, error) {
	if len(e.URLs) == 0 {
		return nil, fmt.Errorf("%w: no endpoint of etcd given", errs.ErrInvalid)
	}
	secure, plain := false, false
	for _, u := range e.URLs {
		switch {
		case strings.HasPrefix(u, "https://"):
			secure = true
		case strings.HasPrefix(u, "http://"):
			plain = true
		default:
			return nil, fmt.Errorf("%w: endpoint %q: want https://host:port", errs.ErrInvalid, u)
		}
	}
	if secure && plain {
		return nil, fmt.Errorf("%w: endpoints with and without TLS", errs.ErrInvalid)
	}
	if plain && (e.Cert != "" || e.CA != "") {
		return nil, fmt.Errorf("%w: certificates are given, and the endpoints are http://", errs.ErrInvalid)
	}
	c := clientv3.Config{
		Endpoints: e.URLs, Username: e.User, Password: e.Password,
		DialTimeout: e.DialTimeout, DialKeepAliveTime: 20 * time.Second, DialKeepAliveTimeout: 10 * time.Second,
		MaxCallRecvMsgSize: e.MostBytes,
		Logger:             zap.NewNop(), // whoever calls tells what it met
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 5 * time.Second
	}
	if secure {
		creds := &files{Endpoint: e}
		if _, err := creds.config(); err != nil {
			return nil, err // what is wrong now is told now
		}
		c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(creds))
	}
	// gRPC's own pause grows to two minutes, which a fleet would wait after an outage of a few. Nodes stay spread out by its jitter.
	pause := backoff.DefaultConfig
	pause.MaxDelay = longestPause
	c.DialOptions = append(c.DialOptions, grpc.WithConnectParams(grpc.ConnectParams{Backoff: pause, MinConnectTimeout: c.DialTimeout}))
	return clientv3.New(c)
}

// longestPause is the most between two attempts to connect.
const longestPause = 20 * time.Second

// Reach waits until an endpoint answers, or says why the first one does not. The
// error is a gRPC status of code Unavailable.
func Reach(ctx context.Context, c *clientv3.Client, e Endpoint) error {
	conn := c.ActiveConnection()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.Idle {
			conn.Connect()
		}
		if conn.WaitForStateChange(ctx, state) {
			continue
		}
		return status.Errorf(codes.Unavailable, "etcd at %s is not reachable: %v", strings.Join(e.URLs, ", "), why(ctx, e))
	}
	return nil
}

// why tries by hand what a connection needs: gRPC keeps its reasons to itself.
func why(ctx context.Context, e Endpoint) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	scheme, authority, _ := strings.Cut(e.URLs[0], "://")
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", authority)
	if err != nil {
		return err
	}
	defer conn.Close()
	if scheme == "https" {
		secure, _, err := (&files{Endpoint: e}).ClientHandshake(ctx, authority, conn)
		if err != nil {
			return err
		}
		// A server tells what it thinks of our certificate after the handshake.
		_ = secure.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := secure.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return errors.New("no answer")
}

// files are TLS credentials that read their files for every handshake.
type files struct {
	Endpoint
	serverName string
}

// config reads the files.
func (f *files) config() (*tls.Config, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("%w: a certificate needs its key, and the other way round", errs.ErrInvalid)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.serverName}
	if f.CA != "" {
		pool, err := readPool(f.CA)
		if err != nil {
			return nil, err
		}
		t.RootCAs = pool
	}
	if f.Cert != "" {
		c, err := tls.LoadX509KeyPair(f.Cert, f.Endpoint.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s: %w", f.Cert, err)
		}
		t.Certificates = []tls.Certificate{c}
	}
	return t, nil
}

func (f *files) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, err := f.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(t).ClientHandshake(ctx, authority, conn)
}

func (f *files) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

func (f *files) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (f *files) Clone() credentials.TransportCredentials {
	clone := *f
	return &clone
}

func (f *files) OverrideServerName(name string) error {
	f.serverName = name
	return nil
}

func readPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("authorities of etcd: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM", errs.ErrInvalid, path)
	}
	return pool, nil
}
