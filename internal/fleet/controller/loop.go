package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
)

// Config is a controller that runs until it is stopped.
type Config struct {
	Member
	// Interval between two looks; 5 s for 0. After one that took long the next waits
	// ten times as long as that, so that no fleet is too large to be looked at.
	Interval time.Duration
	// SessionTTL is after how long another one takes over from one that fell
	// silent, in whole seconds; 15 s for 0.
	SessionTTL time.Duration
	Log        *slog.Logger
	// Decided is told of every decision that differs from the one before, of
	// breaches above all: a counter and a page hang on it. It may be nil.
	Decided func(channel string, d Decision)
	// Leading is told when this one is elected, and when it no longer is. It may be nil.
	Leading func(bool)

	// Memory outlives the process. It may be nil: then this run's own is all there is.
	Memory Memory

	highest map[string]uint64 // sequence number seen of each channel
}

// Memory is the highest sequence number of each channel's verified pointers that
// this host has ever seen. A controller signs what follows on what it reads: whoever
// can write to etcd, with no key at all, could show an old pointer to one that has
// just begun and have it led past what nodes have had.
type Memory interface {
	Seen(channel string) (seq uint64, err error)
	Note(ctx context.Context, channel string, p *fleet.Pointer) error
}

// saw takes a verified pointer as the newest one; errs.ErrOlderSequence when it is not.
func (c *Config) saw(ctx context.Context, p *fleet.Pointer) error {
	highest := c.highest[p.Channel]
	if c.Memory != nil {
		seq, err := c.Memory.Seen(p.Channel)
		if err != nil {
			return err
		}
		highest = max(highest, seq)
	}
	if p.Seq < highest {
		return fmt.Errorf("%w: sequence %d, after %d: was etcd restored from a backup? A person's rollout takes a number above both (--seq)", errs.ErrOlderSequence, p.Seq, highest)
	}
	if c.Memory != nil && p.Seq > highest {
		if err := c.Memory.Note(ctx, p.Channel, p); err != nil {
			return err
		}
	}
	c.highest[p.Channel] = p.Seq
	return nil
}

// witness looks at the pointers of all channels from time to time, so that this
// host knows what it would follow on when it is elected.
func (c *Config) witness(ctx context.Context) {
	for {
		names, err := c.Store.Channels(ctx)
		for _, name := range names {
			ch, err := c.read(ctx, name)
			if err == nil {
				err = c.saw(ctx, ch.pointer)
			}
			if err != nil && ctx.Err() == nil {
				c.Log.Debug("fleet controller: not elected, looks at a channel", "channel", name, "error", err)
			}
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Debug("fleet controller: not elected, looks at channels", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(6 * c.Interval):
		}
	}
}

// Run stands for election and, when elected, takes every channel of the fleet
// from stage to stage, until ctx ends. It needs no etcd to begin with and goes on
// after any failure.
func Run(ctx context.Context, c Config) {
	if c.Interval == 0 {
		c.Interval = 5 * time.Second
	}
	if c.SessionTTL == 0 {
		c.SessionTTL = 15 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Decided == nil {
		c.Decided = func(string, Decision) {}
	}
	if c.Leading == nil {
		c.Leading = func(bool) {}
	}
	c.highest = map[string]uint64{}
	for ctx.Err() == nil {
		if err := c.stand(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("fleet controller: begins again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.Interval/2 + rand.N(c.Interval)):
		}
	}
}

// stand is one session: until elected, then until it is lost.
func (c *Config) stand(ctx context.Context) error {
	session, err := concurrency.NewSession(c.Store.Client, concurrency.WithTTL(int(c.SessionTTL/time.Second)), concurrency.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	defer session.Close()
	// Whatever is done as leader ends with the session.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	election := concurrency.NewElection(session, c.Store.Layout.Leader())
	watching, watched := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.witness(watching)
	}()
	err = election.Campaign(ctx, c.Name)
	watched()
	<-ended
	if err != nil {
		if err = kv.Error(err); errors.Is(err, errs.ErrNotAllowed) {
			return fmt.Errorf("campaign: %w; `policyctl fleet enroll NODE --controller` lets this node carry rollouts on", err)
		}
		return fmt.Errorf("campaign: %w", err)
	}
	c.Leading(true)
	defer c.Leading(false)
	c.Log.Info("fleet controller: elected", "fleet", c.Store.Layout.Fleet)
	defer func() {
		resign, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = election.Resign(resign) // or the session's end does it
	}()
	lead := clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev())
	told := map[string]string{}
	for {
		began := time.Now()
		if err := c.all(ctx, lead, told); err != nil {
			return err
		}
		took := time.Since(began)
		select {
		case <-ctx.Done():
			return errors.New("the session is over")
		case <-time.After(max(c.Interval-took, 10*took)):
		}
	}
}

// all looks at every channel once. A channel that cannot be judged does not keep
// the others from it.
func (c *Config) all(ctx context.Context, lead clientv3.Cmp, told map[string]string) error {
	names, err := c.Store.Channels(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		d, err := c.one(ctx, name, lead)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		text := string(d.Action) + d.Why
		if err != nil {
			text = err.Error()
		}
		if told[name] == text {
			continue
		}
		told[name] = text
		if err != nil {
			c.Log.Error("fleet controller: channel", "channel", name, "error", err)
			continue
		}
		level := slog.LevelInfo
		if d.Action == Halt {
			level = slog.LevelError
		}
		c.Log.Log(ctx, level, "fleet controller: "+string(d.Action), "channel", name, "why", d.Why, "percent", float64(d.Percent)/100,
			"reached", d.Counts.Reached, "loaded", d.Counts.Loaded, "failed", d.Counts.Failed)
		c.Decided(name, d)
	}
	return nil
}

// one decides on a channel and does it.
func (c *Config) one(ctx context.Context, name string, lead clientv3.Cmp) (Decision, error) {
	ch, err := c.read(ctx, name)
	if errors.Is(err, errs.ErrNotFound) {
		return Decision{Action: Wait}, nil // removed since it was listed
	}
	if err != nil {
		return Decision{}, err
	}
	if err := c.saw(ctx, ch.pointer); err != nil {
		return Decision{}, err
	}
	d, progress, err := c.step(ctx, ch)
	if err != nil {
		return d, err
	}
	switch d.Action {
	case Advance, Refresh:
		var next *fleet.Pointer
		if next, err = c.move(ctx, ch, d, progress, lead); err == nil {
			err = c.saw(ctx, next)
		}
		if errors.Is(err, errs.ErrVersionMismatch) || errors.Is(err, errs.ErrHalted) {
			return Decision{Action: Wait, Why: "somebody else was faster"}, nil
		}
	case Halt:
		err = c.halt(ctx, ch, d, progress, lead)
	case Held, Done:
		if ch.record.Progress.Done && ch.record.Progress.Seq == progress.Seq || d.Action == Held && ch.record.Decision.Action == Held {
			return d, nil // nothing new to leave
		}
		err = c.note(ctx, ch, d, progress, lead)
	default:
		err = c.note(ctx, ch, d, progress, lead)
	}
	return d, err
}
