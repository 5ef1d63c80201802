package fleettest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// daemonOf is a real policyd with the section that enroll printed, the node's certificate, and keys as credentials.
func daemonOf(c *ctl, a *authority, name, section string) *daemon {
	t := c.t
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, dir: dir, name: name, programs: programs(t), out: &lockedBuffer{}, config: filepath.Join(dir, "policyd.yaml")}
	cert, key := a.issue(name)
	copyFile(t, key, filepath.Join(dir, "fleet-key"))
	copyFile(t, filepath.Join(c.dir, fleetName, "rollout.key"), filepath.Join(dir, "rollout-key"))
	d.env = []string{"CREDENTIALS_DIRECTORY=" + dir}
	section = strings.NewReplacer("/etc/policyd/fleet/etcd-ca.pem", a.ca(), "/etc/policyd/fleet/node.pem", cert).Replace(section)
	if err := os.WriteFile(d.config, []byte("log: {format: text, level: info}\n"+section+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s:\n%s", name, d.out)
		}
	})
	return d
}

// TestPolicydOfRoles: a fleet as its tour has it. TLS, certificates, users and roles; two policyds of which either carries
// rollouts on; the elected one is killed within a rollout; a policy that is open to nodes; a rollback; a node that leaves.
func TestPolicydOfRoles(t *testing.T) {
	t.Parallel()
	e, a := secured(t)
	c := newCtl(t)
	cert, key := a.issue("root")
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--ca", a.ca(), "--cert", cert, "--key", key, "--enable-auth")
	nodes := map[string]*daemon{}
	for _, name := range []string{"n1", "n2"} {
		d := daemonOf(c, a, name, c.want(0, "common name "+name, "enroll", name, "--controller"))
		if name == "n2" { // its rollout key is not as it should be: it serves all the same, and looks again
			if err := os.Truncate(filepath.Join(d.dir, "rollout-key"), 20); err != nil {
				t.Fatal(err)
			}
		}
		d.start()
		nodes[name] = d
	}
	within(t, 10*time.Second, func() error {
		if out := nodes["n2"].out.String(); !strings.Contains(out, "cannot carry rollouts on") {
			return errors.New(out)
		}
		return nil
	})
	copyFile(t, filepath.Join(c.dir, fleetName, "rollout.key"), filepath.Join(nodes["n2"].dir, "rollout-key"))
	c.write("web.yaml", webPolicy("web", "/srv/one")+"---\n"+webPolicy("db", "/srv/db"))
	first := c.want(0, "", "publish", "stable", "-f", "web.yaml", "--local", "db", "-o", "name")
	c.want(0, "50%", "rollout", "stable", "--to", first, "--stages", "50,100", "--soak", "0s", "--max-failed", "100%", "--min-loaded", "100")
	c.want(0, "done", "watch", "stable", "--timeout", "60s")
	for _, d := range nodes {
		d.becomes(fleet.Loaded, first)
	}

	// What the channel has is its own, but for what it lists as open.
	d := nodes["n1"]
	apply := func(text string) (string, error) { return d.ctl("apply", "-f", writeFile(t, "own.yaml", []byte(text))) }
	for _, args := range [][]string{
		{"apply", "-f", writeFile(t, "own.yaml", []byte(webPolicy("web", "/")))},
		{"delete", "policy/web", "--expect", "1"},
		{"delete", "policy/db", "--expect", "1"},
		{"rollback", "web", "--to", "1"},
		{"tag", "web@1", "mine"},
	} {
		if out, err := d.ctl(args...); err == nil || !strings.Contains(out, "fleet") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if out, err := apply(webPolicy("db", "/srv/mine")); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	d.becomes(fleet.Degraded, first)
	if out, err := d.ctl("get", "policy", "db", "-o", "yaml"); err != nil || !strings.Contains(out, "/srv/mine") {
		t.Errorf("get: %v\n%s", err, out)
	}

	// The one that is elected dies within a rollout; the other one goes on.
	c.write("web.yaml", webPolicy("web", "/srv/two")+"---\n"+webPolicy("db", "/srv/db"))
	second := c.want(0, "", "publish", "stable", "-f", "web.yaml", "--local", "db", "-o", "name")
	c.want(0, "50%", "rollout", "stable", "--to", second, "--stages", "50,100", "--soak", "1s", "--max-failed", "100%", "--min-loaded", "0")
	leader := nodes["n2"]
	if strings.Contains(d.out.String(), "controller: elected") {
		leader = d
	}
	leader.kill()
	c.want(0, "done", "watch", "stable", "--timeout", "60s")
	leader.start()
	nodes["n2"].becomes(fleet.Loaded, second)
	d.becomes(fleet.Degraded, second)
	within(t, 40*time.Second, func() error {
		if out, _, code := c.run("status"); code != 0 || !strings.Contains(out, "overridden on the node: db") {
			return fmt.Errorf("%d %s", code, out)
		}
		return nil
	})

	// Back, for all at once; the node's own version stays.
	c.want(0, bundleText(first), "rollback", "stable", "-m", "web does not start")
	nodes["n2"].becomes(fleet.Loaded, first)
	d.becomes(fleet.Degraded, first)
	if out, err := d.ctl("get", "policy", "db", "-o", "yaml"); err != nil || !strings.Contains(out, "/srv/mine") {
		t.Errorf("get: %v\n%s", err, out)
	}
	if out, err := d.ctl("run", "web", "--", "/bin/true"); err != nil {
		t.Errorf("run: %v\n%s", err, out)
	}

	// A certificate that is renewed in its place is used; a user that is gone opens nothing, and takes nothing away.
	gone := nodes["n2"]
	c.want(0, "removed", "enroll", "n2", "--remove")
	within(t, 60*time.Second, func() error {
		s, err := gone.status()
		if err == nil && s.LoadedDigest != first {
			t.Fatalf("a node that was removed has lost its policies: %+v", s)
		}
		if err == nil && !strings.Contains(s.Connection, "permission denied") && !strings.Contains(s.Connection, "auth") {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	if out, err := gone.ctl("run", "web", "--", "/bin/true"); err != nil {
		t.Errorf("run: %v\n%s", err, out)
	}
}

func bundleText(digest string) string { return digest[:len("sha256:")+12] }
