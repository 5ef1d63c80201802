package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/note"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// The agent on a real etcd is tested in test/fleet, a module of its own.

// fakeHost keeps what it is given.
type fakeHost struct {
	state     *apiv1.FleetState
	blobs     map[string][]byte
	report    Report
	reportErr error
	active    []Activation
}

func (h *fakeHost) State() (*apiv1.FleetState, error) {
	if h.state == nil {
		return &apiv1.FleetState{}, nil
	}
	return h.state, nil
}

func (h *fakeHost) Keep(_ context.Context, st *apiv1.FleetState, _ ...*apiv1.Event) error {
	h.state = st
	return nil
}

func (h *fakeHost) Tell(context.Context, *apiv1.Event) error { return nil }

func (h *fakeHost) Blob(digest string) ([]byte, error) {
	if b, ok := h.blobs[digest]; ok {
		return b, nil
	}
	return nil, errs.ErrNotFound
}

func (h *fakeHost) Activate(_ context.Context, a Activation) error {
	h.active = append(h.active, a)
	return nil
}

func (h *fakeHost) Report() (Report, error) { return h.report, h.reportErr }

type signers struct{ content, rollout note.Signer }

func keys(t *testing.T) (signers, fleet.Trust) {
	t.Helper()
	var s signers
	var trust fleet.Trust
	for name, into := range map[string]struct {
		signer *note.Signer
		set    *fleet.Signers
	}{"content": {&s.content, &trust.Content}, "rollout": {&s.rollout, &trust.Rollout}} {
		private, public, err := fleet.NewKey(name)
		if err != nil {
			t.Fatal(err)
		}
		if *into.signer, err = note.NewSigner(private); err != nil {
			t.Fatal(err)
		}
		*into.set = fleet.Signers{Threshold: 1, Keys: []string{public}}
	}
	return s, trust
}

