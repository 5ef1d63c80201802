package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/fleet"
)

// view is what etcd was last seen to hold for this node. Values are as they are there: nothing is verified yet.
type view struct {
	synced    bool // it was read at least once since the start
	channel   string
	pointer   []byte            // nil: the channel has none
	spec      []byte            // nil: no admin has written one
	holds     map[string][]byte // of the fleet and of the channel, by key
	clusterID uint64
	revision  int64
	connected bool
	problem   string // why not
	syncedAt  time.Time
	moved     chan struct{} // closed when what a step acts on is not so any more
}

// says tells whether two views are one for a step.
func (v *view) says(as view) bool {
	return v.channel == as.channel && bytes.Equal(v.pointer, as.pointer) && bytes.Equal(v.spec, as.spec) && maps.EqualFunc(v.holds, as.holds, bytes.Equal)
}

// follows takes the place of the view before; a step that acts on that one hears of it.
func (v *view) follows(was view) {
	v.moved = was.moved
	if v.moved != nil && v.says(was) {
		return
	}
	if v.moved != nil {
		close(v.moved)
	}
	v.moved = make(chan struct{})
}

// Reasons to begin anew that are not errors.
var (
	errAnew  = errors.New("read again")
	errOther = errors.New("another cluster answers, or one that was restored from a backup")
)

// following reads and watches until ctx ends.
func (a *Agent) following(ctx context.Context, client *clientv3.Client) {
	p := a.backoff()
	for {
		began := time.Now()
		err := a.follow(ctx, client)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 2*a.cfg.Timing.BackoffMost {
			p = a.backoff()
		}
		switch {
		case errors.Is(err, errAnew):
			p = a.backoff()
			continue
		case errors.Is(err, errOther):
			a.log.Warn("everything is read again; no pointer older than the one this node has had is taken", "reason", err)
		default:
			a.disconnected(err)
		}
		if !p.wait(ctx) {
			return
		}
	}
}

// follow reads a snapshot and watches from the next revision on, until something is not as it should be. A watch that was
// compacted away is never resumed behind the gap: its events would be lost.
func (a *Agent) follow(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	select {
	case <-a.resync: // that is what is done now
	default:
	}
	v, err := a.snapshot(ctx, client)
	if err != nil {
		return err
	}
	a.see(v)
	merged := make(chan clientv3.WatchResponse)
	behind := make(chan struct{}, 1)
	for _, w := range a.watched(v.channel) {
		c := client.Watch(ctx, w.key, append(w.options, clientv3.WithRev(v.revision+1),
			clientv3.WithProgressNotify(), clientv3.WithCreatedNotify(), clientv3.WithFragment())...)
		go func() {
			last := v.revision // the client goes on by itself where a watch breaks, also on a cluster that is behind
			for r := range c {
				if r.Header.Revision != 0 && r.Header.Revision < last {
					signal(behind)
				}
				last = max(last, r.Header.Revision)
				select {
				case merged <- r:
				case <-ctx.Done():
				}
			}
			select { // the channel ends with ctx, or after a response that says why
			case merged <- clientv3.WatchResponse{Canceled: true}:
			case <-ctx.Done():
			}
		}()
	}
	relist := time.NewTimer(around(a.cfg.Timing.Relist))
	defer relist.Stop()
	ask := time.NewTicker(around(a.cfg.Timing.Progress))
	defer ask.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-relist.C:
			return errAnew
		case <-a.resync:
			return errAnew
		case <-behind:
			return errOther
		case <-ask.C:
			if silent := time.Since(heard); silent > 3*a.cfg.Timing.Progress {
				return fmt.Errorf("etcd has not answered for %v", silent.Round(time.Second))
			}
			asked, done := context.WithTimeout(ctx, a.cfg.Timing.Request)
			err := client.RequestProgress(asked) // the answer comes on the watch; an error shows as silence
			done()
			if err != nil {
				a.log.Debug("no answer to how far the watch is", "error", err)
			}
		case r := <-merged:
			heard = time.Now()
			if err := r.Err(); err != nil {
				return err // compacted, no leader, not allowed any more
			}
			if r.Canceled {
				return errors.New("the watch has ended")
			}
			if id := r.Header.ClusterId; id != 0 && id != v.clusterID {
				return errOther
			}
			if a.take(r.Events) {
				return errAnew
			}
		}
	}
}

// watched are the keys a node looks at. Blobs are not among them: they are fetched once, by name.
func (a *Agent) watched(channel string) (list []watchedKey) {
	list = append(list, watchedKey{key: a.layout.Spec(a.cfg.Node)})
	if channel != "" {
		list = append(list, watchedKey{key: a.layout.Channel(channel)})
	}
	return append(list, watchedKey{a.layout.Halt(""), []clientv3.OpOption{clientv3.WithPrefix()}})
}

type watchedKey struct {
	key     string
	options []clientv3.OpOption
}

