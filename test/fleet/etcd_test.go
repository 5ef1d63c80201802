package fleettest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// etcd is one server, which can be stopped and started again where it was.
type etcd struct {
	t      *testing.T
	dir    string
	client string // host:port
	peer   string
	tls    *transport.TLSInfo // nil: without TLS
	server *embed.Etcd
}

// freeAddress is a port of the loopback interface that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newEtcd(t *testing.T) *etcd {
	e := &etcd{t: t, dir: filepath.Join(t.TempDir(), "etcd"), client: freeAddress(t), peer: freeAddress(t)}
	t.Cleanup(e.stop)
	return e
}

// startEtcd starts a new server without TLS.
func startEtcd(t *testing.T) *etcd {
	e := newEtcd(t)
	e.start()
	return e
}

func (e *etcd) scheme() string {
	if e.tls != nil {
		return "https"
	}
	return "http"
}

func (e *etcd) url() string { return e.scheme() + "://" + e.client }

func (e *etcd) start() {
	e.t.Helper()
	c := embed.NewConfig()
	c.Dir = e.dir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.UnsafeNoFsync = true // what is tested is the fleet, not etcd's durability
	c.ListenClientUrls = []url.URL{{Scheme: e.scheme(), Host: e.client}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: e.peer}}
	c.AdvertisePeerUrls = c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	if e.tls != nil {
		c.ClientTLSInfo = *e.tls
	}
	var err error
	if e.server, err = embed.StartEtcd(c); err != nil {
		e.t.Fatal(err)
	}
	select {
	case <-e.server.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		e.t.Fatal("etcd is not ready")
	}
}

func (e *etcd) stop() {
	if e.server != nil {
		e.server.Close()
		e.server = nil
	}
}

// dial makes a client of the test's own, with root's rights.
func (e *etcd) dial(t *testing.T, c *tls.Config) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.url()}, TLS: c, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// compact forgets everything before now.
func compact(t *testing.T, c *clientv3.Client) {
	t.Helper()
	r, err := c.Get(t.Context(), "x")
	if err == nil {
		_, err = c.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// within waits until what holds, or fails the test with what it said last.
func within(t *testing.T, most time.Duration, what func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := what()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %v", most, err)
		case <-tick.C:
		}
	}
}

// stays fails the test as soon as what does not hold any more.
func stays(t *testing.T, long time.Duration, what func() error) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := what(); err != nil {
			t.Fatal(err)
		}
	}
}

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