func newTest(t *testing.T, h *fakeHost) (*Agent, signers) {
	t.Helper()
	s, trust := keys(t)
	a, err := New(Config{
		Fleet: "prod", Node: "web-1", Channel: "stable", Trust: trust, Host: h,
		Client: func() (*clientv3.Client, error) { return nil, errors.New("no certificate yet") },
		Timing: Timing{Spread: time.Nanosecond, Backoff: time.Millisecond, BackoffMost: 2 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, s
}

func TestBadConfig(t *testing.T) {
	_, trust := keys(t)
	twice := trust
	twice.Rollout = trust.Content
	for name, c := range map[string]Config{
		"no fleet":                      {Node: "n", Trust: trust},
		"no node":                       {Fleet: "f", Trust: trust},
		"a node like a path":            {Fleet: "f", Node: "../n", Trust: trust},
		"a channel like a path":         {Fleet: "f", Node: "n", Channel: "a/b", Trust: trust},
		"no keys":                       {Fleet: "f", Node: "n"},
		"one key for both":              {Fleet: "f", Node: "n", Trust: twice},
		"more signatures than keys are": {Fleet: "f", Node: "n", Trust: fleet.Trust{Content: fleet.Signers{Threshold: 2, Keys: trust.Content.Keys}, Rollout: trust.Rollout}},
	} {
		c.Host = &fakeHost{}
		if _, err := New(c); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRunWithoutEtcd: the agent tells why it hears nothing, and leaves nothing behind when it ends.
func TestRunWithoutEtcd(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := &fakeHost{state: &apiv1.FleetState{Fleet: "prod", Channel: "edge", Digest: fleet.Digest(nil), ActiveSeq: 3}}
	a, _ := newTest(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	a.Run(ctx)
	s := a.Status()
	if s.GetConnected() || !strings.Contains(s.GetConnection(), "no certificate yet") || s.GetChannel() != "edge" || s.GetLoadedSeq() != 3 {
		t.Errorf("status %v", s)
	}
	if len(h.active) > 0 {
		t.Error("something was activated")
	}
}

func TestStatusFits(t *testing.T) {
	long := fleet.Status{Node: "web-1", State: fleet.Failed, Message: strings.Repeat("ä", 5000)}
	for i := range 400 {
		long.Overrides = append(long.Overrides, fmt.Sprint("policy-of-a-long-name-", i))
	}
	long.Running = map[string]int{}
	for i := range 60 {
		long.Running[fleet.Digest([]byte{byte(i)})] = i
	}
	for _, s := range []fleet.Status{{Node: "web-1", State: fleet.Loaded}, long} {
		b, err := marshalStatus(s)
		if err != nil || len(b) > fleet.MaxRecordBytes {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		var got fleet.Status
		if err := fleet.Unmarshal(b, &got); err != nil || got.State != s.State {
			t.Errorf("%+v %v", got, err)
		}
	}
}

func TestSame(t *testing.T) {
	x := fleet.Status{Node: "a", State: fleet.Loaded, Reported: time.Unix(1, 0), Running: map[string]int{"x": 1}}
	y := x
	y.Reported, y.Running = time.Unix(2, 0), map[string]int{"x": 2}
	if !same(x, y) {
		t.Error("when it was written, and what runs, are no news")
	}
	for name, change := range map[string]func(*fleet.Status){
		"state": func(s *fleet.Status) { s.State = fleet.Failed }, "reason": func(s *fleet.Status) { s.Message = "x" },
		"overrides": func(s *fleet.Status) { s.Overrides = []string{"x"} }, "sequence": func(s *fleet.Status) { s.DesiredSeq = 1 },
	} {
		y := x
		change(&y)
		if same(x, y) {
			t.Errorf("%s is news", name)
		}
	}
}

func TestReportedState(t *testing.T) {
	for _, c := range []struct {
		state fleet.State
		r     Report
		err   error
		want  fleet.State
	}{
		{fleet.Loaded, Report{}, nil, fleet.Loaded},
		{fleet.Skipped, Report{}, nil, fleet.Skipped},
		{fleet.Loaded, Report{Degraded: []string{"web"}}, nil, fleet.Degraded},
		{fleet.Skipped, Report{Overrides: []string{"web"}}, nil, fleet.Degraded},
		{fleet.Loaded, Report{}, errors.New("broken"), fleet.Degraded},
		{fleet.Failed, Report{Degraded: []string{"web"}}, nil, fleet.Failed},
		{fleet.Stale, Report{Overrides: []string{"web"}}, nil, fleet.Stale},
		{fleet.Halted, Report{Overrides: []string{"web"}}, nil, fleet.Halted},
	} {
		if got := withReport(situation{state: c.state}, c.r, c.err, ""); got.state != c.want || got.state == fleet.Degraded && got.reason == "" {
			t.Errorf("%s with %+v %v: %+v", c.state, c.r, c.err, got)
		}
	}
}

func TestHalted(t *testing.T) {
	hold := func(kind fleet.HoldKind) []byte {
		b, err := fleet.Marshal(&fleet.Hold{Kind: kind, By: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		holds map[string][]byte
		held  bool
	}{
		"none":                 {nil, false},
		"a pause":              {map[string][]byte{"k": hold(fleet.Paused)}, false},
		"a halt":               {map[string][]byte{"k": hold(fleet.HaltedAll)}, true},
		"a pause and a halt":   {map[string][]byte{"k": hold(fleet.Paused), "l": hold(fleet.HaltedAll)}, true},
		"one of no known kind": {map[string][]byte{"/policyd/v1/prod/pub/halt": []byte(`{"kind":"other"}`)}, true},
		"one that is empty":    {map[string][]byte{"/policyd/v1/prod/pub/halt": {}}, true},
	} {
		if got := halted(c.holds); (got != "") != c.held {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestByReference: exactly the bytes that were signed are taken, from where the signed manifest's blob says.
func TestByReference(t *testing.T) {
	content, err := fleet.Encode(&fleet.Bundle{Docs: []fleet.Doc{{Kind: "Fragment", Name: "local/a", Digest: fleet.Digest(nil), Text: "kind: Fragment\n"}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return "file://" + path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bundle":
			_, _ = w.Write(content)
		case "/endless":
			for i := 0; i < 1000; i++ {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		default:
			http.NotFound(w, r)
		}
	})
	s := httptest.NewTLSServer(served)
	defer s.Close()
	a, sign := newTest(t, &fakeHost{})
	a.cfg.HTTP = s.Client()
	digest := fleet.Digest(content)
	blob := func(url string, by note.Signer) []byte {
		m, err := fleet.NewManifest("prod", content, time.Now(), "")
		if err != nil {
			t.Fatal(err)
		}
		signed, err := fleet.SignManifest(m, by)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := fleet.EncodeBlob(&fleet.Blob{Manifest: signed, URL: url})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, c := range map[string]struct {
		url  string
		by   note.Signer
		want error
		away bool
	}{
		"a file":                 {write("good", content), sign.content, nil, false},
		"https":                  {s.URL + "/bundle", sign.content, nil, false},
		"a longer file":          {write("long", append(append([]byte{}, content...), 0)), sign.content, errs.ErrTampered, false},
		"a shorter file":         {write("short", content[:len(content)-1]), sign.content, errs.ErrTampered, false},
		"without end":            {s.URL + "/endless", sign.content, errs.ErrTampered, false},
		"not there":              {"file://" + dir + "/none", sign.content, os.ErrNotExist, true},
		"a FIFO":                 {"file://" + fifo, sign.content, nil, true},
		"a folder":               {"file://" + dir, sign.content, nil, true},
		"404":                    {s.URL + "/none", sign.content, nil, true},
		"signed by another role": {write("good", content), sign.rollout, errs.ErrTooFewSignatures, false},
	} {
		raw := blob(c.url, c.by)
		_, b, err := a.open(t.Context(), &raw, digest)
		var away *awayError
		if c.want != nil && !errors.Is(err, c.want) || errors.As(err, &away) != c.away || c.want == nil && !c.away && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		kept, kerr := fleet.DecodeBlob(raw)
		if len(b.Docs) != 1 || kerr != nil || kept.URL != "" || fleet.Digest(kept.Bundle) != digest {
			t.Errorf("%s: %v, kept %+v %v", name, b, kept, kerr)
		}
	}
}

// TestBackoff: pauses grow up to the most, and no two nodes keep step.
func TestBackoff(t *testing.T) {
	a, _ := newTest(t, &fakeHost{})
	p := a.backoff()
	for range 5 {
		if !p.wait(t.Context()) {
			t.Fatal("not waited")
		}
	}
	if p.next != a.cfg.Timing.BackoffMost {
		t.Errorf("the next pause is %v", p.next)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p = pause{time.Hour, time.Hour}
	if p.wait(ended) {
		t.Error("waited though it has ended")
	}
	seen := map[time.Duration]bool{}
	for range 100 {
		d := around(time.Minute)
		if d < 45*time.Second || d > 75*time.Second {
			t.Errorf("around a minute: %v", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different times of 100", len(seen))
	}
}
