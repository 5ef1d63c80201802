package fleettest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// ctl is a person with policyctl, a folder and settings of their own.
type ctl struct {
	t   *testing.T
	dir string
}

func newCtl(t *testing.T) *ctl {
	t.Helper()
	c := &ctl{t, t.TempDir()}
	c.write("web.yaml", webPolicy("web", "/srv/one"))
	return c
}

func (c *ctl) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// run runs policyctl fleet and gives its output and exit code.
func (c *ctl) run(args ...string) (out, errOut string, code int) {
	c.t.Helper()
	args = append([]string{"fleet", "--fleet-config", filepath.Join(c.dir, "fleet.yaml")}, args...)
	cmd := exec.Command(filepath.Join(programs(c.t), "policyctl"), args...)
	cmd.Dir = c.dir
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		c.t.Fatal(err)
	}
	return o.String(), e.String(), code
}

// want runs it and wants an exit code, and a text somewhere in what it says.
func (c *ctl) want(code int, text string, args ...string) string {
	c.t.Helper()
	out, errOut, got := c.run(args...)
	if got != code || !strings.Contains(out+errOut, text) {
		c.t.Errorf("policyctl fleet %s\nended with %d, want %d and %q\n%s%s", strings.Join(args, " "), got, code, text, out, errOut)
	}
	return strings.TrimSpace(out)
}

// publisher writes into etcd past policyctl, with keys of its own.
func (c *ctl) publisher(e *etcd) *publisher {
	c.t.Helper()
	return newPublisher(c.t, e.dial(c.t, nil))
}

