package fleettest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/controller"
	"policyd.dev/policyd/internal/fleet/kv"
)

// secured is an etcd with TLS and client certificates.
func secured(t testing.TB) (*etcd, *authority) {
	t.Helper()
	a := newAuthority(t)
	e := newEtcd(t)
	cert, key := a.issue("server")
	e.tls = &tlsFiles{cert: cert, key: key, ca: a.ca()}
	e.start()
	return e, a
}

// as is a client with the certificate of a name.
func as(t testing.TB, e *etcd, a *authority, name string) *kv.Store {
	t.Helper()
	cert, key := a.issue(name)
	c, err := kv.Dial(kv.Endpoint{URLs: []string{e.url()}, CA: a.ca(), Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := kv.New(c, fleetName)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// init makes users and roles, enroll those of nodes, and each may do what its
// work needs and nothing else.
func TestRoles(t *testing.T) {
	e, a := secured(t)
	c := newCtl(t)
	cert, key := a.issue("root")
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--ca", a.ca(), "--cert", cert, "--key", key, "--enable-auth")
	c.want(0, "common name n1", "enroll", "n1")
	c.want(0, "enrolled", "enroll", "n2")
	c.want(1, "cannot be called root", "enroll", "root")
	c.want(0, "controller: true", "enroll", "n3", "--controller")
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
	c.want(0, "sequence 1", "rollout", "stable", "--to", digest)

	l := fleet.Layout{Fleet: fleetName}
	put := func(key string) func(*kv.Store) error {
		return func(s *kv.Store) error {
			_, err := s.Client.Put(t.Context(), key, "x")
			return kv.Error(err)
		}
	}
	get := func(key string, o ...clientv3.OpOption) func(*kv.Store) error {
		return func(s *kv.Store) error {
			_, err := s.Client.Get(t.Context(), key, o...)
			return kv.Error(err)
		}
	}
	prefix := clientv3.WithPrefix()
	n1, control := as(t, e, a, "n1"), as(t, e, a, kv.UserControl)
	n3 := as(t, e, a, "n3")
	pub, audit, stranger := as(t, e, a, kv.UserPublisher), as(t, e, a, kv.UserAuditor), as(t, e, a, "mallory")
	for _, tc := range []struct {
		name string
		who  *kv.Store
		what func(*kv.Store) error
		may  bool
	}{
		{"a node reads what is public", n1, get(l.Pub(), prefix), true},
		{"a node reads its own", n1, get(l.Node("n1"), prefix), true},
		{"a node writes its status", n1, put(l.Status("n1")), true},
		{"a node writes its last", n1, put(l.Last("n1")), true},
		{"a node writes its labels", n1, put(l.Spec("n1")), false},
		{"a node reads another's", n1, get(l.Node("n2"), prefix), false},
		{"a node reads all nodes", n1, get(l.Nodes(), prefix), false},
		{"a node writes another's status", n1, put(l.Status("n2")), false},
		{"a node writes a pointer", n1, put(l.Channel("stable")), false},
		{"a node holds", n1, put(l.Halt("stable")), false},
		{"a node writes a blob", n1, put(l.Blob(digest)), false},
		{"a node reads another fleet", n1, get("/policyd/v1/test/pub/", prefix), false},
		{"a controller reads nodes", control, get(l.Nodes(), prefix), true},
		{"a controller holds", control, put(l.Halt("other")), true},
		{"a controller holds the fleet", control, put(l.Halt("")), true},
		{"a controller stands for election", control, put(l.Leader() + "/1"), true},
		{"a controller writes labels", control, put(l.Spec("n1")), false},
		{"a controller writes a blob", control, put(l.Blob(digest)), false},
		{"a node that controls stands for election", n3, put(l.Leader() + "/2"), true},
		{"a node that controls writes a pointer", n3, put(l.Channel("mine")), true},
		{"a node that controls writes its status", n3, put(l.Status("n3")), true},
		{"a node that controls writes labels", n3, put(l.Spec("n3")), false},
		{"a publisher reads a channel", pub, get(l.Channel("stable")), true},
		{"a publisher writes a channel", pub, put(l.Channel("stable")), false},
		{"a publisher writes labels", pub, put(l.Spec("n1")), false},
		{"an auditor reads all", audit, get(l.Prefix(), prefix), true},
		{"an auditor writes", audit, put(l.Halt("stable")), false},
		{"a stranger reads", stranger, get(l.Pub(), prefix), false},
	} {
		if err := tc.what(tc.who); (err == nil) != tc.may || err != nil && !errors.Is(err, errs.ErrNotAllowed) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, key := range []string{l.Channel("mine"), l.Leader() + "/1", l.Leader() + "/2"} { // which nobody stands for
		if _, err := as(t, e, a, "root").Client.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		who *kv.Store
		log string
	}{{n1, "enroll NODE --controller"}, {n3, "elected"}} {
		ctx, cancel := context.WithCancel(t.Context())
		var log strings.Builder
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			controller.Run(ctx, controller.Config{
				Member: controller.Member{Store: tc.who, Name: "any"}, Interval: 50 * time.Millisecond, SessionTTL: 2 * time.Second,
				Log: slog.New(slog.NewTextHandler(&log, nil)), Leading: func(is bool) {
					if is {
						cancel()
					}
				},
			})
		}()
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			cancel()
			<-ended
		}
		if !strings.Contains(log.String(), tc.log) {
			t.Errorf("a controller does not say %q: %s", tc.log, log.String())
		}
	}
	if out := c.want(0, "zone=us", "enroll", "n3", "-l", "zone=us"); strings.Contains(out, "contentKeys") {
		t.Errorf("a change of labels prints the node's section: %s", out)
	}
	c.want(0, "node n3", "enroll", "n3", "--controller=false")
	if err := put(l.Leader() + "/3")(n3); !errors.Is(err, errs.ErrNotAllowed) {
		t.Errorf("a node that no longer controls stands for election: %v", err)
	}
	if out := c.want(0, "contentKeys", "enroll", "n3"); strings.Contains(out, "controller: true") {
		t.Errorf("the section of a node that does not control: %s", out)
	}
	c.want(2, "neither", "enroll", "n3", "--remove", "--controller")
	c.want(0, "removed", "enroll", "n3", "--remove")
	// A watch is held by the same.
	if response := <-n1.Client.Watch(t.Context(), l.Nodes(), prefix); response.Err() == nil {
		t.Errorf("a node watches all nodes: %+v", response)
	}
	// The wrong person gets exit code 4, nobody's certificate 3.
	cert, key = a.issue(kv.UserAuditor)
	for _, hold := range []string{"", "other"} { // of the table above
		if _, err := as(t, e, a, "root").Client.Delete(t.Context(), l.Halt(hold)); err != nil {
			t.Fatal(err)
		}
	}
	adminCert, adminKey := a.issue(kv.UserAdmin)
	c.want(0, "zone=eu", "--cert", adminCert, "--key", adminKey, "enroll", "n2", "-l", "zone=eu")
	c.want(4, "root's certificate", "--cert", adminCert, "--key", adminKey, "enroll", "n4")
	c.want(4, "root's certificate", "--cert", adminCert, "--key", adminKey, "enroll", "n2", "--controller")
	c.want(4, "root's certificate", "--cert", adminCert, "--key", adminKey, "enroll", "n2", "--remove")
	c.want(0, "2 nodes", "--cert", cert, "--key", key, "status")
	c.want(4, "permission denied", "--cert", cert, "--key", key, "halt", "stable")
	other := newAuthority(t)
	cert, key = other.issue("root")
	c.want(3, "not reachable", "--cert", cert, "--key", key, "status")
	c.want(3, "authority", "--ca", other.ca(), "status")
	c.want(0, "removed", "enroll", "n1", "--remove")
	if err := get(l.Pub(), prefix)(n1); !errors.Is(err, errs.ErrNotAllowed) {
		t.Errorf("a node that was removed reads: %v", err)
	}
}

// Certificates are replaced while a client lives: the next connection has the new
// ones, and an endpoint of another name or authority is refused.
func TestCertificatesAreReadAgain(t *testing.T) {
	e, a := secured(t)
	cert, key := a.issue("root")
	c, err := kv.Dial(kv.Endpoint{URLs: []string{e.url()}, CA: a.ca(), Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func() error {
		_, err := c.Get(t.Context(), "x")
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	// Everything is made anew: authority, the server's certificate, the client's.
	b := newAuthority(t)
	e.kill()
	e.tls.cert, e.tls.key = b.issue("server")
	e.tls.ca = b.ca()
	newCert, newKey := b.issue("root")
	for from, to := range map[string]string{b.ca(): a.ca(), newCert: cert, newKey: key} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e.start()
	within(t, 20*time.Second, ask)

	// The server's certificate is for 127.0.0.1 alone.
	elsewhere := kv.Endpoint{URLs: []string{"https://localhost:" + e.client[len("127.0.0.1:"):]}, CA: a.ca(), Cert: cert, Key: key}
	wrong, err := kv.Dial(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := kv.Reach(ctx, wrong, elsewhere); err == nil || !strings.Contains(err.Error(), "certificate is not valid for any names, but wanted to match localhost") {
		t.Errorf("a server whose certificate is for another name: %v", err)
	}
}
