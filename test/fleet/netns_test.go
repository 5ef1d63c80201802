package fleettest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
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

// TestPartition: etcd is in a network namespace of its own, and the line to it goes away and comes back, without anything
// being closed. Packets are lost as in a network that is cut, not refused.
func TestPartition(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		testkernel.Skip(t, "network namespaces are made by root", "root")
	}
	space, near, far := fmt.Sprintf("pd-%d", os.Getpid()), fmt.Sprintf("pdn%d", os.Getpid()%100000), fmt.Sprintf("pdf%d", os.Getpid()%100000)
	third := os.Getpid() % 250
	here, there := fmt.Sprintf("10.213.%d.1", third), fmt.Sprintf("10.213.%d.2", third)
	if err := ip(t, "netns", "add", space); err != nil {
		testkernel.Skip(t, err.Error(), "network namespaces and ip(8)")
	}
	t.Cleanup(func() { _ = ip(t, "netns", "del", space) })
	for _, args := range [][]string{
		{"link", "add", near, "type", "veth", "peer", "name", far, "netns", space},
		{"addr", "add", here + "/24", "dev", near},
		{"link", "set", near, "up"},
		{"-n", space, "addr", "add", there + "/24", "dev", far},
		{"-n", space, "link", "set", far, "up"},
		{"-n", space, "link", "set", "lo", "up"},
	} {
		if err := ip(t, args...); err != nil {
			t.Fatal(err)
		}
	}
	e := newEtcd(t)
	e.client, e.peer = net.JoinHostPort(there, "2379"), "127.0.0.1:2380"
	in := e.command()
	cmd := exec.Command("ip", append([]string{"netns", "exec", space}, in.Args...)...)
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
		if err := ip(t, "-n", space, "link", "set", far, "down"); err != nil {
			t.Fatal(err)
		}
		within(t, 15*time.Second, func() error {
			if s := n.agent.Status(); s.GetConnected() {
				return errors.New("it says that etcd is heard")
			}
			return nil
		})
		if s := n.agent.Status(); s.GetState() != string(fleet.Loaded) {
			t.Errorf("cut off: %v", s)
		}
		if err := ip(t, "-n", space, "link", "set", far, "up"); err != nil {
			t.Fatal(err)
		}
		within(t, 20*time.Second, func() error {
			if s := n.agent.Status(); !s.GetConnected() {
				return errors.New(s.GetConnection())
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
