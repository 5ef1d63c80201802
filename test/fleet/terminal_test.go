package fleettest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/controller"
)

// terminal runs policyctl fleet on a terminal and gives all that it drew.
func (c *ctl) terminal(args ...string) string {
	c.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		c.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		c.t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs(c.t), "policyctl"), append([]string{"fleet", "--fleet-config", filepath.Join(c.dir, "fleet.yaml")}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	err = cmd.Start()
	slave.Close()
	if err != nil {
		c.t.Fatal(err)
	}
	var b bytes.Buffer
	_, _ = io.Copy(&b, master) // ends with EIO when the last writer is gone
	if err := cmd.Wait(); err != nil {
		c.t.Errorf("policyctl fleet %s: %v\n%s", strings.Join(args, " "), err, b.String())
	}
	return b.String()
}

// A rollout as people and scripts see it: a bar that grows on a terminal, lines
// elsewhere, and the node that holds it back by name.
func TestWatch(t *testing.T) {
	e := startEtcd(t)
	c := newCtl(t)
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--without-rbac")
	c.want(0, "enrolled", "enroll", "n1")
	p := c.publisher(e)
	said := &fleet.Status{Node: "n1", Channel: "stable", State: fleet.Compiling, Reported: time.Now()}
	say := func(digest string, state fleet.State) {
		said.DesiredDigest, said.State, said.DesiredSeq = digest, state, 1
		if state == fleet.Loaded {
			said.LoadedDigest = digest
		}
		raw, err := fleet.Marshal(said)
		if err != nil {
			t.Error(err)
		}
		if _, err := p.store.Client.Put(context.Background(), p.store.Layout.Status("n1"), string(raw)); err != nil {
			t.Error(err)
		}
	}
	for i, terminal := range []bool{true, false} {
		c.write("web.yaml", webPolicy("web", fmt.Sprint("/srv/", i)))
		digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
		c.want(0, "sequence", "rollout", "stable", "--to", digest, "--stages", "99.99,100", "--soak", "500ms")
		say(digest, fleet.Compiling)
		signer, err := fleet.ReadSigner(filepath.Join(c.dir, fleetName, "rollout.key"))
		if err != nil {
			t.Fatal(err)
		}
		trust := c.trust()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			select {
			case <-time.After(1500 * time.Millisecond): // time for a look at what holds it back
			case <-ctx.Done():
			}
			say(digest, fleet.Loaded)
			controller.Run(ctx, controller.Config{
				Member: controller.Member{
					Store: p.store, Trust: trust, Name: "c1", Now: time.Now,
					Signers: func() ([]note.Signer, error) { return []note.Signer{signer}, nil },
				},
				Interval: 100 * time.Millisecond, SessionTTL: 2 * time.Second, Log: slog.New(slog.DiscardHandler),
			})
		}()
		var out string
		if terminal {
			out = c.terminal("watch", "stable", "--timeout", "30s")
		} else {
			out = c.want(0, "", "watch", "stable", "--timeout", "30s")
		}
		cancel()
		<-ended
		for _, want := range []string{"n1 Compiling: has not loaded it yet", "1 loaded", "100% of 1 nodes", "done"} {
			if !strings.Contains(out, want) {
				t.Errorf("terminal %t: no %q in\n%q", terminal, want, out)
			}
		}
		if drawn := strings.Contains(out, "["+strings.Repeat("#", 60)+"]"); drawn != terminal {
			t.Errorf("terminal %t: a full bar: %t\n%q", terminal, drawn, out)
		}
		if strings.Contains(out, "\x1b") != terminal {
			t.Errorf("terminal %t: escapes in %q", terminal, out)
		}
	}
	if out := c.want(0, "", "watch", "stable", "-o", "json", "--timeout", "30s"); !strings.Contains(out, `"action":"done"`) || strings.Count(out, "\n") != 0 {
		t.Errorf("as JSON: %q", out)
	}
	if out := c.want(124, "", "status", "--watch", "--timeout", "2500ms"); strings.Count(out, "prod: Loaded (1 node: 1 Loaded)") != 1 {
		t.Errorf("nothing changed, and it was told again: %q", out)
	}
}

// trust is that of the settings.
func (c *ctl) trust() fleet.Trust {
	c.t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, "fleet.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	t := fleet.Trust{Content: fleet.Signers{Threshold: 1}, Rollout: fleet.Signers{Threshold: 1}}
	for line := range strings.Lines(string(raw)) {
		switch word := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- ")); {
		case strings.HasPrefix(word, "content+"):
			t.Content.Keys = append(t.Content.Keys, word)
		case strings.HasPrefix(word, "rollout+"):
			t.Rollout.Keys = append(t.Rollout.Keys, word)
		}
	}
	return t
}

// What Tab offers comes from etcd.
func TestFleetCompletion(t *testing.T) {
	e := startEtcd(t)
	c := newCtl(t)
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--without-rbac")
	c.want(0, "enrolled", "enroll", "web-1", "--channel", "canary")
	c.want(0, "enrolled", "enroll", "web-2")
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
	for typed, want := range map[string]string{
		"rollout ":                 "canary\nstable\n",
		"rollout c":                "canary\n",
		"rollout stable --to ":     digest + "\n",
		"enroll web":               "web-1\nweb-2\n",
		"diff canary web-1":        "web-1\n",
		"enroll x --channel s":     "stable\n",
		"verify sha":               digest + "\n",
		"halt canary ":             "",
		"publish stable -f x.yaml": "",
	} {
		args := append([]string{"__complete", "fleet", "--fleet-config", filepath.Join(c.dir, "fleet.yaml")}, strings.Split(typed, " ")...)
		out, err := exec.Command(filepath.Join(programs(t), "policyctl"), args...).Output()
		if err != nil {
			t.Errorf("%q: %v", typed, err)
		}
		offered, _, _ := strings.Cut(string(out), ":")
		if strings.Contains(want, ":") { // a digest
			offered = strings.TrimSuffix(string(out), string(out)[strings.LastIndex(string(out), ":"):])
		}
		if offered != want {
			t.Errorf("%q offers %q, want %q", typed, out, want)
		}
	}
}
