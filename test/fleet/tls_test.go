package fleettest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
)

// withRoles is an etcd with TLS, users and roles, and a publisher who is its root.
func withRoles(t testing.TB) (*etcd, *authority, *publisher) {
	t.Helper()
	e, a := secured(t)
	p := newPublisher(t, as(t, e, a, "root").Client)
	ctx := t.Context()
	if err := errors.Join(p.store.InitRoles(ctx), p.store.EnrollUser(ctx, "web-1"), p.store.EnrollUser(ctx, "web-2"), p.store.EnableAuth(ctx)); err != nil {
		t.Fatal(err)
	}
	return e, a, p
}

// TestAgentOfRole: a node's own certificate is all that its agent needs, another's opens nothing, and one whose user is gone
// keeps what it has.
func TestAgentOfRole(t *testing.T) {
	t.Parallel()
	e, a, p := withRoles(t)
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	if err := p.store.PutSpec(t.Context(), "web-1", &fleet.Spec{Channel: "stable"}); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, p, "web-1")
	cert, key := a.issue("web-1")
	n.endpoint = kv.Endpoint{URLs: []string{e.url()}, CA: a.ca(), Cert: cert, Key: key}
	n.channel = ""
	n.start()
	n.becomes(fleet.Loaded, first)
	within(t, 10*time.Second, func() error { return p.says("web-1", fleet.Loaded, first) })

	// A node under another's name: nothing is taken from it, and nothing is in force that was not.
	stranger := newNode(t, p, "web-2")
	stranger.endpoint = n.endpoint
	stranger.start()
	within(t, 10*time.Second, func() error {
		if s := stranger.agent.Status(); !strings.Contains(s.GetConnection(), "permission denied") || s.GetLoadedDigest() != "" {
			return fmt.Errorf("status %v", s)
		}
		return nil
	})
	if s := p.status("web-2"); s != nil {
		t.Errorf("it writes another's status: %+v", s)
	}
	// Its user is taken away: it says why it hears nothing, and keeps what it has.
	if err := p.store.RemoveUser(t.Context(), "web-1"); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, func() error {
		if s := n.agent.Status(); s.GetConnected() || s.GetLoadedDigest() != first {
			return fmt.Errorf("status %v", s)
		}
		return nil
	})
	if err := p.store.EnrollUser(t.Context(), "web-1"); err != nil {
		t.Fatal(err)
	}
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	n.becomes(fleet.Loaded, second)
}

// copyFile puts one file in the place of another, whole or not at all, as a renewal does.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err = errors.Join(err, os.WriteFile(to+".new", b, 0o600), os.Rename(to+".new", to)); err != nil {
		t.Fatal(err)
	}
}

// place renews a certificate, its key and the authority in a folder.
func (a *authority) place(name, dir string) {
	cert, key := a.issue(name)
	copyFile(a.t, key, dir+"/key")
	copyFile(a.t, cert, dir+"/cert")
	copyFile(a.t, a.ca(), dir+"/ca")
}

// rotated has another authority on both sides, place being the nodes': nothing of the one before opens a connection any more.
// It gives the publisher with a certificate of the new one.
func (p *publisher) rotated(e *etcd, b *authority, place func(*authority)) *publisher {
	p.t.Helper()
	e.kill()
	cert, key := b.issue("server")
	e.tls = &tlsFiles{cert: cert, key: key, ca: b.ca()}
	e.start()
	place(b)
	q := newPublisher(p.t, as(p.t, e, b, "root").Client)
	q.content, q.rollout, q.seq = p.content, p.rollout, p.seq
	return q
}

// TestRotation: certificates that are replaced, and authorities, are used by a running agent.
func TestRotation(t *testing.T) {
	t.Parallel()
	e, a, p := withRoles(t)
	n := newNode(t, p, "web-1")
	dir := t.TempDir()
	place := func(a *authority) { a.place("web-1", dir) }
	place(newAuthority(t)) // one that etcd does not know
	n.endpoint = kv.Endpoint{URLs: []string{e.url()}, CA: dir + "/ca", Cert: dir + "/cert", Key: dir + "/key"}
	n.start()
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	within(t, 10*time.Second, func() error {
		if s := n.agent.Status(); s.GetConnected() || !strings.Contains(s.GetConnection(), "certificate") && !strings.Contains(s.GetConnection(), "deadline") {
			return fmt.Errorf("status %v", s)
		}
		return nil
	})
	place(a)
	n.becomes(fleet.Loaded, first)

	q := p.rotated(e, newAuthority(t), place)
	second := q.publish(webPolicy("web", "/srv/two"))
	q.rollOut(second)
	n.becomes(fleet.Loaded, second)
}
