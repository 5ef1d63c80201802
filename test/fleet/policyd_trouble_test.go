package fleettest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/fleet"
)

// refuses waits until a node says here and in etcd that it did not take what it was shown, and why, while it keeps a bundle.
func (d *daemon) refuses(p *publisher, code, reason, keeps string) {
	d.t.Helper()
	within(d.t, 60*time.Second, func() error {
		s, err := d.status()
		if err == nil && (s.State != string(fleet.Failed) || s.LoadedDigest != keeps || !strings.Contains(s.Reason, reason)) {
			err = fmt.Errorf("%s is %+v, want Failed (%s) with %s", d.name, s, reason, keeps)
		}
		return err
	})
	within(d.t, 10*time.Second, func() error {
		if s := p.status(d.name); s == nil || s.State != fleet.Failed || s.Code != code || s.LoadedDigest != keeps {
			return fmt.Errorf("etcd has %+v of %s, want %s with %s", s, d.name, code, keeps)
		}
		return nil
	})
	if out, err := d.ctl("run", "web", "--", "/bin/true"); err != nil {
		d.t.Errorf("run: %v\n%s", err, out)
	}
}

// TestPolicydAway: a real policyd is off for a whole rollout, which policyctl begins and another policyd carries through its
// stages. It begins with what it had before it reaches etcd, and then has the end at once.
func TestPolicydAway(t *testing.T) {
	t.Parallel()
	e, a := secured(t)
	c := newCtl(t)
	cert, key := a.issue("root")
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--ca", a.ca(), "--cert", cert, "--key", key, "--enable-auth")
	there := daemonOf(c, a, "web-1", c.want(0, "", "enroll", "web-1", "--controller"))
	d := daemonOf(c, a, "web-2", c.want(0, "", "enroll", "web-2"))
	there.start()
	d.start()
	publish := func(path string, more ...string) (digest string) {
		t.Helper()
		c.write("web.yaml", webPolicy("web", path))
		digest = c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
		c.want(0, "", append([]string{"rollout", "stable", "--to", digest, "--soak", "0s", "--max-failed", "100%"}, more...)...)
		c.want(0, "done", "watch", "stable", "--timeout", "60s")
		there.becomes(fleet.Loaded, digest)
		return digest
	}
	first := publish("/srv/one", "--stages", "100", "--min-loaded", "100")
	d.becomes(fleet.Loaded, first)
	d.end(syscall.SIGTERM)
	p := newPublisher(t, as(t, e, a, "root").Client)
	within(t, 5*time.Second, func() error {
		if s, last := p.status("web-2"), p.last("web-2"); s != nil || last == nil || last.LoadedDigest != first {
			return fmt.Errorf("after its end the status is %+v, the last one %+v", s, last)
		}
		return nil
	})
	second := publish("/srv/two", "--stages", "10,50,100", "--min-loaded", "0")
	compact(t, p.store.Client)
	e.kill()
	d.start()
	if err := errors.Join(d.goesOn(first), d.heard(false)); err != nil {
		t.Error(err)
	}
	e.start()
	d.becomes(fleet.Loaded, second)
	within(t, 15*time.Second, func() error { return p.says("web-2", fleet.Loaded, second) })
	if out, err := d.ctl("events", "--tail", "30"); err != nil || strings.Count(out, "fleet_activate") != 2 {
		t.Errorf("want two activations, of the first bundle and the last: %v\n%s", err, out)
	}
}

// TestPolicydCompacted: a real policyd is stopped for so long that etcd has forgotten what its watch would show next.
func TestPolicydCompacted(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	line := newRelay(t, e.client)
	d := newDaemonAt(t, p, "web-1", []string{"http://" + line.addr})
	first := d.loaded(p)
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := d.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	line.cut() // or its kernel would take for it what etcd sends meanwhile
	third := p.rolledOutMeanwhile(first)
	p.others(50)
	compact(t, p.store.Client)
	line.mend()
	signal(syscall.SIGCONT)
	d.becomes(fleet.Loaded, third)
	within(t, 10*time.Second, func() error { return p.says("web-1", fleet.Loaded, third) })
	if out := d.out.String(); !strings.Contains(out, "compacted") {
		t.Error("its watch was not compacted away")
	}
	fourth := p.publish(webPolicy("web", "/srv/four"))
	p.rollOut(fourth)
	d.becomes(fleet.Loaded, fourth)
}

