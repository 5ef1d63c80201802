package fleettest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// ownPolicy is one of the node's own, beside those of the channel.
const ownPolicy = "apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: own}\nspec:\n  abi: 1\n  layers:\n    - name: app\n      handles: {fs: all}\n"

// goesOn tells whether a node without etcd does what it did with it.
func (d *daemon) goesOn(digest string) error {
	s, err := d.status()
	if err != nil || s.State != string(fleet.Loaded) || s.LoadedDigest != digest {
		return fmt.Errorf("%s is %+v (%w), want Loaded with %s", d.name, s, err, digest)
	}
	if out, err := d.ctl("run", "web", "--", "/bin/true"); err != nil {
		return fmt.Errorf("run without etcd: %w\n%s", err, out)
	}
	return nil
}

// heard tells whether a node says that it hears etcd.
func (d *daemon) heard(want bool) error {
	s, err := d.status()
	if err == nil && (s.Connected != want || !want && s.Connection == "") {
		err = fmt.Errorf("%s: heard is %v (%s), want %v", d.name, s.Connected, s.Connection, want)
	}
	return err
}

// loaded starts a policyd and waits until it and etcd say that it has a first bundle.
func (d *daemon) loaded(p *publisher) (digest string) {
	d.t.Helper()
	digest = p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(digest)
	d.start()
	d.becomes(fleet.Loaded, digest)
	within(d.t, 10*time.Second, func() error { return p.says(d.name, fleet.Loaded, digest) })
	return digest
}

// TestPolicydEtcdKilled: etcd is killed while a real policyd runs. Nothing that was in force or is acknowledged meanwhile is
// lost, a start without etcd says what is the matter, and what was rolled out comes when etcd does.
func TestPolicydEtcdKilled(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	d := newDaemon(t, p, "web-1")
	first := d.loaded(p)
	e.kill()
	if out, err := d.ctl("apply", "-f", writeFile(t, "own.yaml", []byte(ownPolicy))); err != nil {
		t.Errorf("apply without etcd: %v\n%s", err, out)
	}
	stays(t, time.Second, func() error { return d.goesOn(first) })
	e.start()
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	d.becomes(fleet.Loaded, second)

	// It ends in any order, and begins without etcd.
	e.kill()
	d.end(syscall.SIGTERM)
	d.start()
	if err := d.goesOn(second); err != nil {
		t.Error(err)
	}
	within(t, 5*time.Second, func() error { return d.heard(false) })
	e.start()
	third := p.publish(webPolicy("web", "/srv/three"))
	p.rollOut(third)
	d.becomes(fleet.Loaded, third)
	if err := d.heard(true); err != nil {
		t.Error(err)
	}
	if out, err := d.ctl("get", "policy", "own"); err != nil {
		t.Errorf("what was acknowledged without etcd: %v\n%s", err, out)
	}
}

// outageEnv is how long etcd is away in TestPolicydLongOutage, such as 3m: longer than the node's lease, and than the silence
// after which it says that it hears nothing. Without it the test is skipped: it sleeps.
const outageEnv = "POLICYD_FLEET_OUTAGE"

// TestPolicydLongOutage: etcd is away for real minutes, on the times that policyd has and not those of a test.
func TestPolicydLongOutage(t *testing.T) {
	t.Parallel()
	text := os.Getenv(outageEnv)
	if text == "" {
		t.Skip(outageEnv + "=3m keeps etcd away for three minutes")
	}
	away, err := time.ParseDuration(text)
	if err != nil || away < 2*time.Minute {
		t.Fatalf("%s=%s: want two minutes or more (%v)", outageEnv, text, err)
	}
	e, p := setUp(t)
	d := newDaemon(t, p, "web-1")
	first := d.loaded(p)
	e.kill()
	began := time.Now()
	within(t, 2*time.Minute, func() error {
		time.Sleep(time.Second)
		if err := d.goesOn(first); err != nil {
			t.Fatal(err)
		}
		return d.heard(false)
	})
	s, err := d.status()
	t.Logf("after %v it says that etcd is not heard: %+v %v", time.Since(began).Round(time.Second), s, err)
	if out, err := d.ctl("apply", "-f", writeFile(t, "own.yaml", []byte(ownPolicy))); err != nil {
		t.Errorf("apply without etcd: %v\n%s", err, out)
	}
	for time.Since(began) < away {
		time.Sleep(5 * time.Second)
		if err := d.goesOn(first); err != nil {
			t.Fatal(err)
		}
	}
	e.start()
	back := time.Now()
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	within(t, 3*time.Minute, func() error {
		time.Sleep(time.Second)
		return p.says("web-1", fleet.Loaded, second)
	})
	t.Logf("%v after etcd was back its status is there, with what was rolled out", time.Since(back).Round(time.Second))
	if err := d.heard(true); err != nil {
		t.Error(err)
	}
	if out, err := d.ctl("get", "policy", "own"); err != nil {
		t.Errorf("what was acknowledged without etcd: %v\n%s", err, out)
	}
}
