package server

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"policyd.dev/policyd/internal/config"
)

// Names of the limits, as QuotaFailure tells them.
const (
	limitSandboxes = "sandboxes"
	limitStarts    = "starts_per_second"
	limitLogs      = "log_space"
)

// startRates holds one token bucket for each caller that started something lately.
type startRates struct {
	mu      sync.Mutex
	limit   rate.Limit
	burst   int
	buckets map[string]*rate.Limiter
	swept   time.Time
}

// sweepEvery is how often buckets that are full again, and so say nothing, are forgotten.
const sweepEvery = time.Minute

func (r *startRates) set(l config.Limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit, r.burst = rate.Limit(l.StartsPerSecond), l.StartBurst
	r.buckets = map[string]*rate.Limiter{}
}

// take uses one start of the caller's, or says which limit there is.
func (r *startRates) take(caller string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.swept) > sweepEvery {
		r.swept = now
		for name, b := range r.buckets {
			if b.TokensAt(now) >= float64(r.burst) {
				delete(r.buckets, name)
			}
		}
	}
	b := r.buckets[caller]
	if b == nil {
		b = rate.NewLimiter(r.limit, r.burst)
		r.buckets[caller] = b
	}
	if !b.AllowN(now, 1) {
		return limitReached(caller, limitStarts, "%s may start %g sandboxes a second, %d at once", caller, float64(r.limit), r.burst)
	}
	return nil
}
