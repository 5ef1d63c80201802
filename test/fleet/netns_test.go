package fleettest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
	"policyd.dev/policyd/internal/testkernel"
)

// ip runs ip(8).
func ip(t *testing.T, args ...string) error {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// space is a network namespace, and the line to it.
type space struct {
	t           *testing.T
	name, far   string
	here, there string // addresses of the line's ends
}

var spaces atomic.Int64

// newSpace makes one, as root.
func newSpace(t *testing.T) *space {
	t.Helper()
	if os.Getuid() != 0 {
		testkernel.Skip(t, "network namespaces are made by root", "root")
	}
	pid, n := os.Getpid(), spaces.Add(1)
	third := (pid + 100*int(n)) % 250
	s := &space{
		t: t, name: fmt.Sprintf("pd-%d-%d", pid, n), far: fmt.Sprintf("pdf%d-%d", pid%100000, n),
		here: fmt.Sprintf("10.213.%d.1", third), there: fmt.Sprintf("10.213.%d.2", third),
	}
	near := fmt.Sprintf("pdn%d-%d", pid%100000, n)
	if err := ip(t, "netns", "add", s.name); err != nil {
		testkernel.Skip(t, err.Error(), "network namespaces and ip(8)")
	}
	t.Cleanup(func() { _ = ip(t, "netns", "del", s.name) })
	for _, args := range [][]string{
		{"link", "add", near, "type", "veth", "peer", "name", s.far, "netns", s.name},
		{"addr", "add", s.here + "/24", "dev", near},
		{"link", "set", near, "up"},
		{"-n", s.name, "addr", "add", s.there + "/24", "dev", s.far},
		{"-n", s.name, "link", "set", s.far, "up"},
		{"-n", s.name, "link", "set", "lo", "up"},
	} {
		if err := ip(t, args...); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// enter is the command, before another one, that runs it there. Mounts stay this process's, unlike with ip netns exec.
func (s *space) enter() []string { return []string{"nsenter", "--net=/run/netns/" + s.name} }

// line takes the line away, or brings it back: packets are lost, nothing is closed.
func (s *space) line(state string) {
	s.t.Helper()
	if err := ip(s.t, "-n", s.name, "link", "set", s.far, state); err != nil {
		s.t.Fatal(err)
	}
}

// TestPartition: etcd is in a network namespace of its own, and the line to it goes away and comes back, without anything
// being closed. Packets are lost as in a network that is cut, not refused.
func TestPartition(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	e := newEtcd(t)
	e.client, e.peer = net.JoinHostPort(s.there, "2379"), "127.0.0.1:2380"
	in := e.command()
	args := append(s.enter(), in.Args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = in.Env, in.Stderr, in.SysProcAttr
	e.startAs(cmd)
	p := newPublisher(t, e.dial(t, nil))
	n := newNode(t, p, "web-1")
	n.endpoint = kv.Endpoint{URLs: []string{e.url()}}
	n.start()
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	within(t, 5*time.Second, func() error { return p.says("web-1", fleet.Loaded, first) })

	second := p.publish(webPolicy("web", "/srv/two"))
	for range 2 {
		s.line("down")
		within(t, 15*time.Second, func() error {
			if now := n.agent.Status(); now.GetConnected() {
				return errors.New("it says that etcd is heard")
			}
			return nil
		})
		if now := n.agent.Status(); now.GetState() != string(fleet.Loaded) {
			t.Errorf("cut off: %v", now)
		}
		s.line("up")
		within(t, 20*time.Second, func() error {
			if now := n.agent.Status(); !now.GetConnected() {
				return errors.New(now.GetConnection())
			}
			return nil
		})
	}
	within(t, 20*time.Second, func() error {
		ptr := p.pointer(second, "", fleet.Full)
		_, err := p.store.Client.Put(t.Context(), p.store.Layout.Channel("stable"), string(p.sign(ptr)))
		return err
	})
	n.becomes(fleet.Loaded, second)
}
