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
	c.publish(false)
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

// rollOut publishes, waits until every node has it, and gives how long after the begin each told so, in order, and what it
// has cost etcd but for what the test itself has read.
func (c *scene) rollOut(all bool) ([]time.Duration, counters) {
	c.t.Helper()
	before, read, began := c.e.counters(c.t), c.arrivals.bytes, time.Now()
	c.publish(all)
	after := c.arrivals.loaded(began, c.nodes.size, c.digest)
	cost := c.e.counters(c.t).since(before)
	cost.sent -= float64(c.arrivals.bytes - read)
	return after, cost
}

// TestCrowd: what a rollout costs etcd for each node is bounded, and is little beside the bundle. How long it takes is
// for the benchmarks.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const nodes = 50
	c := newScene(t, shape{nodes: nodes})
	for _, all := range []bool{false, true} {
		began := time.Now()
		_, cost := c.rollOut(all)
		// The look before the change, the bundle, and two statuses, a third where this machine is slow; and what a node at
		// rest says in this time.
		if got, most := cost.requests/nodes, 5+8*time.Since(began).Minutes(); got > most {
			t.Errorf("a node makes %.1f requests for a rollout, at most %.1f", got, most)
		}
		if got, most := cost.sent/nodes, float64(c.blob+4<<10); got < float64(c.blob) || got > most {
			t.Errorf("a node gets %.0f bytes for a bundle of %d, at most %.0f", got, c.blob, most)
		}
		if got := cost.received / nodes; got > 4<<10 {
			t.Errorf("a node sends %.0f bytes for a rollout", got)
		}
	}
}

// TestManyNodes: more records than are read at once are all read, those of a node that lie on both sides too.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	const nodes = 4000
	_, p := setUp(t)
	digest := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(digest)
	fill(t, p, nodes, digest)
	list, err := p.store.Nodes(t.Context(), "stable")
	if err != nil || len(list) != nodes {
		t.Fatalf("%d nodes, %v", len(list), err)
	}
	for i, n := range list {
		if !n.Alive || n.State() != fleet.Loaded || n.Spec.Labels["zone"] == "" || i > 0 && list[i-1].Name >= n.Name {
			t.Fatalf("%+v", n)
		}
	}
}