// TestPolicydNotBelieved: what a thief of etcd, of its backups, and of the rollout key can have a real policyd do.
func TestPolicydNotBelieved(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	first := p.publish(webPolicy("web", "/srv/one"))
	old := p.sign(p.pointer(first, "", fleet.Full))
	p.put("stable", old)
	backup := e.backup()
	d := newDaemon(t, p, "web-1")
	d.start()
	d.becomes(fleet.Loaded, first)
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	p.others(20)
	d.becomes(fleet.Loaded, second)

	// etcd as it was before this node had its lease. A write or the next question how far the watch is shows it.
	e.restore(backup)
	d.refuses(p, "OLDER_SEQUENCE", "older", second)
	if out := d.out.String(); !strings.Contains(out, "restored from a backup") {
		t.Error("the log does not say what etcd is now")
	}
	if out, err := d.ctl("events", "--tail", "30"); err != nil || !strings.Contains(out, "fleet_refuse") {
		t.Errorf("events: %v\n%s", err, out)
	}
	third := p.publish(webPolicy("web", "/srv/three"))
	p.rollOut(third)
	d.becomes(fleet.Loaded, third)

	// The old pointer again, now on an etcd that is well; a start does not forget how far the channel was.
	p.put("stable", old)
	d.refuses(p, "OLDER_SEQUENCE", "older", third)
	d.kill()
	d.start()
	d.refuses(p, "OLDER_SEQUENCE", "older", third)

	// The rollout key: bytes that no content key has signed are not taken, whoever else has.
	evil, digest := bundle(t, webPolicy("web", "/"))
	for name, by := range map[string]note.Signer{"a stranger's key of that name": newKey(t, "content").signer, "the rollout key": p.rollout.signer} {
		if _, err := p.store.Client.Put(t.Context(), p.store.Layout.Blob(digest), string(p.blob(evil, by))); err != nil {
			t.Fatal(err)
		}
		ptr := p.rollOut(digest)
		t.Logf("number %d is to bytes signed by %s", ptr.Seq, name)
		d.refuses(p, "TOO_FEW_SIGNATURES", "signatures", third)
		within(t, 5*time.Second, func() error {
			if s := p.status("web-1"); s == nil || s.DesiredSeq != ptr.Seq {
				return fmt.Errorf("status %+v, want number %d refused", s, ptr.Seq)
			}
			return nil
		})
	}
	// It can choose among those that were signed.
	p.rollOut(first)
	d.becomes(fleet.Loaded, first)
}

// TestPolicydPartition: a real policyd is in a network namespace whose line to etcd goes away and comes back, without anything
// being closed.
func TestPolicydPartition(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	a := newAuthority(t)
	a.at = []net.IP{net.ParseIP(s.here)}
	e := newEtcd(t)
	e.client = net.JoinHostPort(s.here, "2379")
	cert, key := a.issue("server")
	e.tls = &tlsFiles{cert: cert, key: key, ca: a.ca()}
	e.start()
	p := newPublisher(t, as(t, e, a, "root").Client)
	cert, key = a.issue("web-1")
	d := newDaemon(t, p, "web-1", "ca: "+a.ca(), "certificate: "+cert, "key: "+key)
	d.in = s.enter()
	first := d.loaded(p)
	s.line("down")
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	stays(t, 2*time.Second, func() error { return d.goesOn(first) }) // twice the time within which a node fetches
	s.line("up")
	d.becomes(fleet.Loaded, second)

	// It begins within the partition.
	s.line("down")
	d.kill()
	d.start()
	if err := errors.Join(d.goesOn(second), d.heard(false)); err != nil {
		t.Error(err)
	}
	third := p.publish(webPolicy("web", "/srv/three"))
	p.rollOut(third)
	s.line("up")
	d.becomes(fleet.Loaded, third)
	within(t, 10*time.Second, func() error { return p.says("web-1", fleet.Loaded, third) })
	if err := d.heard(true); err != nil {
		t.Error(err)
	}
}

// TestPolicydRotation: certificate, key and authority are replaced under a real policyd, which goes on as the same process.
func TestPolicydRotation(t *testing.T) {
	t.Parallel()
	e, a, p := withRoles(t)
	dir := t.TempDir()
	place := func(a *authority) { a.place("web-1", dir) }
	place(a)
	d := newDaemon(t, p, "web-1", "ca: "+dir+"/ca", "certificate: "+dir+"/cert", "key: "+dir+"/key")
	d.loaded(p)
	q := p.rotated(e, newAuthority(t), place)
	second := q.publish(webPolicy("web", "/srv/two"))
	q.rollOut(second)
	d.becomes(fleet.Loaded, second)
	within(t, 10*time.Second, func() error { return q.says("web-1", fleet.Loaded, second) })
}
