package fleettest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
	"policyd.dev/policyd/store"
)

// TestWithoutEtcd: what was in force last is so before etcd is dialled, and a start does not wait for it.
func TestWithoutEtcd(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	n := startNode(t, p, "web-1")
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	n.stop()
	e.kill()
	began := time.Now()
	n.start()
	if err := n.is(fleet.Loaded, first); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the start took %v", took)
	}
	if info, err := n.st.Info(store.KindLandlockPolicy, "web"); err != nil || info.GetOrigin() != "stable@1" {
		t.Errorf("web: %v %v", info, err)
	}
	within(t, 5*time.Second, func() error {
		if s := n.agent.Status(); s.GetConnected() || s.GetConnection() == "" {
			return fmt.Errorf("status %v", s)
		}
		return nil
	})
	stays(t, 300*time.Millisecond, func() error { return n.is(fleet.Loaded, first) })
	e.start()
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	n.becomes(fleet.Loaded, second)
}

// TestEtcdKilled: an etcd that goes away for a while is found again, with what has happened since, and so is the lease.
func TestEtcdKilled(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	n := startNode(t, p, "web-1")
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	within(t, 5*time.Second, func() error { return p.says("web-1", fleet.Loaded, first) })
	for range 2 {
		e.kill()
		within(t, 10*time.Second, func() error {
			if s := n.agent.Status(); s.GetConnected() {
				return errors.New("it says that etcd is heard")
			}
			return nil
		})
		if err := n.is(fleet.Loaded, first); err != nil {
			t.Error(err)
		}
		e.start()
		within(t, 15*time.Second, func() error { return p.says("web-1", fleet.Loaded, first) })
	}
	// For long: ten times the longest pause of this agent, and half an hour on its clock.
	e.kill()
	stays(t, 3*time.Second, func() error {
		n.skew.Add(int64(10 * time.Second))
		return n.is(fleet.Loaded, first)
	})
	e.start()
	within(t, 15*time.Second, func() error { return p.says("web-1", fleet.Loaded, first) })
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	n.becomes(fleet.Loaded, second)
}

// rolledOutMeanwhile rolls two bundles out, the first of them in steps, while nobody looks, and has etcd forget the steps.
func (p *publisher) rolledOutMeanwhile(first string) (last string) {
	p.t.Helper()
	second := p.publish(webPolicy("web", "/srv/two"))
	for _, percent := range []int{100, 500, 2500, fleet.Full} {
		p.put("stable", p.sign(p.pointer(second, first, percent)))
	}
	last = p.publish(webPolicy("web", "/srv/three"))
	p.rollOut(last)
	compact(p.t, p.store.Client)
	return last
}

