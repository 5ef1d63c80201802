package fleettest

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/internal/fleet"
)

// hostileValues are what somebody with all rights in etcd may put under a key.
func hostileValues() map[string]string {
	return map[string]string{
		"empty":    "",
		"binary":   "\x00\xff\xfe\x1b[2J",
		"huge":     strings.Repeat("A", 1<<20),
		"deep":     strings.Repeat("[", 100_000),
		"types":    `{"channel":7,"labels":[1],"kind":{},"state":3}`,
		"null":     "null",
		"two":      `{"channel":"stable"}{"channel":"edge"}`,
		"a name":   `{"channel":"../../prod/pub"}`,
		"a kind":   `{"kind":"none"}`,
		"big note": "policyd.dev/fleet/pointer/v1\n" + strings.Repeat("x\n", 40_000) + "\n— rollout AAAA\n",
	}
}

// TestHostileValues: whatever stands under a node's keys, what is in force stays, the node says that something is wrong, and
// goes on as soon as it is right again.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := newNode(t, p, "web-1")
	n.endpoint.MostBytes = 8 << 20 // as policyd has it
	n.start()
	ctx, l, c := t.Context(), p.store.Layout, p.store.Client
	spec := `{"channel":"stable"}`
	put := func(key, value string) {
		t.Helper()
		if _, err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	put(l.Spec("web-1"), spec)
	first := p.publish(webPolicy("web", "/srv/one"))
	good := string(p.sign(p.pointer(first, "", fleet.Full)))
	put(l.Channel("stable"), good)
	n.becomes(fleet.Loaded, first)
	second := p.publish(webPolicy("web", "/srv/two"))

	for name, value := range hostileValues() {
		for key, right := range map[string]string{l.Spec("web-1"): spec, l.Channel("stable"): good} {
			put(key, value)
			within(t, 10*time.Second, func() error {
				if err := n.is(fleet.Failed, first); err != nil {
					return fmt.Errorf("%s under %s: %w", name, key, err)
				}
				return nil
			})
			put(key, right)
			n.becomes(fleet.Loaded, first)
		}
	}
	// A hold that cannot be read holds; what a bundle's key holds is no bundle.
	next := p.sign(p.pointer(second, first, fleet.Full))
	for name, value := range hostileValues() {
		put(l.Halt("stable"), value)
		put(l.Channel("stable"), string(next))
		n.stop()
		n.start() // what it reads is what it is told of
		if ch, err := p.store.Channel(ctx, "stable"); err != nil || len(ch.Holds()) != 1 {
			t.Errorf("%s: a person sees %+v %v", name, ch, err)
		}
		within(t, 10*time.Second, func() error {
			if err := n.is(fleet.Halted, first); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	if _, err := c.Delete(ctx, l.Pub()+"halt", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	n.becomes(fleet.Loaded, second)
	for name, value := range hostileValues() {
		_, digest := bundle(t, webPolicy("web", "/opt/"+strings.ReplaceAll(name, " ", "-")))
		put(l.Blob(digest), value)
		p.rollOut(digest)
		n.becomes(fleet.Failed, second)
	}
	// What stands beside a node's keys costs it nothing: more than it would take in one answer.
	n.stop()
	for i := range 12 {
		put(fmt.Sprintf("%s/x%d", l.Halt(""), i), strings.Repeat("A", 1<<20))
	}
	n.start()
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
}

// TestExtremePointers: numbers and dates at their ends are taken or refused, and neither ends an agent.
func TestExtremePointers(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	second := p.publish(webPolicy("web", "/srv/two"))
	stages := make([]int, 100)
	for i := range stages {
		stages[i] = 100 * (i + 1)
	}
	far := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*fleet.Pointer)
		state  fleet.State
	}{
		"for ever":             {func(q *fleet.Pointer) { q.NotAfter = far }, fleet.Loaded},
		"issued in the future": {func(q *fleet.Pointer) { q.Issued, q.NotAfter = far.Add(-time.Hour), far }, fleet.Loaded},
		"past":                 {func(q *fleet.Pointer) { q.Issued, q.NotAfter = time.Unix(0, 0).UTC(), time.Unix(1, 0).UTC() }, fleet.Stale},
		"a hundred stages":     {func(q *fleet.Pointer) { q.Rollout.Stages, q.Rollout.Percent = stages, 10000 }, fleet.Loaded},
	} {
		for _, digest := range []string{second, first} {
			q := p.pointer(digest, first, fleet.Full)
			c.change(q)
			p.put("stable", p.sign(q))
			within(t, 10*time.Second, func() error {
				if s := n.agent.Status(); s.GetState() != string(c.state) || s.GetDesiredSeq() != q.Seq {
					return fmt.Errorf("%s: %v", name, s)
				}
				return nil
			})
		}
	}
	// The last number there is: nothing can follow it on this channel, and another channel takes its place.
	last := p.pointer(second, first, fleet.Full)
	last.Seq = math.MaxUint64
	p.put("stable", p.sign(last))
	n.becomes(fleet.Loaded, second)
	p.rollOut(first)
	n.becomes(fleet.Failed, second)
	edge := p.pointer(first, "", fleet.Full)
	edge.Channel = "edge"
	p.put("edge", p.sign(edge))
	if err := p.store.PutSpec(t.Context(), "web-1", &fleet.Spec{Channel: "edge"}); err != nil {
		t.Fatal(err)
	}
	n.becomes(fleet.Loaded, first)
}

// TestHeldWhileFetching: bytes that take long to come do not become active after somebody has said halt, and do not keep a
// node from going back.
func TestHeldWhileFetching(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	first := p.publish(webPolicy("web", "/srv/one"))
	raw, second := bundle(t, webPolicy("web", "/srv/two"))
	asked, release := make(chan struct{}, 10), make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-release:
			_, _ = w.Write(raw)
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	n := newNode(t, p, "web-1")
	n.http = s.Client()
	n.start()
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	p.putBlob(second, p.blobAt(raw, s.URL+"/bundle"))
	p.put("stable", p.sign(p.pointer(second, first, fleet.Full)))
	<-asked
	if err := p.store.PutHold(t.Context(), "stable", &fleet.Hold{Kind: fleet.HaltedAll, By: "anna"}); err != nil {
		t.Fatal(err)
	}
	n.becomes(fleet.Halted, first)
	if err := p.store.Resume(t.Context(), "stable", &fleet.Resumed{By: "anna"}); err != nil {
		t.Fatal(err)
	}
	<-asked
	p.put("stable", p.sign(p.pointer(first, first, fleet.Full))) // back, while the bytes do not come
	n.becomes(fleet.Loaded, first)
	close(release)
	p.put("stable", p.sign(p.pointer(second, first, fleet.Full)))
	n.becomes(fleet.Loaded, second)
}

// TestTwoOfOneName: a copied disk. Neither host hides the other.
func TestTwoOfOneName(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	first := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(first)
	both := []*node{newNode(t, p, "web-1"), newNode(t, p, "web-1")}
	for i, n := range both {
		n.timing.Report = 300 * time.Millisecond
		n.facts.BootID = fmt.Sprint("boot-", i)
		n.start()
	}
	for i, n := range both {
		within(t, 10*time.Second, func() error {
			if s := n.agent.Status(); s.GetState() != string(fleet.Degraded) || !strings.Contains(s.GetReason(), fmt.Sprint("boot-", 1-i)) || s.GetLoadedDigest() != first {
				return fmt.Errorf("%v", s)
			}
			return nil
		})
	}
	within(t, 5*time.Second, func() error { return p.says("web-1", fleet.Degraded, first) })
	both[1].stop()
	both[0].becomes(fleet.Loaded, first)
	// One that is alone and starts again is nobody's twin.
	both[0].stop()
	both[0].start()
	both[0].becomes(fleet.Loaded, first)
	stays(t, time.Second, func() error { return both[0].is(fleet.Loaded, first) })
}

// TestChannelsOfTheNode: who may write Specs gives a node no other channel than its own configuration allows.
func TestChannelsOfTheNode(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := newNode(t, p, "web-1")
	n.channels = []string{"stable", "canary"}
	n.start()
	first, second := p.publish(webPolicy("web", "/srv/one")), p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	q := p.pointer(second, "", fleet.Full)
	q.Channel = "lab"
	p.put("lab", p.sign(q))
	follow := func(channel string) {
		t.Helper()
		if err := p.store.PutSpec(t.Context(), "web-1", &fleet.Spec{Channel: channel}); err != nil {
			t.Fatal(err)
		}
	}
	follow("lab")
	n.becomes(fleet.Failed, first)
	within(t, 10*time.Second, func() error {
		if s := p.status("web-1"); s == nil || s.Code != "WRONG_CHANNEL" || !strings.Contains(s.Message, "allows stable, canary") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if st, err := n.st.FleetState(); err != nil || st.GetAccepted()[fleetName+"/lab"] != nil {
		t.Errorf("the pointer of the other channel was accepted: %v %v", st, err)
	}
	follow("stable")
	n.becomes(fleet.Loaded, first)
}

// TestUnreadableNode: a node whose records somebody has spoilt is shown, by people's commands too, and can be enrolled again.
func TestUnreadableNode(t *testing.T) {
	t.Parallel()
	e := startEtcd(t)
	c := newCtl(t)
	c.want(0, "has begun", "init", "--name", fleetName, "--endpoints", e.url(), "--without-rbac")
	c.want(0, "enrolled", "enroll", "n1")
	digest := c.want(0, "", "publish", "stable", "-f", "web.yaml", "-o", "name")
	c.want(0, "sequence 1", "rollout", "stable", "--to", digest, "--stages", "100")
	client, l := e.dial(t, nil), fleet.Layout{Fleet: fleetName}
	put := func(key, value string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put(l.Nodes()+"a/b/c", "{}")
	put(l.Nodes()+"\x1b[2J/spec", `{"channel":"stable"}`)
	put(l.Event("stable"), strings.Repeat("[", 100_000))
	put(l.Channel("\x1b[2J"), "x")
	put(l.Blobs()+"\x1b[2J", "x")
	values := hostileValues()
	for _, name := range []string{"empty", "binary", "types", "a name"} {
		value := values[name]
		for _, key := range []string{l.Spec("n1"), l.Status("n1"), l.Last("n1")} {
			put(key, value)
		}
		out := c.want(0, "Failed", "status")
		if strings.Contains(out, "\x1b") || !strings.Contains(out, "n1") {
			t.Errorf("%s: %q", name, out)
		}
		c.want(0, "n1", "nodes")
		c.want(0, "n1", "enroll", "n1", "--channel", "stable")
		c.want(0, "cannot be read", "status")
		if _, err := client.Delete(t.Context(), l.Status("n1")); err != nil {
			t.Fatal(err)
		}
	}
	c.want(0, "", "publish", "stable", "-f", "web.yaml")
	c.want(2, "not found", "diff", "stable", "n2")
	c.want(2, "at least four", "rollout", "stable", "--to", "sha256:0")
	status := `{"node":"n1","state":"Loaded","channel":"stable","message":"\u001b[2Jx","kernel":"\u001b]0;x\u0007","version":"\u202e","desired_seq":18446744073709551615,"loaded_digest":"../../x","overrides":["\u001b[1m"],"running":{"\u001b":-5}}`
	put(l.Status("n1"), status)
	for _, args := range [][]string{{"status"}, {"status", "-o", "wide"}, {"nodes", "-o", "wide"}, {"status", "-o", "json"}, {"diff", "stable", "n1"}} {
		if out, errOut, _ := c.run(args...); strings.ContainsAny(out+errOut, "\x1b\x07") {
			t.Errorf("%v: %q", args, out+errOut)
		}
	}
	// It cannot use up the numbers.
	c.want(0, "sequence 2", "rollback", "stable", "--to", digest)
}
