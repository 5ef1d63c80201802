package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"policyd.dev/policyd/internal/containers"
)

// policyd is not there: at the start nothing is known, later what is known goes on.
func TestPolicydAway(t *testing.T) {
	d := newDaemon(t)
	h := newHost(t, d.socket(), "")
	h.startPlugin()
	if _, err := h.create(pod(key, "box"), h.container("web", "true")); err == nil || !strings.Contains(err.Error(), "not in memory (policyd") {
		t.Errorf("before policyd: %v", err)
	}
	if a, err := h.create(pod(), h.container("web", "true")); err != nil || a != nil {
		t.Errorf("one without a profile, before policyd: %v, %v", a, err)
	}
	d.start()
	d.apply(box("box"))
	h.under(pod(key, "box"), "box@1")
	d.stop()
	h.logged("policyd is not followed", 2)
	h.under(pod(key, "box"), "box@1")
	if _, err := h.create(pod(key, "new"), h.container("web", "true")); err == nil || !strings.Contains(err.Error(), "policyd is not followed") {
		t.Errorf("one that is not known, without policyd: %v", err)
	}
	d.start()
	d.apply(box("new"))
	h.under(pod(key, "new"), "new@1")
}

// relay stands before a runtime's socket, so that its connections can be cut as the end of the runtime does.
type relay struct {
	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, from, to string) *relay {
	t.Helper()
	l, err := net.Listen("unix", from)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{}
	t.Cleanup(func() { l.Close(); r.cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", to)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() { _, _ = io.Copy(pair[0], pair[1]); pair[0].Close() }()
			}
		}
	}()
	return r
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// The runtime goes away and comes back, and what it has then counts.
func TestRuntimeRestarts(t *testing.T) {
	d := newDaemon(t)
	d.start()
	d.apply(box("box"))
	h := newHost(t, d.socket(), "")
	r := newRelay(t, h.dir+"/relay.sock", h.settings.NRISocket)
	h.settings.NRISocket = h.dir + "/relay.sock"
	h.startPlugin()
	h.under(pod(key, "box"), "box@1")
	c := h.container("web", "true")
	if _, err := h.create(pod(key, "box"), c); err != nil {
		t.Fatal(err)
	}
	for again := range 2 {
		h.runtime.Stop()
		r.cut()
		h.logged("not connected to the runtime", 2*again+2) // and once more, in vain
		h.startRuntime()
		h.logged("registered with the runtime", again+2)
		h.under(pod(key, "box"), "box@1")
	}
	// The new runtime said that it has no containers.
	if _, err := containers.Read(h.settings.Records, "", c.GetId()); !errors.Is(err, containers.ErrNone) {
		t.Errorf("record of a container that is no more: %v", err)
	}
}

// slow is a plugin that takes longer than a runtime waits (2 s), about containers named late.
type slow struct{ *plugin }

func (s slow) CreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if c.GetName() == "late" {
		time.Sleep(3 * time.Second)
	}
	return s.plugin.CreateContainer(ctx, p, c)
}

// What NRI does with an answer that comes too late: without the word that policyd-nri says, which runtimes know from NRI
// 0.12.4 on, the container starts unconfined, though its pod requires the plugin, and the plugin is asked no more.
func TestLateAnswer(t *testing.T) {
	for name, options := range map[string][]stub.Option{"older runtime": nil, "runtime": {failClosed}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "/nowhere.sock", "")
			p := slow{&plugin{settings: h.settings, memory: newMemory(h.settings, nil), log: testLog(h), registered: func() {}}}
			s, err := stub.New(p, append(options, stub.WithPluginName("policyd"), stub.WithPluginIdx("99"), stub.WithSocketPath(h.settings.NRISocket), stub.WithOnClose(func() {}))...)
			if err != nil {
				t.Fatal(err)
			}
			version := s.RuntimeNRIVersion
			p.version.Store(&version)
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Stop)
			h.connected()
			required := pod(key, "box", "required-plugins.noderesource.dev", "[policyd]")
			a, err := h.create(required, h.container("late", "true"))
			if options == nil {
				if err != nil || a != nil {
					t.Errorf("the container was refused or changed: %v, %v", a, err)
				}
				began := time.Now()
				if _, err := h.create(pod(key, "box"), h.container("late", "true")); err != nil || time.Since(began) > time.Second {
					t.Errorf("the plugin is still asked: %v", err)
				}
				if _, err := h.create(required, h.container("web", "true")); err == nil || !strings.Contains(err.Error(), "required") {
					t.Errorf("required, and not there any more: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "policyd") {
				t.Errorf("the container was not refused: %v, %v", a, err)
			}
		})
	}
}
