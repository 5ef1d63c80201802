package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/fleet"
)

// Host is the machine: what it has in force, and how that changes. internal/fleet/host is policyd's.
type Host interface {
	// State is what is kept of the channel and of what is in force.
	State() (*apiv1.FleetState, error)
	// Keep stores a pointer that was accepted. What is in force stays.
	Keep(ctx context.Context, st *apiv1.FleetState, events ...*apiv1.Event) error
	// Tell appends to the host's log.
	Tell(ctx context.Context, e *apiv1.Event) error
	// Blob gives a bundle that the host has kept; errs.ErrNotFound.
	Blob(digest string) ([]byte, error)
	// Activate puts a verified bundle into force, whole or not at all.
	Activate(ctx context.Context, a Activation) error
	// Report is what the host says of what is in force.
	Report() (Report, error)
}

// Activation is a bundle that was fetched and verified.
type Activation struct {
	State    *apiv1.FleetState
	Digest   string
	Blob     []byte // with the manifest, and with the bytes even where they came by reference
	Manifest *fleet.Manifest
	Bundle   *fleet.Bundle
}

// Report is what a host says of itself.
type Report struct {
	Documents, Policies int
	// Degraded are policies of which the kernel does not enforce everything, Overrides those with a version of the host's own.
	Degraded, Overrides []string
	Smack               bool
	SmackRules          int
	// Running counts sandboxes, containers and services by the digest of the bundle their version came with; "" are those of none.
	Running map[string]int
	// RunningOlder counts those of policies of the fleet that run another version than the one in force.
	RunningOlder int
}

// Config of [New]. Fleet, Node, Trust, Host and Client must be given.
type Config struct {
	Fleet, Node string
	// Channel is followed as long as no admin has written a Spec of the node; "": none.
	Channel string
	// Channels are all that it may follow, whatever a Spec says, which nobody signs; none: any of the fleet.
	Channels []string
	Trust    fleet.Trust
	Host     Host
	// Client makes the client of etcd. It is called again when it fails; the agent closes what it gives.
	Client func() (*clientv3.Client, error)
	// HTTP fetches bundles by reference. nil: http.DefaultClient.
	HTTP *http.Client
	// Facts that stand in the status.
	Facts Facts
	// Reason gives the stable word for an error. nil: none.
	Reason func(error) string
	Log    *slog.Logger
	// Now is the wall clock that pointers expire by. nil: time.Now, without its monotonic part, which stands still while a
	// machine sleeps.
	Now    func() time.Time
	Timing Timing
}

// Facts of the node.
type Facts struct {
	BootID, Version, Kernel string
	LandlockABI             int
}

// Timing is how long the agent waits for what. A zero gives the default in the comment.
type Timing struct {
	Request  time.Duration // 10s: an answer of etcd
	Relist   time.Duration // 20m: between two whole reads, a quarter more or less
	Progress time.Duration // 30s: between two questions how far the watch is
	Lease    time.Duration // 60s: life of the status after the last sign of the node
	Report   time.Duration // 4m: the longest time between two statuses
	Look     time.Duration // 30s: between two looks at the clock and at what runs
	Backoff  time.Duration // 1s: the first pause after an error, doubled up to BackoffMost
	// BackoffMost is 1m. A bundle that failed is tried again after it, doubled up to thirty times it.
	BackoffMost time.Duration
	Spread      time.Duration // 1s: nodes fetch a new bundle within this time, each at its own moment
}

func (t *Timing) fill() {
	for _, d := range []struct {
		of  *time.Duration
		val time.Duration
	}{
		{&t.Request, 10 * time.Second},
		{&t.Relist, 20 * time.Minute},
		{&t.Progress, 30 * time.Second},
		{&t.Lease, time.Minute},
		{&t.Report, 4 * time.Minute},
		{&t.Look, 30 * time.Second},
		{&t.Backoff, time.Second},
		{&t.BackoffMost, time.Minute},
		{&t.Spread, time.Second},
	} {
		if *d.of == 0 {
			*d.of = d.val
		}
	}
}

// Agent is one node's. Its methods are safe for concurrent use.
type Agent struct {
	cfg    Config
	layout fleet.Layout
	log    *slog.Logger

	act    chan struct{} // a token: there may be something to act on
	tell   chan struct{} // a token: the status may have changed
	resync chan struct{} // a token: what was read may not be what is there
	events *rate.Limiter // entries about what was refused: whoever writes to etcd decides how many there could be

	mu     sync.Mutex
	view   view
	now    situation
	client *clientv3.Client // nil: not made yet
	twin   twin

	// Of the acting loop alone.
	failed failure
	told   string // the pointer that was refused last
}

// New checks the configuration and looks at what is kept; it dials nothing.
func New(cfg Config) (*Agent, error) {
	if err := errors.Join(fleet.ValidName(cfg.Fleet), fleet.ValidName(cfg.Node), cfg.Trust.Check()); err != nil {
		return nil, err
	}
	for _, c := range cfg.Channels {
		if err := fleet.ValidName(c); err != nil {
			return nil, err
		}
	}
	if cfg.Channel != "" {
		if err := fleet.ValidName(cfg.Channel); err != nil {
			return nil, err
		}
	}
	cfg.Timing.fill()
	if cfg.HTTP == nil {
		cfg.HTTP = http.DefaultClient
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Reason == nil {
		cfg.Reason = func(error) string { return "" }
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return time.Now().Round(0) }
	}
	a := &Agent{
		cfg: cfg, layout: fleet.Layout{Fleet: cfg.Fleet}, log: cfg.Log.With("fleet", cfg.Fleet, "node", cfg.Node),
		act: make(chan struct{}, 1), tell: make(chan struct{}, 1), resync: make(chan struct{}, 1),
		events: rate.NewLimiter(rate.Every(10*time.Second), 10),
	}
	st, err := cfg.Host.State()
	if err != nil {
		return nil, err
	}
	a.view.channel = cfg.Channel
	if st.GetFleet() == cfg.Fleet && st.GetChannel() != "" {
		a.view.channel, a.view.clusterID, a.view.revision = st.GetChannel(), st.GetClusterId(), st.GetRevision()
	}
	a.view.problem = "etcd was not reached yet"
	a.look(st)
	return a, nil
}

// Run follows the channel until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { a.acting(ctx) })
	defer wg.Wait()
	client := a.dial(ctx)
	if client == nil {
		return
	}
	defer client.Close()
	a.mu.Lock()
	a.client = client
	a.mu.Unlock()
	wg.Go(func() { a.reporting(ctx, client) })
	a.following(ctx, client)
	wg.Wait()
}

// dial makes the client. Certificates that are not there yet may come.
func (a *Agent) dial(ctx context.Context) *clientv3.Client {
	for pause := a.backoff(); ; {
		client, err := a.cfg.Client()
		if err == nil {
			return client
		}
		a.disconnected(err)
		if !pause.wait(ctx) {
			return nil
		}
	}
}

// signal puts a token into a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause grows with every wait.
type pause struct{ next, most time.Duration }

func (a *Agent) backoff() pause { return pause{a.cfg.Timing.Backoff, a.cfg.Timing.BackoffMost} }

// wait sleeps for a time between half of what it is at and the whole; false when ctx has ended.
func (p *pause) wait(ctx context.Context) bool {
	d := p.next/2 + rand.N(p.next/2+1)
	p.next = min(2*p.next, p.most)
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// around is a time up to a quarter shorter or longer than d, so that nodes that were started together drift apart.
func around(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2+1) }
