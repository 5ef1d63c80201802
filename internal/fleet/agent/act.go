package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/store"
)

// situation is where the node stands.
type situation struct {
	state         fleet.State
	since         time.Time
	reason        string // in words, "" when all is well
	code          string // stable word of an error
	desiredSeq    uint64
	desiredDigest string
	loadedSeq     uint64
	loadedDigest  string
	activeSeq     uint64
	notAfter      time.Time
}

// failure is a bundle that could not be put into force. It is tried again later, at once with another pointer.
type failure struct {
	pointer, digest string
	err             error
	until           time.Time
	pause           time.Duration
}

// acting brings what is in force to what is there, whenever that may have changed.
func (a *Agent) acting(ctx context.Context) {
	look := time.NewTicker(a.cfg.Timing.Look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.act:
		case <-look.C: // the clock may have passed something
			signal(a.tell)
		}
		st, err := a.cfg.Host.State()
		if err == nil {
			err = a.step(ctx, st)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Error("what this node has in force cannot be read or written", "error", err)
			a.stand(situation{state: fleet.Failed, reason: err.Error(), code: a.cfg.Reason(err)})
		}
	}
}

// look tells the situation by what is kept alone, before etcd was read.
func (a *Agent) look(st *apiv1.FleetState) {
	s := situation{state: fleet.Pending, reason: "no bundle is in force yet, and etcd was not read yet", loadedDigest: st.GetDigest(), loadedSeq: st.GetActiveSeq(), activeSeq: st.GetActiveSeq()}
	if st.GetDigest() == "" || st.GetFleet() != a.cfg.Fleet {
		a.stand(s)
		return
	}
	s.state, s.reason = fleet.Loaded, ""
	p, err := fleet.OpenPointer(st.GetPointer(), a.cfg.Trust, a.cfg.Fleet, st.GetChannel())
	if err != nil {
		a.log.Warn("the pointer that is kept cannot be verified any more; what is in force stays", "error", err)
		s.reason = "the pointer that is kept cannot be verified any more: " + err.Error()
		a.stand(s)
		return
	}
	s.desiredSeq, s.notAfter = p.Seq, p.NotAfter
	if err := p.Expired(a.cfg.Now()); err != nil {
		s.state, s.reason, s.code = fleet.Stale, err.Error(), a.cfg.Reason(err)
	}
	a.stand(s)
}

// step is one look at what is there.
func (a *Agent) step(ctx context.Context, st *apiv1.FleetState) error {
	a.mu.Lock()
	v := a.view
	a.mu.Unlock()
	if !v.synced {
		a.look(st)
		return nil
	}
	s := situation{loadedDigest: st.GetDigest(), loadedSeq: st.GetActiveSeq(), activeSeq: st.GetActiveSeq()}
	if v.channel == "" {
		s.state, s.reason = fleet.Pending, "the node follows no channel: no admin has enrolled it, and its configuration names none"
		a.stand(s)
		return nil
	}
	if most := a.cfg.Channels; len(most) > 0 && !slices.Contains(most, v.channel) {
		err := fmt.Errorf("%w: an admin of the fleet has put this node into %s, its own configuration allows %s", errs.ErrWrongChannel, v.channel, strings.Join(most, ", "))
		s.state, s.reason, s.code = fleet.Failed, "refused: "+err.Error(), a.cfg.Reason(err)
		a.stand(s)
		return nil
	}
	if v.pointer == nil {
		s.state, s.reason = fleet.Pending, fmt.Sprintf("channel %s has no pointer", v.channel)
		a.stand(s)
		return nil
	}
	p, err := a.believe(v, st)
	if err != nil {
		a.refuse(ctx, v, err)
		s.state, s.reason, s.code = fleet.Failed, "refused: "+err.Error(), a.cfg.Reason(err)
		a.stand(s)
		return nil
	}
	if st, err = a.keep(ctx, v, st, p); err != nil {
		return err
	}
	return a.follows(ctx, v, st, p, s)
}

// believe verifies the pointer, and that it is not older than the newest that was accepted.
func (a *Agent) believe(v view, st *apiv1.FleetState) (*fleet.Pointer, error) {
	p, err := fleet.OpenPointer(v.pointer, a.cfg.Trust, a.cfg.Fleet, v.channel)
	if err != nil {
		return nil, err
	}
	had := st.GetAccepted()[a.cfg.Fleet+"/"+v.channel]
	id := had.GetPointerId()
	if id == "" {
		id = p.ID()
	}
	return p, p.Follows(had.GetSeq(), id)
}

