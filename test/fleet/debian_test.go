package fleettest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/testkernel"
)

// startDebianEtcd starts the etcd of this machine's distribution.
func startDebianEtcd(t *testing.T) *etcd {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		testkernel.Skip(t, err.Error(), "Debian's package etcd-server")
	}
	e := newEtcd(t)
	cmd := exec.Command(path, "--data-dir", filepath.Join(t.TempDir(), "data"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", e.url(), "--advertise-client-urls", e.url(), "--listen-peer-urls", "http://"+e.peer,
		"--initial-advertise-peer-urls", "http://"+e.peer, "--initial-cluster", "default=http://"+e.peer)
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return e
}

// TestDebianEtcd follows a channel on the etcd of a distribution, which is an old one: it works, and its roles are not to be
// trusted, so that whoever wants them is told.
func TestDebianEtcd(t *testing.T) {
	t.Parallel()
	e := startDebianEtcd(t)
	p := newPublisher(t, e.dial(t, nil))
	var versions []string
	var err error
	within(t, 20*time.Second, func() error {
		versions, err = p.store.CheckServer(t.Context())
		if len(versions) == 0 {
			return errors.Join(err, errors.New("no version"))
		}
		return nil
	})
	t.Logf("etcd %v: %v", versions, err)
	n := startNode(t, p, "web-1")
	first, second := p.publish(webPolicy("web", "/srv/one")), p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	within(t, 5*time.Second, func() error { return p.says("web-1", fleet.Loaded, first) })
	compact(t, p.store.Client)
	p.rollOut(second)
	n.becomes(fleet.Loaded, second)
	if err := p.store.PutHold(t.Context(), "", &fleet.Hold{Kind: fleet.HaltedAll, By: "alice", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	p.put("stable", p.sign(p.pointer(first, "", fleet.Full)))
	n.becomes(fleet.Halted, second)
}

// init takes an etcd that cannot keep its users apart only when it is told to, and
// everything but the roles is then as elsewhere.
func TestInitOnDebianEtcd(t *testing.T) {
	t.Parallel()
	e := startDebianEtcd(t)
	c := newCtl(t)
	within(t, 20*time.Second, func() error {
		_, err := e.dial(t, nil).Get(t.Context(), "x")
		return err
	})
	c.want(1, "GHSA-xg4h-6gfc-h4m8", "init", "--name", fleetName, "--endpoints", e.url())
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--without-rbac")
	c.want(0, "enrolled", "enroll", "n1")
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
	c.want(0, "sequence 1", "rollout", "stable", "--to", digest, "--stages", "100")
	p := c.publisher(e)
	n := newNode(t, p, "n1")
	n.trust = c.trust()
	n.start()
	n.becomes(fleet.Loaded, digest)
	within(t, 5*time.Second, func() error { return p.says("n1", fleet.Loaded, digest) })
	c.want(0, "the same", "status")
}
