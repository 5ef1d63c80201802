package fleettest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"policyd.dev/policyd/internal/fleet/controller"
)

// BenchmarkRollout is a change of every node's bundle at once: from its making to the last status that says Loaded. The
// metrics are etcd's own counters over the number of nodes, without what the test reads of the nodes.
func BenchmarkRollout(b *testing.B) {
	for _, s := range []struct {
		name string
		shape
	}{
		{"nodes=50", shape{nodes: 50}},
		{"nodes=100", shape{nodes: 100}},
		{"nodes=200", shape{nodes: 200}},
		{"nodes=500", shape{nodes: 500}},
		{"nodes=500/all", shape{nodes: 500, all: true}},
		{"nodes=100/wire", shape{nodes: 100, wire: true}},
		{"nodes=100/tls", shape{nodes: 100, tls: true, wire: true}},
		{"nodes=20/policies=1000", shape{nodes: 20, policies: 1000}},
	} {
		b.Run(s.name, func(b *testing.B) {
			c := newScene(b, s.shape)
			var cost counters
			var medians []time.Duration
			cpu, up, down := c.nodes.cpu(b), int64(0), int64(0)
			if c.relay != nil {
				up, down = c.relay.up.Load(), c.relay.down.Load()
			}
			rounds := 0
			for b.Loop() {
				after, of := c.rollOut(s.all)
				cost.add(of)
				medians = append(medians, after[len(after)/2])
				rounds++
			}
			each := 1 / float64(rounds*s.nodes)
			slices.Sort(medians)
			b.ReportMetric(medians[len(medians)/2].Seconds(), "s/median-node")
			b.ReportMetric(cost.requests*each, "requests/node")
			b.ReportMetric(cost.sent*each, "B-read/node")
			b.ReportMetric(cost.received*each, "B-written/node")
			b.ReportMetric(cost.cpu*1e6*each, "etcd-µs/node")
			b.ReportMetric((c.nodes.cpu(b)-cpu).Seconds()*1e6*each, "agent-µs/node")
			b.ReportMetric(cost.memory/(1<<20), "etcd-MiB")
			if c.relay != nil {
				b.ReportMetric(float64(c.relay.up.Load()-up)*each, "wire-B-written/node")
				b.ReportMetric(float64(c.relay.down.Load()-down)*each, "wire-B-read/node")
			}
		})
	}
}

// BenchmarkRest is 20 s in which nothing happens: signs of life of leases, questions how far watches are, statuses that
// are due. The metrics are of a node and minute.
func BenchmarkRest(b *testing.B) {
	for _, nodes := range []int{100, 500} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			c := newScene(b, shape{nodes: nodes, wire: true})
			before, cpu, began := c.e.counters(b), c.nodes.cpu(b), time.Now()
			up, down := c.relay.up.Load(), c.relay.down.Load()
			for b.Loop() {
				time.Sleep(20 * time.Second)
			}
			cost := c.e.counters(b).since(before)
			each := 1 / (float64(nodes) * time.Since(began).Minutes())
			b.ReportMetric(cost.requests*each, "requests/node-minute")
			b.ReportMetric(cost.sent*each, "B-read/node-minute")
			b.ReportMetric(cost.received*each, "B-written/node-minute")
			b.ReportMetric(cost.cpu*1e6*each, "etcd-µs/node-minute")
			b.ReportMetric((c.nodes.cpu(b)-cpu).Seconds()*1e6*each, "agent-µs/node-minute")
			b.ReportMetric(float64(c.relay.up.Load()-up)*each, "wire-B-written/node-minute")
			b.ReportMetric(float64(c.relay.down.Load()-down)*each, "wire-B-read/node-minute")
		})
	}
}

// BenchmarkReturn is etcd that was away for ten seconds: from its start to the last Loaded of the bundle that was published
// as soon as it answered.
func BenchmarkReturn(b *testing.B) {
	const nodes = 500
	c := newScene(b, shape{nodes: nodes})
	var cost counters
	rounds := 0
	for b.Loop() {
		b.StopTimer()
		c.e.kill()
		time.Sleep(10 * time.Second)
		b.StartTimer()
		c.e.start()
		began := time.Now()
		c.arrivals = c.p.arrivals()
		c.publish(false) // what they all missed
		c.arrivals.loaded(began, nodes, c.digest)
		cost.add(c.e.counters(b)) // of a new process
		rounds++
	}
	each := 1 / float64(rounds*nodes)
	b.ReportMetric(cost.requests*each, "requests/node")
	b.ReportMetric(cost.sent*each, "B-read/node")
	b.ReportMetric(cost.received*each, "B-written/node")
	b.ReportMetric(cost.cpu*1e6*each, "etcd-µs/node")
}

// BenchmarkController is one look of a controller at a channel under way: it reads every node and decides.
func BenchmarkController(b *testing.B) {
	for _, nodes := range []int{50, 500, 5000, 20000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			e := newEtcd(b)
			e.metrics = freeAddress(b)
			e.start()
			p := newPublisher(b, e.dial(b, nil))
			digest := p.publish(webPolicy("web", "/srv/one"))
			ptr := p.rollOut(digest)
			fill(b, p, nodes, digest)
			before := e.counters(b)
			rounds := 0
			for b.Loop() {
				list, err := p.store.Nodes(context.Background(), "stable")
				if err != nil || len(list) != nodes {
					b.Fatalf("%d nodes, %v", len(list), err)
				}
				d, _ := controller.Step(time.Now(), controller.View{Pointer: ptr, Nodes: list}, controller.Progress{})
				if d.Counts.Loaded != nodes {
					b.Fatalf("%+v", d)
				}
				rounds++
			}
			cost := e.counters(b).since(before)
			each := 1 / float64(rounds*nodes)
			b.ReportMetric(cost.sent*each, "B-read/node")
			b.ReportMetric(cost.cpu*1e6*each, "etcd-µs/node")
			b.ReportMetric(cost.memory/(1<<20), "etcd-MiB")
		})
	}
}
