package fleettest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// killed runs policyctl fleet and kills it after a time; it tells whether that was before its end.
func (c *ctl) killed(after time.Duration, args ...string) bool {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(programs(c.t), "policyctl"), append([]string{"fleet", "--fleet-config", filepath.Join(c.dir, "fleet.yaml")}, args...)...)
	cmd.Dir = c.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	return cmd.Wait() != nil && cmd.ProcessState.ExitCode() < 0
}

// TestKilledCommands: a command that is killed anywhere leaves what the same command, given again, brings to its end.
func TestKilledCommands(t *testing.T) {
	t.Parallel()
	e := startEtcd(t)
	c := newCtl(t)
	again := func(what string, args ...string) {
		t.Helper()
		kills := 0
		for i := range 6 {
			if c.killed(time.Duration(5+i*5)*time.Millisecond+rand.N(5*time.Millisecond), args...) {
				kills++
			}
		}
		t.Logf("%s: killed %d times before its end", what, kills)
	}
	begin := []string{"init", "--name", fleetName, "--endpoints", e.url()}
	again("init", begin...)
	if _, err := os.Stat(filepath.Join(c.dir, "fleet.yaml")); err != nil {
		keys, _ := filepath.Glob(filepath.Join(c.dir, fleetName, "*.key"))
		for _, k := range keys { // as it says
			c.want(1, "remove it then", begin...)
			if _, err := fleet.ReadSigner(k); err != nil {
				t.Errorf("half a key: %v", err)
			}
			if err := os.Remove(k); err != nil {
				t.Fatal(err)
			}
		}
		c.want(0, "has begun", begin...)
	}
	again("enroll", "enroll", "n1", "-l", "zone=eu")
	c.want(0, "", "enroll", "n1", "-l", "zone=eu")
	c.want(0, "zone=eu", "nodes")
	again("publish", "publish", "stable", "-f", "web.yaml", "-m", "one")
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-m", "one", "-o", "name")
	again("rollout", "rollout", "stable", "--to", digest, "--stages", "50,100")
	out, errOut, code := c.run("rollout", "stable", "--to", digest, "--stages", "50,100")
	if code != 0 && !strings.Contains(errOut, "is at 50%") {
		t.Errorf("rollout: %d %s%s", code, out, errOut)
	}
	again("halt", "halt", "stable")
	c.want(0, "halted", "halt", "stable")
	again("resume", "resume", "stable")
	if _, errOut, code := c.run("resume", "stable"); code != 0 && !strings.Contains(errOut, "nothing is held") {
		t.Errorf("resume: %d %s", code, errOut)
	}
	again("rollback", "rollback", "stable", "--to", digest)
	c.want(0, "sequence", "rollback", "stable", "--to", digest)
	again("remove", "enroll", "n1", "--remove")
	if _, errOut, code := c.run("enroll", "n1", "--remove"); code != 0 && !strings.Contains(errOut, "not found") {
		t.Errorf("remove: %d %s", code, errOut)
	}
	c.want(0, "enrolled", "enroll", "n1")
	if left, _ := filepath.Glob(filepath.Join(c.dir, "*.tmp*")); len(left) > 0 {
		t.Logf("left over: %v", left)
	}
}

// TestCommandsWithoutEtcd: each says that etcd is not reachable, ends with 3, and works once it is.
func TestCommandsWithoutEtcd(t *testing.T) {
	t.Parallel()
	e := startEtcd(t)
	c := newCtl(t)
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url())
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
	commands := [][]string{
		{"enroll", "n1"},
		{"nodes"},
		{"status"},
		{"publish", "stable", "-f", "web.yaml"},
		{"rollout", "stable", "--to", digest, "--stages", "50,100"},
		{"pause", "stable"},
		{"resume", "stable"},
		{"halt", "--all"},
		{"resume", "--all"},
		{"advance", "stable", "--force"},
		{"diff", "stable", "n1"},
		{"verify", digest},
		{"rollback", "stable", "--to", digest},
		{"watch", "stable"},
		{"status", "--watch"},
		{"enroll", "n1", "--remove"},
	}
	e.kill()
	for _, args := range commands {
		c.want(3, "is not reachable", append([]string{"--timeout", "300ms"}, args...)...)
	}
	e.start()
	for _, args := range commands {
		if args[0] == "watch" || args[len(args)-1] == "--watch" || args[0] == "diff" {
			continue
		}
		c.want(0, "", args...)
	}
}

// TestBadKeyFiles: no signature is made with a key that others can read, that is cut off, or that is of the other role.
func TestBadKeyFiles(t *testing.T) {
	t.Parallel()
	e := startEtcd(t)
	c := newCtl(t)
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url())
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
	content, rollout := filepath.Join(c.dir, fleetName, "content.key"), filepath.Join(c.dir, fleetName, "rollout.key")
	raw, err := os.ReadFile(rollout)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, b []byte, mode os.FileMode) string {
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(c.dir, "fifo")
	if err := exec.Command("mkfifo", "-m", "600", fifo).Run(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		key, want string
		code      int
	}{
		"readable by the group":  {file("group", raw, 0o640), "can be read by others", 4},
		"readable by all":        {file("all", raw, 0o604), "can be read by others", 4},
		"cut off":                {file("cut", raw[:len(raw)-9], 0o600), "not a private key", 1},
		"empty":                  {file("empty", nil, 0o600), "not a private key", 1},
		"huge":                   {file("huge", make([]byte, 1<<20), 0o600), "not a key", 1},
		"of the other role":      {content, "0 of 1", 1},
		"a FIFO":                 {fifo, "not a regular file", 1},
		"a folder":               {c.dir, "key", 1},
		"none":                   {filepath.Join(c.dir, "none"), "no such file", 1},
		"a credential of nobody": {"credential:x", "no such credential", 1},
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.want(tc.code, tc.want, "rollout", "stable", "--to", digest, "--sign-with", tc.key)
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: policyctl does not end", name)
		}
	}
	c.want(1, "0 of 1", "publish", "stable", "-f", "web.yaml", "-m", "x", "--sign-with", rollout)
	if _, errOut, code := c.run("status"); code != 0 {
		t.Errorf("status: %d %s", code, errOut)
	}
	// Settings without a key, or with the two swapped, believe nothing.
	settings, err := os.ReadFile(filepath.Join(c.dir, "fleet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(string) string{
		"swapped": func(s string) string {
			return strings.NewReplacer("contentKeys", "rolloutKeys", "rolloutKeys", "contentKeys").Replace(s)
		},
		"none":   func(s string) string { return strings.ReplaceAll(s, "rolloutKeys", "otherKeys") },
		"binary": func(string) string { return "\x00\xff" },
		"empty":  func(string) string { return "" },
	} {
		c.write("fleet.yaml", f(string(settings)))
		if out, errOut, code := c.run("rollout", "stable", "--to", digest); code == 0 || strings.Contains(errOut, "panic") {
			t.Errorf("%s: %d %s%s", name, code, out, errOut)
		}
	}
	c.write("fleet.yaml", string(settings))
	c.want(0, "sequence 1", "rollout", "stable", "--to", digest)
}