// What a person does with a fleet, from its beginning, with real agents.
func TestPolicyctlFleet(t *testing.T) {
	e := startEtcd(t)
	c := newCtl(t)
	c.want(2, "--name", "init", "--endpoints", e.url())
	c.want(2, "--channel", "init", "--name", fleetName, "--channel", "a/b", "--endpoints", e.url())
	c.want(2, "https://host:port", "init", "--name", fleetName, "--endpoints", "127.0.0.1:1")
	c.want(3, "not reachable", "init", "--name", fleetName, "--endpoints", "http://"+freeAddress(t), "--timeout", "1s")
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url())
	c.want(1, "already exists", "init", "--name", fleetName, "--endpoints", e.url())
	for _, k := range []string{"content", "rollout"} {
		if st, err := os.Stat(filepath.Join(c.dir, fleetName, k+".key")); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("key %s: %v %v", k, st, err)
		}
	}

	// The nodes believe what the settings say, as enroll prints it.
	section := c.want(0, "contentKeys:", "enroll", "n1", "-l", "zone=eu")
	c.want(0, "enrolled", "enroll", "n2")
	c.want(0, "zone=eu", "nodes")
	c.want(2, "bad", "enroll", "n1", "-l", "bad")
	c.want(2, "name", "enroll", "a/b")
	c.want(0, "labels tier=edge", "enroll", "n1", "-l", "zone-", "-l", "tier=edge")
	p := c.publisher(e)
	trust := fleet.Trust{Content: fleet.Signers{Threshold: 1}, Rollout: fleet.Signers{Threshold: 1}}
	for line := range strings.Lines(section) {
		key := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "-"))
		switch {
		case strings.HasPrefix(key, "content+"):
			trust.Content.Keys = []string{key}
		case strings.HasPrefix(key, "rollout+"):
			trust.Rollout.Keys = []string{key}
		}
	}
	var nodes []*node
	for _, name := range []string{"n1", "n2"} {
		n := newNode(t, p, name)
		n.trust = trust
		n.start()
		nodes = append(nodes, n)
	}

	// Nothing yet.
	c.want(1, "nothing was rolled out", "watch", "stable")
	c.want(1, "nothing was rolled out", "advance", "stable")
	c.want(1, "not found", "rollout", "stable", "--to", "sha256:"+strings.Repeat("0", 64))
	c.want(1, "", "publish", "stable", "-f", "none.yaml")
	c.want(2, "nothing to publish", "publish", "stable")
	c.write("bad.yaml", "kind: LandlockPolicy\n")
	c.want(1, "bad.yaml", "publish", "stable", "-f", "bad.yaml")

	one := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-m", "first", "-o", "name")
	c.want(0, "published before", "publish", "stable", "-f", "web.yaml", "-m", "once more")
	c.want(0, "is good", "verify", one)
	c.want(2, "--stages", "rollout", "stable", "--to", one, "--stages", "5,1,100")
	c.want(2, "--stages", "rollout", "stable", "--to", one, "--stages", "5,50")
	c.want(2, "--max-failed", "rollout", "stable", "--to", one, "--max-failed", "many")
	c.want(0, "sequence 1", "rollout", "stable", "--to", one[:15], "--stages", "100", "--soak", "0s")
	c.want(0, "loaded", "watch", "stable", "--timeout", "20s")
	for _, n := range nodes {
		n.becomes(fleet.Loaded, one)
	}
	c.want(1, "runs "+one[:15], "rollout", "stable", "--to", one)
	c.want(0, "prod: Loaded (2 nodes: 2 Loaded)", "status")
	c.want(0, "", "diff", "stable", "n1")

	// The second goes in stages, by hand.
	c.write("web.yaml", webPolicy("web", "/srv/two"))
	c.want(0, "nothing signed", "publish", "stable", "-f", "web.yaml", "--dry-run")
	two := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
	out := c.want(0, "no controller is elected", "rollout", "stable", "--to", two, "--stages", "99.99,100", "--soak", "1h", "--labels", "tier=edge", "-m", "two")
	c.want(1, "is at 99.99%", "rollout", "stable", "--to", two)
	// Nothing leads it on, which is said once; with a controller it is not.
	if !strings.Contains(out, "with tier=edge") {
		t.Errorf("rollout for labels: %s", out)
	}
	out, errOut, code := c.run("watch", "stable", "--timeout", "3s")
	if alone := "no controller is elected"; code != 124 || strings.Contains(out, alone) || strings.Count(errOut, alone) != 1 || !strings.Contains(errOut, "`policyctl fleet advance stable`") {
		t.Errorf("watch without a controller: %d\n%s%s", code, out, errOut)
	}
	c.want(1, "the gate", "advance", "stable")
	c.want(0, "100%", "advance", "stable", "--force")
	nodes[0].becomes(fleet.Loaded, two)
	nodes[1].becomes(fleet.Skipped, one)
	c.want(0, "the rollout is for nodes with tier=edge", "diff", "stable", "n2")
	c.want(0, "halted", "halt", "stable", "-m", "smoke")
	c.want(1, "smoke", "advance", "stable", "--force")
	c.want(1, "smoke", "watch", "stable")
	c.want(0, ": smoke", "status")
	c.want(0, `"why": "smoke"`, "status", "-o", "json")
	c.want(1, "halted", "pause", "stable")
	c.want(1, "--replace", "rollout", "stable", "--to", one)
	c.want(0, "halted", "halt", "--all")
	c.want(0, "the whole fleet is halted by", "status")
	c.want(1, "resume --all", "rollout", "stable", "--to", one, "--replace")
	c.want(0, "no longer", "resume", "--all")
	c.want(0, "sequence", "rollback", "stable", "-m", "smoke")
	for _, n := range nodes {
		n.becomes(fleet.Loaded, one)
	}

	// A corrected bundle takes the place of a halted rollout: nobody gets the halted one meanwhile.
	stop := p.control("c1", &decisions{})
	within(t, 10*time.Second, func() error {
		if name, err := p.store.Leader(t.Context()); err != nil || name != "c1" {
			return fmt.Errorf("elected: %q, %v", name, err)
		}
		return nil
	})
	if out, errOut, code := c.run("rollout", "stable", "--to", two, "--stages", "0.01,100"); code != 0 || !strings.Contains(out, "sequence") || errOut != "" {
		t.Errorf("with a controller: %d\n%s%s", code, out, errOut)
	}
	stop()
	c.want(0, "halted", "halt", "stable")
	c.want(1, "--replace", "rollout", "stable", "--to", one)
	c.want(0, "100%", "rollout", "stable", "--to", one, "--stages", "100", "--soak", "0s", "--replace")
	for _, n := range nodes {
		n.becomes(fleet.Loaded, one)
	}
	c.want(1, "nothing is held", "resume", "stable", "-m", "no hold")
	c.want(0, "paused", "pause", "stable")
	c.want(0, "no longer held", "resume", "stable", "-m", "logs are fine")
	c.want(0, ": logs are fine", "watch", "stable", "--timeout", "20s")
	c.want(0, `"why":"logs are fine"`, "watch", "stable", "-o", "json", "--timeout", "20s")

	// What scripts get.
	var info struct {
		State  string
		Counts map[string]int
		Nodes  []struct {
			Node   string
			Status *fleet.Status
		}
	}
	within(t, 10*time.Second, func() error {
		if err := json.Unmarshal([]byte(c.want(0, "", "status", "-o", "json")), &info); err != nil {
			return err
		}
		if info.State != "Loaded" || info.Counts["Loaded"] != 2 || len(info.Nodes) != 2 || info.Nodes[0].Status.LoadedDigest != one {
			return fmt.Errorf("status: %+v", info)
		}
		return nil
	})
	c.want(0, "removed", "enroll", "n2", "--remove")
	if names := c.want(0, "", "nodes", "-o", "name"); names != "n1" {
		t.Errorf("nodes: %q", names)
	}
	c.want(2, "not found", "diff", "stable", "n2") // 1 is an answer of diff
	c.want(2, "not-there", "not-there")

	// Settings that nobody can use.
	c.write("fleet.yaml", "name: prod\ncolour: red\n")
	c.want(1, "colour is no setting", "status")
}

