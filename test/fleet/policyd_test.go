package fleettest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// daemon is a real policyd that follows channel stable.
type daemon struct {
	t        *testing.T
	dir      string
	name     string
	programs string
	config   string
	cmd      *exec.Cmd
	out      *lockedBuffer
	env      []string // beside the test's own
	in       []string // a command that runs it somewhere else, such as in a network namespace
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newDaemon writes the configuration of a node; more are lines of the section fleet.
func newDaemon(t *testing.T, p *publisher, name string, more ...string) *daemon {
	t.Helper()
	return newDaemonAt(t, p, name, p.store.Client.Endpoints(), more...)
}

// newDaemonAt is newDaemon with other addresses of etcd than the publisher's.
func newDaemonAt(t *testing.T, p *publisher, name string, endpoints []string, more ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, dir: dir, name: name, programs: programs(t), out: &lockedBuffer{}, config: filepath.Join(dir, "policyd.yaml")}
	text := fmt.Sprintf("log: {format: text, level: info}\nmetrics: {listen: \"unix://%s/metrics.sock\"}\nfleet:\n  name: %s\n  node: %s\n  endpoints: [\"%s\"]\n  channel: stable\n  contentKeys: {keys: [\"%s\"]}\n  rolloutKeys: {keys: [\"%s\"]}\n",
		dir, fleetName, name, strings.Join(endpoints, `", "`), p.content.verifier, p.rollout.verifier)
	for _, line := range more {
		text += "  " + line + "\n"
	}
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
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

func (d *daemon) start() {
	d.t.Helper()
	args := append(slices.Clone(d.in), filepath.Join(d.programs, "policyd"), "--config", d.config, "--state-dir", filepath.Join(d.dir, "state"))
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	d.cmd.Env = append(os.Environ(), d.env...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	if out, err := d.ctl("status", "--wait=20", "-q"); err != nil {
		d.t.Fatalf("%s: %v %s\n%s", d.name, err, out, d.out)
	}
}

// end stops it with a signal and waits.
func (d *daemon) end(sig syscall.Signal) {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(sig)
	_ = d.cmd.Wait()
	d.cmd = nil
}

func (d *daemon) kill() { d.end(syscall.SIGKILL) }

// ctl runs policyctl on this node.
func (d *daemon) ctl(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(d.programs, "policyctl"), args...)
	cmd.Env = append(os.Environ(), "POLICYD_SOCKET=unix://"+filepath.Join(d.dir, "state", "run", "policyd.sock"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// metrics are the node's.
func (d *daemon) metrics() string {
	d.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(d.dir, "metrics.sock"))
	}}}
	r, err := client.Get("http://policyd/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// fleetStatus is the fleet's part of policyctl status.
type fleetStatus struct {
	State, Reason, LoadedDigest, Channel, Connection string
	Connected                                        bool
}

func (d *daemon) status() (s fleetStatus, err error) {
	out, err := d.ctl("status", "-o", "json")
	var all struct{ Fleet json.RawMessage }
	if jerr := json.Unmarshal([]byte(out), &all); jerr != nil {
		return s, errors.Join(err, fmt.Errorf("%w: %s", jerr, out))
	}
	return s, json.Unmarshal(all.Fleet, &s)
}

func (d *daemon) becomes(state fleet.State, digest string) {
	d.t.Helper()
	within(d.t, 30*time.Second, func() error {
		s, err := d.status()
		if err == nil && (s.State != string(state) || s.LoadedDigest != digest) {
			err = fmt.Errorf("%s is %+v, want %s with %s", d.name, s, state, digest)
		}
		return err
	})
}

// TestPolicyd: real policyd processes from end to end. Three nodes follow a channel whose rollout one of them carries on;
// what comes from the channel cannot be changed on a node; processes keep their version; a kill -9 leaves what was in force.
func TestPolicyd(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	rolloutKey := writeFile(t, "rollout.key", []byte(p.rollout.private+"\n"))
	var nodes []*daemon
	for i := range 3 {
		var more []string
		if i == 0 {
			more = []string{"controller: true", "rolloutKey: " + rolloutKey}
		}
		d := newDaemon(t, p, fmt.Sprint("node-", i), more...)
		d.start()
		nodes = append(nodes, d)
		if err := p.store.PutSpec(t.Context(), d.name, &fleet.Spec{Channel: "stable"}); err != nil {
			t.Fatal(err)
		}
	}
	first := p.publish(webPolicy("web", "/srv/one"), webPolicy("db", "/srv/db"))
	p.rollOut(first)
	for _, d := range nodes {
		d.becomes(fleet.Loaded, first)
	}
	d := nodes[1]
	if out, err := d.ctl("get", "policies"); err != nil || !strings.Contains(out, "ORIGIN") || !strings.Contains(out, "fleet stable@1") {
		t.Errorf("get: %v\n%s", err, out)
	}
	if out, err := d.ctl("status"); err != nil || !strings.Contains(out, "prod, node node-1, stable: Loaded") {
		t.Errorf("status: %v\n%s", err, out)
	}
	for _, want := range []string{`policyd_fleet_state{state="Loaded"} 1`, "policyd_fleet_connected 1", "policyd_fleet_loaded_sequence 1"} {
		if text := d.metrics(); !strings.Contains(text, want+"\n") {
			t.Errorf("metrics lack %s:\n%s", want, text)
		}
	}
	own := writeFile(t, "web.yaml", []byte(webPolicy("web", "/")))
	for _, args := range [][]string{
		{"apply", "-f", own}, {"apply", "--dry-run", "-f", own}, {"delete", "policy/web", "--expect", "1"}, {"tag", "web@1", "mine"},
	} {
		out, err := d.ctl(args...)
		if err == nil || !strings.Contains(out, "policyctl fleet publish stable") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	sandbox, err := d.ctl("run", "--detach", "web", "--", "/bin/sleep", "60")
	if err != nil {
		t.Errorf("run: %v\n%s", err, sandbox)
	}

	// Through the stages, by the controller.
	second := p.publish(webPolicy("web", "/srv/two"))
	ptr := p.pointer(second, first, 5000)
	p.put("stable", p.sign(ptr))
	for _, d := range nodes {
		d.becomes(fleet.Loaded, second)
	}
	within(t, 10*time.Second, func() error {
		s := p.last("node-1")
		if s == nil || s.LoadedDigest != second {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if out, err := d.ctl("status"); err != nil || !strings.Contains(out, "1 program runs another version") {
		t.Errorf("status: %v\n%s", err, out)
	}
	if out, err := d.ctl("events", "--tail", "30"); err != nil || !strings.Contains(out, "fleet_activate") {
		t.Errorf("events: %v\n%s", err, out)
	}

	// Killed, without etcd: what was in force is so at once.
	d.kill()
	e.kill()
	d.start()
	s, err := d.status()
	if err != nil || s.State != string(fleet.Loaded) || s.LoadedDigest != second {
		t.Errorf("after kill -9, without etcd: %+v %v", s, err)
	}
	if out, err := d.ctl("run", "web", "--", "/bin/true"); err != nil {
		t.Errorf("run without etcd: %v\n%s", err, out)
	}
	if out, err := d.ctl("kill", strings.TrimSpace(sandbox)); err != nil {
		t.Errorf("kill: %v %s", err, out)
	}
	e.start()

	// What no node can enforce halts the rollout at its first stage.
	third := p.publish(tooNew)
	p.seq += 10
	bad := p.pointer(third, second, 5000)
	p.put("stable", p.sign(bad))
	within(t, 60*time.Second, func() error {
		c, err := p.store.Channel(t.Context(), "stable")
		if err == nil && len(c.Holds()) == 0 {
			err = errors.New("nobody has halted it")
		}
		return err
	})
	for _, d := range nodes {
		if s, err := d.status(); err != nil || s.LoadedDigest != second {
			t.Errorf("%s: %+v %v", d.name, s, err)
		}
	}
	within(t, 10*time.Second, func() error {
		if out, err := nodes[0].ctl("events", "--tail", "50"); err != nil || !strings.Contains(out, "fleet_halt") {
			return fmt.Errorf("events: %w\n%s", err, out)
		}
		return nil
	})

	// A host whose configuration names no fleet any more keeps what it had, as its own.
	d.end(syscall.SIGTERM)
	if err := os.WriteFile(d.config, []byte("log: {format: text}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	if out, err := d.ctl("apply", "-f", own); err != nil {
		t.Errorf("apply: %v\n%s", err, out)
	}
}
