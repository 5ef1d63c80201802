package fleettest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/mod/sumdb/note"

	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/store"
)

// setUp starts an etcd, and gives who publishes into it.
func setUp(t testing.TB) (*etcd, *publisher) {
	t.Helper()
	e := startEtcd(t)
	return e, newPublisher(t, e.dial(t, nil))
}

func TestPublishAndFollow(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	n.becomes(fleet.Pending, "")
	first := p.publish(webPolicy("web", "/srv/one"), webPolicy("db", "/srv/db"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	within(t, 5*time.Second, func() error { return p.says("web-1", fleet.Loaded, first) })
	second := p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(second)
	n.becomes(fleet.Loaded, second)
	if _, err := n.st.Info(store.KindLandlockPolicy, "db"); err == nil {
		t.Error("a policy that the bundle holds no more is there")
	}
	// Back: a newer pointer to the older bundle, which the host still has.
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	if s := n.agent.Status(); s.GetLoadedSeq() != 3 || !s.GetConnected() || s.GetDocuments() < 2 {
		t.Errorf("status %v", s)
	}
}

// TestNotBelieved: none of these is taken, each is told with its reason, and what was in force stays.
func TestNotBelieved(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	good := p.publish(webPolicy("web", "/srv/one"))
	old := p.pointer(good, "", fleet.Full)
	first := p.sign(old)
	p.seq += 10
	p.put("stable", p.sign(p.pointer(good, "", fleet.Full)))
	n.becomes(fleet.Loaded, good)
	other := p.publish(webPolicy("web", "/srv/two"))
	stranger := newKey(t, "rollout")
	next := func() *fleet.Pointer { return p.pointer(other, "", fleet.Full) }
	with := func(f func(*fleet.Pointer)) []byte {
		ptr := next()
		f(ptr)
		return p.sign(ptr)
	}
	manifest, err := fleet.NewManifest(fleetName, mustBundle(t, webPolicy("web", "/x")), time.Now(), "")
	if err != nil {
		t.Fatal(err)
	}
	wrongType, err := fleet.SignManifest(manifest, p.rollout.signer)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		signed []byte
		reason string
	}{
		"an older pointer again":             {first, "OLDER_SEQUENCE"},
		"another pointer of the same number": {with(func(q *fleet.Pointer) { q.Seq = 12 }), "OLDER_SEQUENCE"},
		"of another fleet":                   {with(func(q *fleet.Pointer) { q.Fleet = "test" }), "WRONG_FLEET"},
		"of another channel":                 {with(func(q *fleet.Pointer) { q.Channel = "edge" }), "WRONG_CHANNEL"},
		"signed by a stranger of that name":  {p.sign(next(), stranger.signer), "TOO_FEW_SIGNATURES"},
		"signed by a content key":            {p.sign(next(), p.content.signer), "TOO_FEW_SIGNATURES"},
		"a manifest":                         {wrongType, "WRONG_TYPE"},
		"a changed byte":                     {[]byte(strings.Replace(string(p.sign(next())), "percent 10000", "percent 10001", 1)), "TAMPERED"},
		"nothing":                            {[]byte{}, "TAMPERED"},
	} {
		p.put("stable", c.signed)
		within(t, 5*time.Second, func() error { return n.is(fleet.Failed, good) })
		within(t, 5*time.Second, func() error {
			if s := p.status("web-1"); s == nil || s.Code != c.reason {
				return fmt.Errorf("%s: status %+v, want reason %s", name, s, c.reason)
			}
			return nil
		})
		if n.counted.activations.Load() != 1 {
			t.Fatalf("%s was activated", name)
		}
	}
	if list := n.events(store.EventFleetRefuse); len(list) < 5 || list[0].GetAttributes()["reason"] == "" {
		t.Errorf("the log has %v", list)
	}
	p.rollOut(other)
	n.becomes(fleet.Loaded, other)
}

func mustBundle(t *testing.T, texts ...string) []byte {
	raw, _ := bundle(t, texts...)
	return raw
}

// TestStolenRolloutKey can only choose among the bundles that the content keys have signed.
func TestStolenRolloutKey(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	good := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(good)
	n.becomes(fleet.Loaded, good)
	evil, digest := bundle(t, webPolicy("web", "/"))
	for name, by := range map[string]note.Signer{"its own signature": newKey(t, "content").signer, "the rollout key's": p.rollout.signer} {
		raw := p.blob(evil, by)
		if _, err := p.store.Client.Put(t.Context(), p.store.Layout.Blob(digest), string(raw)); err != nil {
			t.Fatal(err)
		}
		p.rollOut(digest)
		n.becomes(fleet.Failed, good)
		if s := n.agent.Status(); !strings.Contains(s.GetReason(), "signatures") {
			t.Errorf("%s: %v", name, s)
		}
	}
	// Another bundle's bytes under a digest, with a manifest that is signed.
	raw, _ := bundle(t, webPolicy("web", "/srv/three"))
	if _, err := p.store.Client.Put(t.Context(), p.store.Layout.Blob(digest), string(p.blob(raw))); err != nil {
		t.Fatal(err)
	}
	p.rollOut(digest)
	within(t, 10*time.Second, func() error {
		s := n.agent.Status()
		if s.GetState() != string(fleet.Failed) || !strings.Contains(s.GetReason(), "the manifest is of bundle") || s.GetLoadedDigest() != good {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
}

// TestFailedBundle: what this kernel cannot enforce is not put into force, and the node says why.
func TestFailedBundle(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	good := p.publish(webPolicy("web", "/srv/one"))
	p.rollOut(good)
	n.becomes(fleet.Loaded, good)
	bad := p.publish(tooNew, webPolicy("db", "/srv"))
	p.rollOut(bad)
	n.becomes(fleet.Failed, good)
	within(t, 5*time.Second, func() error { return p.says("web-1", fleet.Failed, good) })
	if s := p.status("web-1"); s.Code != "UNSUPPORTED_BY_KERNEL" || s.DesiredDigest != bad {
		t.Errorf("status %+v", s)
	}
	if _, err := n.st.Info(store.KindLandlockPolicy, "db"); err == nil {
		t.Error("a part of the bundle is there")
	}
	// It is tried again, but not all the time, and told once.
	within(t, 5*time.Second, func() error { return atLeast("attempts", n.counted.failed.Load(), 2) })
	if list := n.events(store.EventFleetFail); len(list) != 1 {
		t.Errorf("the log has %d entries: %v", len(list), list)
	}
	p.rollOut(good)
	n.becomes(fleet.Loaded, good)
}

func atLeast(what string, got, want int64) error {
	if got < want {
		return fmt.Errorf("%s: %d, want %d", what, got, want)
	}
	return nil
}

// TestPercentAndLabels: who is not reached stays on the bundle before, and labels are the admins'.
func TestPercentAndLabels(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	var nodes []*node
	for i := range 6 {
		nodes = append(nodes, startNode(t, p, fmt.Sprint("n", i)))
	}
	first, second := p.publish(webPolicy("web", "/srv/one")), p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(first)
	for _, n := range nodes {
		n.becomes(fleet.Loaded, first)
	}
	for _, percent := range []int{100, 5000, fleet.Full} {
		ptr := p.pointer(second, first, percent)
		p.put("stable", p.sign(ptr))
		for _, n := range nodes {
			want, state := first, fleet.Skipped
			if fleet.Selected(ptr.Salt(), n.name, percent) {
				want, state = second, fleet.Loaded
			}
			n.becomes(state, want)
		}
	}
	ptr := p.pointer(first, second, fleet.Full)
	ptr.Rollout.Labels = map[string]string{"site": "a"}
	p.put("stable", p.sign(ptr))
	for _, n := range nodes {
		n.becomes(fleet.Skipped, second)
	}
	if err := p.store.PutSpec(t.Context(), "n3", &fleet.Spec{Channel: "stable", Labels: map[string]string{"site": "a"}}); err != nil {
		t.Fatal(err)
	}
	nodes[3].becomes(fleet.Loaded, first)
	nodes[4].becomes(fleet.Skipped, second)
}

// TestChannelOfSpec: an admin moves a node to another channel, and no older pointer of the first is taken afterwards.
func TestChannelOfSpec(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	first, second := p.publish(webPolicy("web", "/srv/one")), p.publish(webPolicy("web", "/srv/two"))
	p.seq = 4
	stable := p.sign(p.pointer(first, "", fleet.Full))
	p.put("stable", p.sign(p.pointer(first, "", fleet.Full)))
	n.becomes(fleet.Loaded, first)
	edge := p.pointer(second, "", fleet.Full)
	edge.Channel, edge.Seq = "edge", 1
	p.put("edge", p.sign(edge))
	if err := p.store.PutSpec(t.Context(), "web-1", &fleet.Spec{Channel: "edge"}); err != nil {
		t.Fatal(err)
	}
	n.becomes(fleet.Loaded, second)
	p.put("stable", stable)
	if err := p.store.PutSpec(t.Context(), "web-1", &fleet.Spec{Channel: "stable"}); err != nil {
		t.Fatal(err)
	}
	n.becomes(fleet.Failed, second)
}

// TestHalt: nobody activates anything while a hold of the kind halt is there.
func TestHalt(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	first, second := p.publish(webPolicy("web", "/srv/one")), p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	for _, channel := range []string{"", "stable"} {
		if err := p.store.PutHold(t.Context(), channel, &fleet.Hold{Kind: fleet.HaltedAll, By: "alice", Why: "broken", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		// Past the hold, as whoever writes to etcd could.
		p.put("stable", p.sign(p.pointer(second, "", fleet.Full)))
		n.becomes(fleet.Halted, first)
		if s := n.agent.Status(); !strings.Contains(s.GetReason(), "alice") {
			t.Errorf("status %v", s)
		}
		if err := p.store.Resume(t.Context(), channel, &fleet.Resumed{By: "anna"}); err != nil {
			t.Fatal(err)
		}
		n.becomes(fleet.Loaded, second)
		p.rollOut(first)
		n.becomes(fleet.Loaded, first)
	}
	if err := p.store.PutHold(t.Context(), "stable", &fleet.Hold{Kind: fleet.Paused, By: "alice", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	p.put("stable", p.sign(p.pointer(second, "", fleet.Full)))
	n.becomes(fleet.Loaded, second) // a pause is the controller's alone
}

// TestClock: expiry is told, never acted on, however the clock jumps.
func TestClock(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	first, second := p.publish(webPolicy("web", "/srv/one")), p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	n.skew.Store(int64(48 * time.Hour))
	n.becomes(fleet.Stale, first)
	within(t, 5*time.Second, func() error { return p.says("web-1", fleet.Stale, first) })
	p.rollOut(second) // of this clock it has expired before it was seen
	stays(t, 300*time.Millisecond, func() error { return n.is(fleet.Stale, first) })
	n.skew.Store(0)
	n.becomes(fleet.Loaded, second)
	n.skew.Store(-int64(1000 * time.Hour))
	stays(t, 300*time.Millisecond, func() error { return n.is(fleet.Loaded, second) })
	if _, err := n.st.Info(store.KindLandlockPolicy, "web"); err != nil {
		t.Error(err)
	}
}

// TestManyEvents: a thousand pointers at once are one look, at the last.
func TestManyEvents(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := startNode(t, p, "web-1")
	first, second := p.publish(webPolicy("web", "/srv/one")), p.publish(webPolicy("web", "/srv/two"))
	p.rollOut(first)
	n.becomes(fleet.Loaded, first)
	var ops []clientv3.Op
	var last string
	for i := range 1000 {
		last = []string{first, second}[i%2]
		ops = append(ops, clientv3.OpPut(p.store.Layout.Channel("stable"), string(p.sign(p.pointer(last, "", fleet.Full)))))
	}
	for _, op := range ops {
		if _, err := p.store.Client.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 20*time.Second, func() error {
		return equal("sequence", n.agent.Status().GetLoadedSeq(), p.seq)
	})
	if err := n.is(fleet.Loaded, last); err != nil {
		t.Error(err)
	}
	t.Logf("%d activations of 1000 pointers", n.counted.activations.Load())
}

// TestByReference: the bytes are a file of the node's, or come by https.
func TestByReference(t *testing.T) {
	t.Parallel()
	_, p := setUp(t)
	n := newNode(t, p, "web-1")
	raw, digest := bundle(t, webPolicy("web", "/srv/one"))
	path := writeFile(t, "bundle", raw)
	n.start()
	p.putBlob(digest, p.blobAt(raw, "file://"+path))
	p.rollOut(digest)
	n.becomes(fleet.Loaded, digest)

	// https with a certificate that this machine does not know: not fetched, and not a failure of the bundle.
	raw2, second := bundle(t, webPolicy("web", "/srv/two"))
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw2) }))
	defer s.Close()
	p.putBlob(second, p.blobAt(raw2, s.URL+"/bundle"))
	p.rollOut(second)
	within(t, 10*time.Second, func() error {
		s := n.agent.Status()
		if s.GetState() != string(fleet.Pending) && s.GetState() != string(fleet.Compiling) || !strings.Contains(s.GetReason(), "certificate") {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	// A file that is not what was signed.
	raw3, third := bundle(t, webPolicy("web", "/srv/three"))
	p.putBlob(third, p.blobAt(raw3, "file://"+writeFile(t, "other", raw2)))
	p.rollOut(third)
	n.becomes(fleet.Failed, digest)
	n.stop()
	n.start() // without etcd's help: the bytes are kept on the host
	p.rollOut(digest)
	n.becomes(fleet.Loaded, digest)
}
