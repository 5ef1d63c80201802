package fleettest

import (
	"fmt"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet"
)

// scene is a fleet of many nodes with a bundle in force, as measurements begin with it.
type scene struct {
	t        testing.TB
	e        *etcd
	p        *publisher
	nodes    *crowd
	arrivals *arrivals
	relay    *relay // nil: nodes are connected to etcd themselves
	policies int
	round    int
	digest   string
	blob     int // bytes of the bundle as it is in etcd
}

// shape is what differs between scenes.
type shape struct {
	nodes    int
	policies int  // of the bundle, 20 for 0
	all      bool // every policy changes from round to round; else one does
	wire     bool // the bytes on the line are counted
	tls      bool // with certificates, users and roles
}

func newScene(t testing.TB, s shape) *scene {
	t.Helper()
	c := &scene{t: t, policies: s.policies}
	if c.policies == 0 {
		c.policies = 20
	}
	var a *authority
	c.e = newEtcd(t)
	c.e.metrics = freeAddress(t)
	if s.tls {
		a = newAuthority(t)
		cert, key := a.issue("server")
		c.e.tls = &tlsFiles{cert: cert, key: key, ca: a.ca()}
	}
	c.e.start()
	config := crowdConfig{URL: c.e.url(), Nodes: s.nodes}
	if s.tls {
		c.p = newPublisher(t, as(t, c.e, a, "root").Client)
		config.Certificates = a.dir
	} else {
		c.p = newPublisher(t, c.e.dial(t, nil))
	}
	if s.wire {
		c.relay = newRelay(t, c.e.client)
		config.URL = c.e.scheme() + "://" + c.relay.addr
	}
	ctx := t.Context()
	if s.tls {
		if err := c.p.store.InitRoles(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i := range s.nodes {
		name := fmt.Sprint("n", i)
		if err := c.p.store.PutSpec(ctx, name, &fleet.Spec{Channel: "stable", Labels: map[string]string{"zone": fmt.Sprint("z", i%3)}}); err != nil {
			t.Fatal(err)
		}
		if s.tls {
			a.issue(name)
			if err := c.p.store.EnrollUser(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.tls {
		if err := c.p.store.EnableAuth(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.arrivals = c.p.arrivals()
	c.publish(true)
	c.nodes = startCrowd(t, c.p, config)
	c.arrivals.loaded(time.Now(), s.nodes, c.digest)
	time.Sleep(2 * time.Second) // what is left of the start
	return c
}

// publish makes and signs the next bundle, puts it into etcd and gives it to every node.
func (c *scene) publish(all bool) {
	c.t.Helper()
	c.round++
	var texts []string
	for i := range c.policies {
		path := "/srv/one"
		if all || i == 0 {
			path = fmt.Sprintf("/srv/%d", c.round)
		}
		texts = append(texts, webPolicy(fmt.Sprint("web-", i), path))
	}
	raw, digest := bundle(c.t, texts...)
	blob := c.p.blob(raw)
	c.p.putBlob(digest, blob)
	c.p.rollOut(digest)
	c.digest, c.blob = digest, len(blob)
}

// TestCrowd: what a rollout costs etcd for each node is bounded, and is little beside the bundle. How long it takes is
// for the benchmarks.
func TestCrowd(t *testing.T) {
	const nodes = 50
	c := newScene(t, shape{nodes: nodes})
	for _, all := range []bool{false, true} {
		before := c.e.counters(t)
		c.publish(all)
		c.arrivals.loaded(time.Now(), nodes, c.digest)
		cost := c.e.counters(t).since(before)
		// The look before the change, the bundle, and two statuses. The two more are for a lease's sign of life, or a
		// third status where this machine is slow.
		if got := cost.requests / nodes; got > 6 {
			t.Errorf("a node makes %.1f requests for a rollout", got)
		}
		if got, most := cost.sent/nodes, float64(c.blob+4<<10); got < float64(c.blob) || got > most {
			t.Errorf("a node gets %.0f bytes for a bundle of %d, at most %.0f", got, c.blob, most)
		}
		if got := cost.received / nodes; got > 4<<10 {
			t.Errorf("a node sends %.0f bytes for a rollout", got)
		}
	}
}
