package fleettest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/agent"
	"policyd.dev/policyd/internal/fleet/host"
	"policyd.dev/policyd/internal/fleet/kv"
	"policyd.dev/policyd/internal/server"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"

	"policyd.dev/policyd/internal/errs"
)

// node is an agent with a store of its own in this process: all of policyd that has to do with a fleet, with short times.
type node struct {
	t        *testing.T
	name     string
	st       *store.Store
	host     *host.Host
	agent    *agent.Agent
	endpoint kv.Endpoint
	trust    fleet.Trust
	channel  string
	channels []string
	timing   agent.Timing
	facts    agent.Facts
	http     *http.Client
	support  landlock.Support
	skew     atomic.Int64 // of its clock, nanoseconds
	log      *slog.Logger
	stop     func()
	counted  *countingHost
}

// countingHost counts what an agent asks of its host.
type countingHost struct {
	*host.Host
	activations, failed atomic.Int64
}

func (h *countingHost) Activate(ctx context.Context, a agent.Activation) error {
	h.activations.Add(1)
	err := h.Host.Activate(ctx, a)
	if err != nil {
		h.failed.Add(1)
	}
	return err
}

// newNode makes a node; start starts it.
func newNode(t *testing.T, p *publisher, name string) *node {
	t.Helper()
	n := &node{
		t: t, name: name, trust: p.trust(), channel: "stable", endpoint: kv.Endpoint{URLs: p.store.Client.Endpoints()},
		support: landlock.Support{State: landlock.Available, ABI: 7},
		timing: agent.Timing{
			Request: time.Second, Progress: 300 * time.Millisecond, Lease: 2 * time.Second, Look: 100 * time.Millisecond,
			Backoff: 20 * time.Millisecond, BackoffMost: 300 * time.Millisecond, Spread: time.Millisecond,
		},
		facts: agent.Facts{BootID: "boot", Version: "test", Kernel: "test"},
		log:   slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	n.st = storetest.OpenAt(t, filepath.Join(t.TempDir(), "policyd.db"), store.Options{NoSync: true})
	t.Cleanup(func() {
		if n.stop != nil {
			n.stop()
		}
	})
	return n
}

// startNode makes and starts one.
func startNode(t *testing.T, p *publisher, name string) *node {
	n := newNode(t, p, name)
	n.start()
	return n
}

// testWriter is nothing unless the test fails: what an agent logs is in the way otherwise.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() != nil {
		return io.Discard.Write(b) // the test has ended
	}
	w.t.Log(string(b))
	return len(b), nil
}

func noSmack() (smackfs.FS, error) { return nil, errs.ErrSmackNotBuilt }

func (n *node) start() {
	n.t.Helper()
	n.host = host.New(host.Config{Store: n.st, Smack: smackhost.New(smackhost.Config{Store: n.st, Find: noSmack}), Support: n.support})
	n.counted = &countingHost{Host: n.host}
	n.facts.LandlockABI = n.support.ABI
	a, err := agent.New(agent.Config{
		Fleet: fleetName, Node: n.name, Channel: n.channel, Channels: n.channels, Trust: n.trust, Host: n.counted, Reason: server.Reason, Log: n.log,
		Client: func() (*clientv3.Client, error) { return kv.Dial(n.endpoint) },
		Now:    func() time.Time { return time.Now().Round(0).Add(time.Duration(n.skew.Load())) },
		Timing: n.timing, Facts: n.facts, HTTP: n.http,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run(ctx)
	}()
	n.stop = func() {
		cancel()
		<-ended
		n.stop = nil
	}
}

// is tells whether the node itself says that it is in a state with a bundle.
func (n *node) is(state fleet.State, digest string) error {
	s := n.agent.Status()
	if s.GetState() != string(state) || s.GetLoadedDigest() != digest {
		return fmt.Errorf("%s is %s with %q (%s; etcd: %s), want %s with %q", n.name, s.GetState(), s.GetLoadedDigest(), s.GetReason(), s.GetConnection(), state, digest)
	}
	return nil
}

func (n *node) becomes(state fleet.State, digest string) {
	n.t.Helper()
	within(n.t, 20*time.Second, func() error { return n.is(state, digest) })
}

// events are the entries of its log of one type.
func (n *node) events(kind string) (list []*apiv1.Event) {
	n.t.Helper()
	all, err := n.st.Events(0, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range all {
		if e.GetType() == kind {
			list = append(list, e)
		}
	}
	return list
}
