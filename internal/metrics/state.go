package metrics

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what a scrape looks up. A part that is nil could not be read.
type State struct {
	Ready       bool
	LandlockABI int
	Store       *StoreState
	Sandboxes   *SandboxState
	Smack       *SmackState
	// Fleet is nil at a host that follows none.
	Fleet *FleetState
}

// FleetState is where this node stands in its fleet.
type FleetState struct {
	State           string // of fleetStates
	Connected       bool
	Desired, Loaded uint64
	Expiry          time.Time // zero: not known
}

// StoreState is the store's.
type StoreState struct {
	Documents                             map[string]uint64 // by kind
	Versions, LogEntries                  uint64
	SizeBytes, FreeBytes, CommittedWrites uint64
}

// SandboxState counts sandboxes alive.
type SandboxState struct{ Alive, Degraded, Outdated int }

// SmackState is that of smackfs.
type SmackState struct {
	Available, Loaded, Failed         bool
	Drift, Own, Rules, Labels, Budget uint64
}

// fleetStates are internal/fleet's.
var fleetStates = []string{"Pending", "Compiling", "Loaded", "Degraded", "Failed", "Stale", "Skipped", "Halted"}

// stateTimeout bounds what a scrape waits for: somebody may be loading a large policy.
const stateTimeout = 5 * time.Second

// Read sets how the state is found. Until then, and at a policyd without one, it is left out.
func (m *Metrics) Read(state func(context.Context) State) {
	if m != nil {
		m.state.read.Store(&state)
	}
}

// stateCollector asks for the state at each scrape.
type stateCollector struct {
	read atomic.Pointer[func(context.Context) State]
	desc map[string]*prometheus.Desc
}

func newStateCollector() *stateCollector {
	c := &stateCollector{desc: map[string]*prometheus.Desc{}}
	for _, name := range []string{
		ready, sandboxes, degraded, outdated, documents, versions, logEntries, storeSize, storeFree, storeCommits,
		landlockABI, smackAvailable, smackLoaded, smackFailed, smackDrift, smackRules, smackLabels, smackBudget, readable,
		fleetState, fleetConnected, fleetDesired, fleetLoaded, fleetExpiry,
	} {
		c.desc[name] = defined(name).desc()
	}
	return c
}

func (c *stateCollector) has(name string) bool { return c.desc[name] != nil }

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.desc {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	read := c.read.Load()
	if read == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	st := (*read)(ctx)
	put := func(name string, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if name == storeCommits {
			kind = prometheus.CounterValue
		}
		out <- prometheus.MustNewConstMetric(c.desc[name], kind, value, labels...)
	}
	put(ready, number(st.Ready))
	put(landlockABI, float64(st.LandlockABI))
	put(readable, number(st.Store != nil), partStore)
	put(readable, number(st.Sandboxes != nil), partSandboxes)
	put(readable, number(st.Smack != nil), partSmack)
	if s := st.Store; s != nil {
		for _, kind := range slices.Sorted(maps.Keys(s.Documents)) {
			put(documents, float64(s.Documents[kind]), kind)
		}
		put(versions, float64(s.Versions))
		put(logEntries, float64(s.LogEntries))
		put(storeSize, float64(s.SizeBytes))
		put(storeFree, float64(s.FreeBytes))
		put(storeCommits, float64(s.CommittedWrites))
	}
	if s := st.Sandboxes; s != nil {
		put(sandboxes, float64(s.Alive))
		put(degraded, float64(s.Degraded))
		put(outdated, float64(s.Outdated))
	}
	if s := st.Smack; s != nil {
		put(smackAvailable, number(s.Available))
		put(smackLoaded, number(s.Loaded))
		put(smackFailed, number(s.Failed))
		put(smackDrift, float64(s.Drift))
		put(smackRules, float64(s.Own), byPolicyd)
		put(smackRules, float64(s.Rules-min(s.Own, s.Rules)), byOthers)
		put(smackLabels, float64(s.Labels))
		put(smackBudget, float64(s.Budget))
	}
	if s := st.Fleet; s != nil {
		for _, state := range fleetStates {
			put(fleetState, number(state == s.State), state)
		}
		put(fleetConnected, number(s.Connected))
		put(fleetDesired, float64(s.Desired))
		put(fleetLoaded, float64(s.Loaded))
		if !s.Expiry.IsZero() {
			put(fleetExpiry, float64(s.Expiry.Unix()))
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
