package fleettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/controller"
	"policyd.dev/policyd/internal/fleet/kv"
)

// member is a controller or a person of a name, with the rollout key.
func (p *publisher) member(name string) controller.Member {
	return controller.Member{
		Store: p.store, Trust: p.trust(), Name: name, Now: time.Now,
		Signers: func() ([]note.Signer, error) { return []note.Signer{p.rollout.signer}, nil },
	}
}

// decisions are what controllers have said.
type decisions struct {
	mu   sync.Mutex
	list []controller.Decision
	log  strings.Builder
}

// Write takes lines of the log.
func (d *decisions) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(line)
}

// logged tells whether a line of the log has all of these.
func (d *decisions) logged(parts ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range strings.Lines(d.log.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

func (d *decisions) add(_ string, one controller.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, one)
}

func (d *decisions) count(a controller.Action) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.list {
		if one.Action == a {
			n++
		}
	}
	return n
}

// control starts a controller; stop ends it and waits.
func (p *publisher) control(name string, said *decisions) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		controller.Run(ctx, controller.Config{
			Member: p.member(name), Interval: 50 * time.Millisecond, SessionTTL: 2 * time.Second,
			Log: slog.New(slog.NewTextHandler(said, nil)), Decided: said.add,
		})
	}()
	stop = func() {
		cancel()
		<-ended
	}
	p.t.Cleanup(stop)
	return stop
}