// refuse writes into the log, once, what was not believed.
func (a *Agent) refuse(ctx context.Context, v view, cause error) {
	if what := string(v.pointer) + cause.Error(); a.told == what {
		return
	} else if a.told = what; !a.events.Allow() {
		return
	}
	a.log.Error("a pointer was refused; what is in force stays", "channel", v.channel, "error", cause)
	a.record(ctx, store.EventFleetRefuse, v.channel, cause, nil)
}

func (a *Agent) record(ctx context.Context, kind, channel string, cause error, more map[string]string) {
	e := &apiv1.Event{
		Type: kind, Actor: "fleet:" + a.cfg.Fleet + "/" + channel, Subject: channel, Message: cause.Error(),
		Attributes: map[string]string{"fleet": a.cfg.Fleet, "reason": a.cfg.Reason(cause)},
	}
	for k, v := range more {
		e.Attributes[k] = v
	}
	if err := a.cfg.Host.Tell(ctx, e); err != nil && ctx.Err() == nil {
		a.log.Error("it could not be written into the log", "type", kind, "error", err)
	}
}

// keep stores a pointer before it is acted on: should this end here, no older one is taken afterwards.
func (a *Agent) keep(ctx context.Context, v view, st *apiv1.FleetState, p *fleet.Pointer) (*apiv1.FleetState, error) {
	next := proto.CloneOf(st)
	next.Fleet, next.Channel, next.Seq, next.Pointer, next.PointerId = a.cfg.Fleet, v.channel, p.Seq, v.pointer, p.ID()
	same := proto.Equal(next, st)
	next.ClusterId, next.Revision = v.clusterID, v.revision
	if same && v.clusterID == st.GetClusterId() {
		return next, nil // a revision that rose is no reason to write
	}
	return next, a.cfg.Host.Keep(ctx, next)
}

// follows does what an accepted pointer wants of this node.
func (a *Agent) follows(ctx context.Context, v view, st *apiv1.FleetState, p *fleet.Pointer, s situation) error {
	var spec fleet.Spec
	if v.spec != nil {
		if err := fleet.Unmarshal(v.spec, &spec); err != nil {
			s.state, s.reason, s.code = fleet.Failed, "the node's spec: "+err.Error(), a.cfg.Reason(err)
			a.stand(s)
			return nil
		}
	}
	digest, reached, why := p.Desired(a.cfg.Node, spec.Labels)
	s.desiredSeq, s.desiredDigest, s.notAfter = p.Seq, digest, p.NotAfter
	if digest == st.GetDigest() {
		s.loadedSeq = p.Seq
	}
	held := halted(v.holds)
	expired := p.Expired(a.cfg.Now())
	switch {
	case digest == "":
		s.state, s.reason = fleet.Skipped, why
	case digest != st.GetDigest() && held != "":
		s.state, s.reason, s.code = fleet.Halted, held, a.cfg.Reason(errs.ErrHalted)
	case expired != nil:
		// Whoever can only hold back newer pointers must not be able to bring an old one into force.
		s.state, s.reason, s.code = fleet.Stale, expired.Error(), a.cfg.Reason(expired)
	case digest != st.GetDigest():
		return a.change(ctx, v, st, p, s, reached)
	default:
		a.failed = failure{}
		s.state = settled(reached)
		if !reached {
			s.reason = why
		}
	}
	a.stand(s)
	return nil
}

func settled(reached bool) fleet.State {
	if reached {
		return fleet.Loaded
	}
	return fleet.Skipped
}

// halted tells who keeps the nodes from activating anything, "" for nobody. A hold that cannot be read holds.
func halted(holds map[string][]byte) string {
	for key, raw := range holds {
		var h fleet.Hold
		if err := fleet.Unmarshal(raw, &h); err != nil {
			return fmt.Sprintf("%s cannot be read: %v", key[strings.LastIndex(key, "/pub/")+1:], err)
		}
		if h.Kind == fleet.HaltedAll {
			return fmt.Sprintf("halted by %s: %s", h.By, h.Why)
		}
	}
	return ""
}