// Two of two must sign: bundles and pointers go from hand to hand as files.
func TestTwoOfTwo(t *testing.T) {
	e := startEtcd(t)
	c := newCtl(t)
	c.want(2, "2 signatures", "init", "--name", fleetName, "--endpoints", e.url(), "--content-threshold", "2")
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--content-key", "alice", "--content-key", "bob", "--content-threshold", "2",
		"--rollout-key", "ci", "--rollout-key", "night", "--rollout-threshold", "2")
	key := func(name string) string { return filepath.Join(fleetName, name+".key") }
	c.want(1, "too few signatures", "publish", "stable", "-f", "web.yaml", "--sign-with", key("alice"))
	c.want(1, "too few signatures", "publish", "stable", "-f", "web.yaml", "--sign-with", key("alice"), "--sign-with", key("ci"))
	c.want(0, "not published", "publish", "stable", "-f", "web.yaml", "--sign-with", key("alice"), "--out", "web.bundle")
	c.want(1, "too few signatures", "publish", "stable", "-f", "web.bundle")
	c.want(1, "too few signatures", "verify", "web.bundle")
	c.want(0, "alice, bob", "sign", "web.bundle", "--sign-with", key("bob"))
	digest := c.want(0, "", "publish", "stable", "-f", "web.bundle", "-o", "name")
	c.want(1, "too few signatures", "rollout", "stable", "--to", digest, "--sign-with", key("ci"))
	c.want(0, "not in force", "rollout", "stable", "--to", digest, "--sign-with", key("ci"), "--out", "stable.pointer")
	c.want(1, "too few signatures", "rollout", "stable", "-f", "stable.pointer")
	c.want(0, "ci, night", "sign", "stable.pointer", "--sign-with", key("night"))
	c.want(1, "another channel", "rollout", "other", "-f", "stable.pointer")
	c.want(0, "sequence 1", "rollout", "stable", "-f", "stable.pointer")
	c.want(1, "older", "rollout", "stable", "-f", "stable.pointer")
	c.want(1, "neither", "sign", "web.yaml", "--sign-with", key("ci"))

	// A byte of the bundle is changed on the way.
	raw, err := os.ReadFile(filepath.Join(c.dir, "web.bundle"))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(raw, []byte("/srv/one"))
	raw[at+1] = 'x'
	c.write("changed.bundle", string(raw))
	c.want(1, "changed after it was signed", "verify", "changed.bundle")
	c.want(1, "changed after it was signed", "publish", "stable", "-f", "changed.bundle")
}

// A bundle beyond etcd's limit goes by reference.
func TestLargeBundleByReference(t *testing.T) {
	e := startEtcd(t)
	c := newCtl(t)
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--without-rbac")
	var b strings.Builder
	b.WriteString(webPolicy("web", "/srv/one"))
	for b.Len() < 5<<18 {
		fmt.Fprintf(&b, "        # %s\n", strings.Repeat("x", 200))
	}
	c.write("web.yaml", b.String())
	c.want(1, "--url", "publish", "stable", "-f", "web.yaml")
	c.want(2, "--out", "publish", "stable", "-f", "web.yaml", "--url", "https://example.org/a")
	c.want(2, "file:///path", "publish", "stable", "-f", "web.yaml", "--url", "ftp://example.org/a", "--out", "big.bundle")
	url := "file://" + filepath.Join(c.dir, "big.bundle")
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "--out", "big.bundle", "--url", url, "-o", "name")
	c.want(0, "is good", "verify", digest)
	c.want(0, "sequence 1", "rollout", "stable", "--to", digest)
	if err := os.Truncate(filepath.Join(c.dir, "big.bundle"), 1<<20); err != nil {
		t.Fatal(err)
	}
	c.want(1, "changed after it was signed", "verify", digest)
	// Its place is not there from here any more: another bundle can be published and rolled out, and this one again.
	if err := os.Remove(filepath.Join(c.dir, "big.bundle")); err != nil {
		t.Fatal(err)
	}
	c.write("small.yaml", webPolicy("web", "/srv/two"))
	small := c.want(0, "", "publish", "stable", "-f", "small.yaml", "-o", "name")
	c.want(0, "sequence 2", "rollout", "stable", "--to", small, "--stages", "100", "--replace")
	c.want(0, "nodes that do not have it yet fetch it themselves", "rollback", "stable", "--to", digest)
}