// others writes what has nothing to do with a fleet.
func (p *publisher) others(count int) {
	p.t.Helper()
	for i := range count {
		if _, err := p.store.Client.Put(p.t.Context(), "/else", fmt.Sprint(i)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestAwayForTheRollout: a node that was off for a whole rollout, while etcd has forgotten its steps, has the end at once.
func TestAwayForTheRollout(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	n.stop()
	within(t, 5*time.Second, func() error {
		if s, last := p.status("web-1"), p.last("web-1"); s != nil || last == nil || last.LoadedDigest != first {
			return fmt.Errorf("after its end the status is %+v, the last one %+v", s, last)
		}
		return nil
	})
	third := p.rolledOutMeanwhile(first)
	n.start()
	n.becomes(fleet.Loaded, third)
	if n.counted.activations.Load() != 1 {
		t.Errorf("%d activations for one that counts", n.counted.activations.Load())
	}
}

// TestCompactedWatch: a watcher that could not read for so long that etcd has forgotten what comes next reads anew.
func TestCompactedWatch(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	line := newRelay(t, e.client)
	n := newNode(t, p, "web-1")
	n.endpoint = kv.Endpoint{URLs: []string{"http://" + line.addr}}
	n.start()
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	line.cut()
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	p.others(50)
	compact(t, p.store.Client)
	if err := n.is(fleet.Loaded, first); err != nil {
		t.Error(err)
	}
	line.mend()
	n.becomes(fleet.Loaded, second)
	third := p.publish(webPolicy("web", "/srv/three"))
	p.rollOut(third)
	n.becomes(fleet.Loaded, third)
}

// TestOldBackup: etcd comes back as it was before the last rollouts. No node goes back with it; the next pointer with a
// number above the last is taken, whoever made it with the keys.
func TestOldBackup(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	n := startNode(t, p, "web-1")
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	backup := e.backup()
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	p.others(20) // the backup is far behind
	n.becomes(fleet.Loaded, second)
	e.restore(backup)
	within(t, 20*time.Second, func() error {
		s := n.agent.Status()
		if s.GetState() != string(fleet.Failed) || s.GetLoadedDigest() != second || s.GetDesiredSeq() != 0 {
			return fmt.Errorf("status %v", s)
		}
		return nil
	})
	within(t, 10*time.Second, func() error {
		if s := p.status("web-1"); s == nil || s.Code != "OLDER_SEQUENCE" {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	third := p.publish(webPolicy("web", "/srv/three"))
	p.rollOut(third)
	n.becomes(fleet.Loaded, third)
}

// TestAnotherCluster: under the address of etcd there is another one, with less in it.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	one, p := setUp(t)
	two := newEtcd(t)
	line := newRelay(t, one.client)
	n := newNode(t, p, "web-1")
	n.endpoint = kv.Endpoint{URLs: []string{"http://" + line.addr}}
	n.start()
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	before, err := n.st.FleetState()
	if err != nil {
		t.Fatal(err)
	}
	two.start()
	q := newPublisher(t, two.dial(t, nil))
	q.content, q.rollout, q.seq = p.content, p.rollout, p.seq
	second := q.publish(webPolicy("web", "/srv/two"))
	line.redirect(two.client)
	n.becomes(fleet.Pending, first) // it has no pointer; what is in force stays
	q.rollOut(second)
	n.becomes(fleet.Loaded, second)
	if st, err := n.st.FleetState(); err != nil || st.GetClusterId() == before.GetClusterId() {
		t.Errorf("state %v %v", st, err)
	}
	within(t, 10*time.Second, func() error { return q.says("web-1", fleet.Loaded, second) })
}

// TestPartitionedMember: nothing comes any more and nothing is closed; the agent says so and finds back.
func TestPartitionedMember(t *testing.T) {
	t.Parallel()
	e, p := setUp(t)
	line := newRelay(t, e.client)
	n := newNode(t, p, "web-1")
	n.endpoint = kv.Endpoint{URLs: []string{"http://" + line.addr}}
	n.start()
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	line.freeze() // packets go nowhere, nothing is closed
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	within(t, 15*time.Second, func() error {
		if s := n.agent.Status(); s.GetConnected() {
			return errors.New("it says that etcd is heard")
		}
		return nil
	})
	within(t, 10*time.Second, func() error { // its lease ends, what it said last stays
		if s, last := p.status("web-1"), p.last("web-1"); s != nil || last == nil {
			return fmt.Errorf("status %+v, last %+v", s, last)
		}
		return nil
	})
	if err := n.is(fleet.Loaded, first); err != nil {
		t.Error(err)
	}
	line.mend()
	n.becomes(fleet.Loaded, second)
	within(t, 15*time.Second, func() error { return p.says("web-1", fleet.Loaded, second) })
}

// TestLostLeader: a member that has lost most of the others knows no leader. It would serve what it has; the agent does not
// take it for what is there, says so, and goes on with another member or when there is a leader again.
func TestLostLeader(t *testing.T) {
	t.Parallel()
	members := startCluster(t, 3)
	p := newPublisher(t, members[0].dial(t, nil))
	alone := newNode(t, p, "web-1") // hears the first member only
	some := newNode(t, p, "web-2")
	some.endpoint = kv.Endpoint{URLs: []string{members[0].url(), members[1].url(), members[2].url()}}
	alone.start()
	some.start()
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	alone.becomes(fleet.Loaded, first)
	some.becomes(fleet.Loaded, first)

	// One of three is gone: there is a leader.
	members[2].kill()
	writable := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.store.Client.Put(ctx, "/else", "x")
		return err
	}
	within(t, 20*time.Second, writable)
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	alone.becomes(fleet.Loaded, second)
	some.becomes(fleet.Loaded, second)

	// Two of three: there is none, though the one that is left answers.
	members[1].kill()
	for _, n := range []*node{alone, some} {
		within(t, 30*time.Second, func() error {
			if s := n.agent.Status(); s.GetConnected() {
				return fmt.Errorf("%s says that etcd is heard", n.name)
			}
			return n.is(fleet.Loaded, second)
		})
	}
	members[1].start()
	within(t, 20*time.Second, writable)
	third := p.publish(webPolicy("web", "/srv/three"))
	p.rollOut(third)
	alone.becomes(fleet.Loaded, third)
	some.becomes(fleet.Loaded, third)
}