// snapshot reads all of a node's keys as of one revision, after whatever was acknowledged before (a linearizable read). The
// channel is what the Spec read with it says.
func (a *Agent) snapshot(ctx context.Context, client *clientv3.Client) (view, error) {
	a.mu.Lock()
	channel := a.view.channel
	a.mu.Unlock()
	for range 3 {
		v, err := a.snapshotOf(ctx, client, channel)
		if err != nil || v.channel == channel {
			return v, err
		}
		channel = v.channel
	}
	return view{}, errors.New("the node's channel changes while it is read")
}

// snapshotOf reads the pointer of a channel. The view's channel may be another: then its pointer is not the one wanted.
func (a *Agent) snapshotOf(ctx context.Context, client *clientv3.Client, channel string) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.Request)
	defer cancel()
	// Each by its name: what else somebody puts behind them must not cost this host its memory.
	ops := []clientv3.Op{clientv3.OpGet(a.layout.Spec(a.cfg.Node)), clientv3.OpGet(a.layout.Halt(""))}
	if channel != "" {
		ops = append(ops, clientv3.OpGet(a.layout.Channel(channel)), clientv3.OpGet(a.layout.Halt(channel)))
	}
	r, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return view{}, err
	}
	v := view{synced: true, channel: channel, holds: map[string][]byte{}, clusterID: r.Header.ClusterId, revision: r.Header.Revision, connected: true, syncedAt: a.cfg.Now()}
	for _, part := range r.Responses {
		for _, kv := range part.GetResponseRange().GetKvs() {
			a.put(&v, string(kv.Key), append([]byte{}, kv.Value...)) // not nil: a hold without a word holds, too
		}
	}
	v.channel = a.channelOf(v.spec)
	return v, nil
}

// channelOf is the channel that a Spec says, the configuration's where there is none. One that cannot be read changes
// nothing.
func (a *Agent) channelOf(spec []byte) string {
	if spec == nil {
		return a.cfg.Channel
	}
	var s fleet.Spec
	if err := fleet.Unmarshal(spec, &s); err != nil {
		a.log.Error("the node's spec cannot be read; the channel stays", "error", err)
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.view.channel
	}
	return s.Channel
}

// put sets one key of a view; value nil: it is gone. It tells whether the key matters.
func (a *Agent) put(v *view, key string, value []byte) bool {
	if value != nil {
		value = bytes.Clone(value)
	}
	switch key {
	case a.layout.Spec(a.cfg.Node):
		v.spec = value
	case a.layout.Channel(v.channel):
		v.pointer = value
	case a.layout.Halt(""), a.layout.Halt(v.channel):
		if value == nil {
			delete(v.holds, key)
		} else {
			v.holds[key] = value
		}
	default:
		return false
	}
	return true
}

// see takes a whole view.
func (a *Agent) see(v view) {
	a.mu.Lock()
	was := a.view
	v.follows(was)
	a.view = v
	a.mu.Unlock()
	if was.clusterID != 0 && (v.clusterID != was.clusterID || v.revision < was.revision) {
		a.log.Warn("etcd is another cluster than before, or was restored from a backup; signed sequence numbers decide what is newer",
			"revision", v.revision, "revision_before", was.revision)
	}
	if !was.connected {
		a.log.Info("etcd answers", "revision", v.revision, "channel", v.channel)
	}
	signal(a.act)
	signal(a.tell)
}

// take puts events into the view. anew: the node's channel has changed, and another pointer is wanted.
func (a *Agent) take(events []*clientv3.Event) (anew bool) {
	if len(events) == 0 {
		return false
	}
	a.mu.Lock()
	v := a.view
	v.holds = maps.Clone(v.holds) // the acting loop may be reading the old ones
	matters := false
	for _, e := range events {
		var value []byte
		if e.Type == clientv3.EventTypePut {
			value = append([]byte{}, e.Kv.Value...)
		}
		matters = a.put(&v, string(e.Kv.Key), value) || matters
		v.revision = max(v.revision, e.Kv.ModRevision)
	}
	spec, channel := v.spec, v.channel
	v.follows(a.view)
	a.view = v
	a.mu.Unlock()
	if matters {
		signal(a.act)
	}
	return a.channelOf(spec) != channel
}

// at is where the last read of etcd ended.
func (a *Agent) at() (clusterID uint64, revision int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view.clusterID, a.view.revision
}

// answered looks at the header of a write: another cluster, or a revision behind one that was read before the write was
// sent, means that what was read is not what is there.
func (a *Agent) answered(clusterID uint64, revision int64, h *etcdserverpb.ResponseHeader) {
	if clusterID != 0 && (h.GetClusterId() != clusterID || h.GetRevision() < revision) {
		signal(a.resync)
	}
}

// disconnected notes why etcd is not heard.
func (a *Agent) disconnected(err error) {
	text := err.Error()
	a.mu.Lock()
	changed := a.view.connected || a.view.problem != text
	a.view.connected, a.view.problem = false, text
	a.mu.Unlock()
	if changed {
		a.log.Warn("etcd is not heard; what is in force stays", "error", err)
	}
	signal(a.tell)
}