// enroll writes the Specs of nodes.
func (p *publisher) enroll(nodes ...string) {
	p.t.Helper()
	for _, n := range nodes {
		if err := p.store.PutSpec(p.t.Context(), n, &fleet.Spec{Channel: "stable"}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// now is the channel's pointer, verified.
func (p *publisher) now() (*fleet.Pointer, *kv.Channel, error) {
	c, err := p.store.Channel(p.t.Context(), "stable")
	if err != nil {
		return nil, nil, err
	}
	ptr, err := fleet.OpenPointer(c.Signed, p.trust(), fleetName, "stable")
	return ptr, c, err
}

func (p *publisher) at(percent int) error {
	ptr, c, err := p.now()
	if err != nil {
		return err
	}
	if ptr.Rollout.Percent != percent {
		return fmt.Errorf("at %s (%s), want %s", fleet.PercentText(ptr.Rollout.Percent), c.Event, fleet.PercentText(percent))
	}
	return nil
}

// staged is a rollout in stages that starts at the first of them.
func (p *publisher) staged(digest, prev string, soak time.Duration, stages ...int) *fleet.Pointer {
	ptr := p.pointer(digest, prev, stages[0])
	ptr.Rollout.Stages, ptr.Rollout.Soak, ptr.Rollout.MinLoaded, ptr.Rollout.MaxFailed = stages, soak, fleet.Full, 0
	return ptr
}

// Two controllers, one elected, take a rollout through its stages; the leader
// goes in the middle and the other carries on.
func TestControllerThroughTheStages(t *testing.T) {
	_, p := setUp(t)
	old, digest := p.publish(webPolicy("web", "/srv/old")), p.publish(webPolicy("web", "/srv/new"))
	names := []string{"n1", "n2", "n3", "n4", "n5", "n6"}
	p.enroll(append(names, "away")...)
	var nodes []*node
	for _, n := range names {
		nodes = append(nodes, startNode(t, p, n))
	}
	p.rollOut(old)
	for _, n := range nodes {
		n.becomes(fleet.Loaded, old)
	}
	var said decisions
	stopFirst := p.control("c1", &said)
	within(t, 10*time.Second, func() error { return p.elected(p.store.Layout.Leader()) })
	p.control("c2", &said)

	began := time.Now()
	p.put("stable", p.sign(p.staged(digest, old, 300*time.Millisecond, 3000, 6000, fleet.Full)))
	within(t, 20*time.Second, func() error { return p.at(6000) })
	stopFirst()
	if !said.logged("controller: advance", "channel=stable", "percent=60 ") {
		t.Errorf("the log has no advance to 60 percent:\n%s", said.log.String())
	}
	within(t, 20*time.Second, func() error { return p.at(fleet.Full) })
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("two soaks of 300 ms were over in %v", took)
	}
	for _, n := range nodes {
		n.becomes(fleet.Loaded, digest)
	}
	within(t, 20*time.Second, func() error {
		_, c, err := p.now()
		if err != nil {
			return err
		}
		r, err := controller.ParseRecord(c.Event)
		if err == nil && r.Decision.Action != controller.Done {
			err = fmt.Errorf("%+v", r.Decision)
		}
		if err == nil && r.Decision.Counts.Away != 1 {
			err = fmt.Errorf("the node that is away is not told: %+v", r.Decision.Counts)
		}
		return err
	})
	ptr, _, err := p.now()
	if err != nil || ptr.Seq != p.seq+2 {
		t.Errorf("sequence %d, want %d: every stage once (%v)", ptr.Seq, p.seq+2, err)
	}
}

// elected tells whether anything stands under a prefix.
func (p *publisher) elected(prefix string) error {
	names, err := p.store.Client.Get(p.t.Context(), prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil && names.Count == 0 {
		err = errors.New("nobody is elected")
	}
	return err
}

// A bundle that no node can enforce is halted in its first stage: told once, and
// every other node still runs what it had. Only a person goes on.
func TestBreachHalts(t *testing.T) {
	_, p := setUp(t)
	old, digest := p.publish(webPolicy("web", "/srv/old")), p.publish(tooNew)
	names := []string{"n1", "n2", "n3", "n4"}
	p.enroll(names...)
	var nodes []*node
	for _, n := range names {
		nodes = append(nodes, startNode(t, p, n))
	}
	p.rollOut(old)
	for _, n := range nodes {
		n.becomes(fleet.Loaded, old)
	}
	var said decisions
	p.control("c1", &said)
	p.put("stable", p.sign(p.staged(digest, old, 0, 5000, fleet.Full)))
	within(t, 20*time.Second, func() error {
		_, c, err := p.now()
		if err == nil && (c.Hold == nil || !c.Hold.Gate || c.Hold.Kind != fleet.HaltedAll) {
			err = fmt.Errorf("hold %+v, %s", c.Hold, c.Event)
		}
		return err
	})
	stays(t, 300*time.Millisecond, func() error { return p.at(5000) })
	if n := said.count(controller.Halt); n != 1 {
		t.Errorf("the breach was told %d times", n)
	}
	for _, n := range nodes {
		within(t, 10*time.Second, func() error { return equal("in force on "+n.name, n.agent.Status().GetLoadedDigest(), old) })
	}
	// A person cannot go past it by advance, can by a rollback.
	person := p.member("anna")
	if _, _, err := person.Advance(t.Context(), "stable", true); !errors.Is(err, errs.ErrHalted) {
		t.Errorf("advance past a halt: %v", err)
	}
	_, c, err := p.now()
	if err != nil {
		t.Fatal(err)
	}
	back := p.pointer(old, old, fleet.Full)
	back.Seq = p.seq + 1
	if err := p.store.PutPointer(t.Context(), kv.Move{Channel: "stable", Signed: p.sign(back), After: c.ModRev, PastHold: true}); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.becomes(fleet.Loaded, old)
	}
}

// Whoever writes a pointer after a person's halt writes nothing, however fresh
// the look was.
func TestHoldWinsEveryRace(t *testing.T) {
	_, p := setUp(t)
	digest := p.publish(webPolicy("web", "/srv"))
	p.put("stable", p.sign(p.staged(digest, "", 0, 100, fleet.Full)))
	_, looked, err := p.now()
	if err != nil {
		t.Fatal(err)
	}
	next := func() kv.Move {
		ptr := p.pointer(digest, "", fleet.Full)
		return kv.Move{Channel: "stable", Signed: p.sign(ptr), After: looked.ModRev}
	}
	hold := &fleet.Hold{Kind: fleet.HaltedAll, By: "anna", At: time.Now()}
	for _, channel := range []string{"stable", ""} {
		if err := p.store.PutHold(t.Context(), channel, hold); err != nil {
			t.Fatal(err)
		}
		if err := p.store.PutPointer(t.Context(), next()); !errors.Is(err, errs.ErrHalted) {
			t.Errorf("hold of %q: %v", channel, err)
		}
		// A gate does not write over what a person said.
		if err := p.store.PutHold(t.Context(), channel, &fleet.Hold{Kind: fleet.HaltedAll, By: "c1", Gate: true}); !errors.Is(err, errs.ErrVersionMismatch) {
			t.Errorf("a gate over a person's hold: %v", err)
		}
		if channel == "" {
			m := next()
			m.PastHold = true
			if err := p.store.PutPointer(t.Context(), m); !errors.Is(err, errs.ErrHalted) {
				t.Errorf("a rollback past the halt of the whole fleet: %v", err)
			}
		}
		if err := p.store.Resume(t.Context(), channel, &fleet.Resumed{By: "anna"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.store.Resume(t.Context(), "stable", &fleet.Resumed{By: "anna"}); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a hold that is not there: %v", err)
	}
	if err := p.store.PutPointer(t.Context(), next()); err != nil {
		t.Fatal(err)
	}
	if err := p.store.PutPointer(t.Context(), next()); !errors.Is(err, errs.ErrVersionMismatch) {
		t.Errorf("a second move from one look: %v", err)
	}
}

// A fleet in which nothing happens does not grow stale: the controller signs the
// pointer again before its time is up.
func TestRefresh(t *testing.T) {
	_, p := setUp(t)
	digest := p.publish(webPolicy("web", "/srv"))
	ptr := p.pointer(digest, "", fleet.Full)
	ptr.NotAfter = ptr.Issued.Add(3 * time.Second)
	p.put("stable", p.sign(ptr))
	var said decisions
	p.control("c1", &said)
	within(t, 20*time.Second, func() error {
		now, _, err := p.now()
		if err == nil && (now.Seq == ptr.Seq || now.Digest != digest || !now.NotAfter.After(ptr.NotAfter)) {
			err = fmt.Errorf("still sequence %d until %v", now.Seq, now.NotAfter)
		}
		return err
	})
}

// memory is what a host remembers of channels.
type memory struct {
	mu   sync.Mutex
	seqs map[string]uint64
}

func (m *memory) Seen(channel string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seqs[channel], nil
}

func (m *memory) Note(_ context.Context, channel string, p *fleet.Pointer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seqs == nil {
		m.seqs = map[string]uint64{}
	}
	m.seqs[channel] = p.Seq
	return nil
}

// Somebody with all rights in etcd and no key puts an old pointer back, of a bundle that was rolled back, takes away what
// nodes have said and unseats the leader. No controller, neither the same one after a start nor another candidate, leads it
// on: its signatures would make nodes take it.
func TestControllerIsNoOracle(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	good, bad := p.publish(webPolicy("web", "/srv/good")), p.publish(webPolicy("web", "/"))
	n := startNode(t, p, "n1")
	var said decisions
	var memories [2]memory
	run := func(i int) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			controller.Run(ctx, controller.Config{
				Member: p.member(fmt.Sprint("c", i)), Interval: 20 * time.Millisecond, SessionTTL: 2 * time.Second, Memory: &memories[i],
				Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Decided: said.add,
			})
		}()
		stop = func() {
			cancel()
			<-ended
		}
		t.Cleanup(stop)
		return stop
	}
	first := run(0)
	second := run(1)
	old := p.sign(p.staged(bad, good, 0, 100, 2500, 5000, 7500, fleet.Full))
	p.rollOut(good)
	n.becomes(fleet.Loaded, good)
	for i := range memories {
		within(t, 10*time.Second, func() error {
			seq, _ := memories[i].Seen("stable")
			return equal("the number kept", seq, p.seq)
		})
	}
	first()
	second()
	ctx, l := t.Context(), p.store.Layout
	for _, prefix := range []string{l.Nodes(), l.Control()} {
		if _, err := p.store.Client.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
	p.put("stable", old)
	run(1)
	run(0)
	within(t, 10*time.Second, func() error { return p.elected(l.Leader()) })
	stays(t, 2*time.Second, func() error {
		ptr, _, err := p.now()
		if err == nil && ptr.Seq != 1 {
			err = fmt.Errorf("a controller has signed sequence %d of the old bundle at %s", ptr.Seq, fleet.PercentText(ptr.Rollout.Percent))
		}
		if s := n.agent.Status(); s.GetLoadedDigest() != good {
			err = errors.Join(err, fmt.Errorf("%v", s))
		}
		return err
	})
}
