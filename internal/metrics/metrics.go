package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"policyd.dev/policyd/internal/buildinfo"
)

// Metrics is what one policyd counts. A nil one takes everything and counts nothing.
type Metrics struct {
	registry *prometheus.Registry
	counters map[string]*prometheus.CounterVec
	times    map[string]*prometheus.HistogramVec
	gauges   map[string]*prometheus.GaugeVec
	state    *stateCollector
}

// New makes metrics at zero.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		counters: map[string]*prometheus.CounterVec{}, times: map[string]*prometheus.HistogramVec{}, gauges: map[string]*prometheus.GaugeVec{},
		state: newStateCollector(),
	}
	for _, d := range table {
		if m.state.has(d.Name) {
			continue // looked up at each scrape
		}
		switch d.Kind {
		case Counter:
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.labelNames())
			m.counters[d.Name] = v
			m.registry.MustRegister(v)
		case Gauge:
			v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.labelNames())
			m.gauges[d.Name] = v
			m.registry.MustRegister(v)
		case Histogram:
			v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.labelNames())
			m.times[d.Name] = v
			m.registry.MustRegister(v)
		}
	}
	m.registry.MustRegister(m.state, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	m.gauges[buildInfo].WithLabelValues(buildinfo.Version, runtime.Version()).Set(1)
	m.gauges[reloadOK].WithLabelValues().Set(1)
	m.gauges[reloadTime].WithLabelValues().SetToCurrentTime()
	// From zero on: rate() does not see the first increment of a series that was not there.
	for name, values := range map[string][]string{
		starts:       {howAttached, howDetached},
		profileAsked: {answerProfile, answerDegraded, answerNotModified, answerNoBinding, answerRefused},
		profileFrom:  {FromMemory, FromStore, FromCompiler, FromNowhere},
		reloads:      {resultOK, resultError},
	} {
		for _, v := range values {
			m.counters[name].WithLabelValues(v)
		}
	}
	m.counters[startsDegraded].WithLabelValues()
	m.counters[fleetHalts].WithLabelValues()
	m.times[startDuration].WithLabelValues()
	m.times[compileTime].WithLabelValues()
	return m
}

const (
	resultOK    = "ok"
	resultError = "error"
)

// Profile counts a profile that was needed and came from there; took is how long the compiler worked.
func (m *Metrics) Profile(from string, took time.Duration) {
	if m == nil {
		return
	}
	m.counters[profileFrom].WithLabelValues(from).Inc()
	if from == FromCompiler {
		m.times[compileTime].WithLabelValues().Observe(took.Seconds())
	}
}

// RolloutHalted counts a rollout of the fleet that this host has halted.
func (m *Metrics) RolloutHalted() {
	if m != nil {
		m.counters[fleetHalts].WithLabelValues().Inc()
	}
}

// Reloaded counts a reload of the configuration. With an error the one before stays in force.
func (m *Metrics) Reloaded(err error) {
	switch {
	case m == nil:
	case err != nil:
		m.counters[reloads].WithLabelValues(resultError).Inc()
		m.gauges[reloadOK].WithLabelValues().Set(0)
	default:
		m.counters[reloads].WithLabelValues(resultOK).Inc()
		m.gauges[reloadOK].WithLabelValues().Set(1)
		m.gauges[reloadTime].WithLabelValues().SetToCurrentTime()
	}
}