// change puts the bundle that is wanted into force.
func (a *Agent) change(ctx context.Context, v view, st *apiv1.FleetState, p *fleet.Pointer, s situation, reached bool) error {
	if f := a.failed; f.pointer == p.ID() && f.digest == s.desiredDigest && a.cfg.Now().Before(f.until) {
		s.state, s.reason, s.code = fleet.Failed, f.err.Error(), a.cfg.Reason(f.err)
		a.stand(s)
		return nil
	}
	s.state = fleet.Compiling
	a.stand(s)
	err := a.activate(ctx, v, st, s.desiredDigest)
	if errors.Is(err, errAnew) {
		return nil // the next step sees it
	}
	var away *awayError
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.As(err, &away):
		s.state, s.reason = fleet.Pending, err.Error()
		a.later(ctx, a.cfg.Timing.Backoff)
	case err != nil:
		a.fail(ctx, st, p, s.desiredDigest, err)
		s.state, s.reason, s.code = fleet.Failed, err.Error(), a.cfg.Reason(err)
	default:
		a.failed = failure{}
		s.state, s.loadedDigest, s.loadedSeq, s.activeSeq = settled(reached), s.desiredDigest, p.Seq, p.Seq
		a.log.Info("a bundle is in force", "channel", p.Channel, "seq", p.Seq, "digest", s.desiredDigest)
	}
	a.stand(s)
	return nil
}

// still reads once more what is about to be acted on. Each key is watched apart, and a hold may be there though its event
// comes after that of a pointer behind it.
func (a *Agent) still(ctx context.Context, v view) error {
	client, err := a.connection()
	if err != nil {
		return err
	}
	now, err := a.snapshot(ctx, client)
	if err != nil {
		return &awayError{err}
	}
	if now.says(v) {
		return nil
	}
	if now.channel != v.channel {
		signal(a.resync)
	}
	a.see(now)
	return errAnew
}

// activate fetches, verifies, looks once more whether that is still wanted, and activates. Bytes may take minutes to come:
// news of the channel end that, and a hold that came meanwhile keeps the bundle from becoming active.
func (a *Agent) activate(ctx context.Context, v view, st *apiv1.FleetState, digest string) error {
	fetching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-v.moved:
			cancel(errAnew)
		case <-fetching.Done():
		}
	}()
	blob, m, b, err := a.fetch(fetching, digest)
	if err != nil && errors.Is(context.Cause(fetching), errAnew) {
		return errAnew
	}
	if err == nil {
		err = a.still(ctx, v)
	}
	if err != nil {
		return err
	}
	return a.cfg.Host.Activate(ctx, Activation{State: st, Digest: digest, Blob: blob, Manifest: m, Bundle: b})
}

// fail remembers a bundle that could not be put into force, and writes it into the log once for each pointer.
func (a *Agent) fail(ctx context.Context, st *apiv1.FleetState, p *fleet.Pointer, digest string, err error) {
	again := a.failed.pointer == p.ID() && a.failed.digest == digest
	f := failure{pointer: p.ID(), digest: digest, err: err, pause: a.cfg.Timing.BackoffMost}
	if again {
		f.pause = min(2*a.failed.pause, 30*a.cfg.Timing.BackoffMost)
	}
	f.until = a.cfg.Now().Add(around(f.pause))
	a.failed = f
	a.later(ctx, f.until.Sub(a.cfg.Now())+time.Millisecond)
	if again {
		return
	}
	a.log.Error("a bundle could not be put into force; what was in force stays", "channel", p.Channel, "seq", p.Seq, "digest", digest, "error", err)
	a.record(ctx, store.EventFleetFail, p.Channel, err, map[string]string{"seq": fmt.Sprint(p.Seq), "digest": digest, "kept": st.GetDigest()})
}

// later looks again after a time.
func (a *Agent) later(ctx context.Context, d time.Duration) {
	go func() {
		if sleep(ctx, d+rand.N(d/4+1)) {
			signal(a.act)
		}
	}()
}

// stand notes the situation.
func (a *Agent) stand(s situation) {
	a.mu.Lock()
	s.since = a.now.since
	if s.state != a.now.state || s.loadedDigest != a.now.loadedDigest || s.desiredDigest != a.now.desiredDigest {
		s.since = a.cfg.Now()
	}
	changed := s != a.now
	a.now = s
	a.mu.Unlock()
	if changed {
		signal(a.tell)
	}
}
