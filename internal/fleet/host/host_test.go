package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/agent"
	"policyd.dev/policyd/internal/fleet/pack"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

const (
	webPolicy = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: web, description: %s}
spec:
  abi: 4
  enforcement: %s
  layers:
    - name: app
      include: [std/base, local/data]
      handles: {fs: all, net: [bind_tcp]}
      paths:
        - {allow: [read], at: [/srv/www]}
`
	dataFragment = `apiVersion: policyd/v1
kind: Fragment
metadata: {name: local/data}
spec:
  abi: 1
  paths:
    - {allow: [read], at: [/var/lib/data], missing: skip}
`
	otherPolicy = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: other}
spec:
  abi: 1
  layers:
    - handles: {fs: all}
`
	boundPolicy = `apiVersion: policyd/v1
kind: Binding
metadata: {name: bound}
spec:
  policy: web
  match: {uid: 4711}
`
	smackText = `apiVersion: policyd/v1
kind: SmackPolicy
metadata: {name: %s}
spec:
  layers:
    - rules: |
        App Data %s
`
)

func web(description string) string       { return fmt.Sprintf(webPolicy, description, "required") }
func degrading(description string) string { return fmt.Sprintf(webPolicy, description, "degrade") }

// bundle makes a bundle of texts, and its digest.
func bundle(t testing.TB, local []string, texts ...string) (*fleet.Bundle, string) {
	t.Helper()
	docs, err := policy.Parse("bundle.yaml", []byte(strings.Join(texts, "---\n")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := pack.Make(docs, policy.Std(), local)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := fleet.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = fleet.Decode(raw); err != nil {
		t.Fatal(err)
	}
	return b, fleet.Digest(raw)
}

type machine struct {
	*Host
	t         *testing.T
	st        *store.Store
	fs        *smackfs.Model
	smack     *smackhost.Manager
	sandboxes []*apiv1.Sandbox
	others    []Running
	changed   int
	seq       uint64
}

func newMachine(t *testing.T, abi int) *machine {
	m := &machine{t: t, st: storetest.Open(t), fs: smackfs.NewModel(smackfs.ModelKernel{})}
	m.smack = smackhost.New(smackhost.Config{Store: m.st, Find: func() (smackfs.FS, error) {
		if m.fs == nil {
			return nil, errs.ErrSmackNotBuilt
		}
		return m.fs, nil
	}})
	sup := landlock.Support{State: landlock.Available, ABI: abi}
	if abi == 0 {
		sup = landlock.Support{State: landlock.NotBuilt, Err: errs.ErrLandlockNotBuilt}
	}
	m.Host = New(Config{
		Store: m.st, Smack: m.smack, Support: sup, Changed: func() { m.changed++ },
		Sandboxes: func() ([]*apiv1.Sandbox, error) { return m.sandboxes, nil },
		Others:    func() []Running { return m.others },
	})
	return m
}

func (m *machine) activate(local []string, texts ...string) error {
	m.t.Helper()
	b, digest := bundle(m.t, local, texts...)
	return m.activateBundle(b, digest)
}

func (m *machine) activateBundle(b *fleet.Bundle, digest string) error {
	m.seq++
	return m.Activate(m.t.Context(), agent.Activation{
		State:  &apiv1.FleetState{Fleet: "prod", Channel: "stable", Seq: m.seq},
		Digest: digest, Blob: []byte(digest), Manifest: &fleet.Manifest{Message: "why", Created: time.Now()}, Bundle: b,
	})
}

func (m *machine) mustActivate(local []string, texts ...string) {
	m.t.Helper()
	if err := m.activate(local, texts...); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) report() agent.Report {
	m.t.Helper()
	r, err := m.Report()
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// rule is what the kernel holds for App and Data.
func (m *machine) rule() string {
	m.t.Helper()
	set, err := smackfs.ReadRules(m.fs)
	if err != nil {
		m.t.Fatal(err)
	}
	for r := range set.All() {
		if r.Subject == "App" && r.Object == "Data" {
			return strings.ReplaceAll(r.Access.String(), "-", "")
		}
	}
	return ""
}

func TestActivate(t *testing.T) {
	m := newMachine(t, 7)
	m.mustActivate(nil, web("one"), dataFragment, otherPolicy, boundPolicy)
	for _, ref := range []string{"LandlockPolicy/web", "LandlockPolicy/other", "Fragment/local/data", "Binding/bound"} {
		kind, name, _ := strings.Cut(ref, "/")
		info, err := m.st.Info(kind, name)
		if err != nil || info.GetOrigin() != "stable@1" || info.GetAuthor() != "fleet:prod/stable" || !strings.HasSuffix(info.GetMessage(), ": why") {
			t.Errorf("%s: %v %v", ref, info, err)
		}
	}
	if _, err := m.st.Info(store.KindFragment, "std/base"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a shipped fragment is stored as a document: %v", err)
	}
	v, err := m.st.Get(store.KindLandlockPolicy, "web")
	if err != nil || len(v.GetInfo().GetPins()) < 2 {
		t.Fatalf("pins of web: %v %v", v.GetInfo(), err)
	}
	if m.changed != 1 {
		t.Errorf("told of %d changes", m.changed)
	}
	if r := m.report(); r.Policies != 2 || r.Documents != 4 || len(r.Degraded)+len(r.Overrides) != 0 {
		t.Errorf("report %+v", r)
	}
}

// TestKnownDocuments: what was compiled before is not compiled again, but for another text, name, digest or fragment.
func TestKnownDocuments(t *testing.T) {
	m := newMachine(t, 7)
	m.mustActivate(nil, web("one"), dataFragment, otherPolicy)
	b, digest := bundle(t, nil, web("one"), dataFragment, otherPolicy)
	before := m.Host.known
	if err := m.activateBundle(b, digest); err != nil || len(m.Host.known) < 2 {
		t.Fatal(err, len(m.Host.known))
	}
	for key, r := range m.Host.known {
		if was, ok := before[key]; !ok || r.put.Kind == store.KindLandlockPolicy && was.put.Resource != r.put.Resource {
			t.Errorf("%s was compiled again", r.put.Name)
		}
	}
	for name, change := range map[string]func(*fleet.Doc){
		"a text": func(d *fleet.Doc) { d.Text = strings.Replace(d.Text, "/srv/www", "/", 1) }, "a digest": func(d *fleet.Doc) { d.Digest = digest },
		"a name": func(d *fleet.Doc) { d.Name = "webb" },
	} {
		bad := &fleet.Bundle{Docs: slices.Clone(b.Docs)}
		change(&bad.Docs[slices.IndexFunc(bad.Docs, func(d fleet.Doc) bool { return d.Name == "web" })])
		if err := m.activateBundle(bad, fleet.Digest([]byte(name))); err == nil {
			t.Errorf("%s was changed, and it was taken for known", name)
		}
	}
	fragment := &fleet.Bundle{Docs: slices.Clone(b.Docs)}
	f := &fragment.Docs[slices.IndexFunc(fragment.Docs, func(d fleet.Doc) bool { return d.Name == "local/data" })]
	f.Text = strings.Replace(f.Text, "/var/lib/data", "/", 1)
	if err := m.activateBundle(fragment, fleet.Digest([]byte("f"))); !errors.Is(err, errs.ErrTampered) {
		t.Errorf("another fragment: %v", err)
	}
	m.mustActivate(nil, web("one"), strings.Replace(dataFragment, "/var/lib/data", "/var/lib/other", 1), otherPolicy)
	v, err := m.st.Get(store.KindLandlockPolicy, "web")
	if err != nil || v.GetInfo().GetNumber() != 2 {
		t.Errorf("with another fragment: %v %v", v.GetInfo(), err)
	}
}

// TestRefusedBundles: whatever is wrong with a bundle on this host, nothing of it is there afterwards.
func TestRefusedBundles(t *testing.T) {
	good, _ := bundle(t, nil, web("two"), dataFragment)
	changed := func(f func(b *fleet.Bundle)) *fleet.Bundle {
		b := &fleet.Bundle{Docs: slices.Clone(good.Docs)}
		f(b)
		return b
	}
	at := func(b *fleet.Bundle, name string) *fleet.Doc {
		return &b.Docs[slices.IndexFunc(b.Docs, func(d fleet.Doc) bool { return d.Name == name })]
	}
	for name, c := range map[string]struct {
		b    *fleet.Bundle
		abi  int
		want error
		text string
	}{
		"the kernel lacks a right":      {good, 3, errs.ErrUnsupported, "LandlockPolicy/web"},
		"the kernel has no Landlock":    {good, 0, errs.ErrLandlockNotBuilt, "LandlockPolicy/web"},
		"a text of another digest":      {changed(func(b *fleet.Bundle) { at(b, "web").Text = web("three") }), 7, errs.ErrTampered, "LandlockPolicy/web"},
		"a text of another name":        {changed(func(b *fleet.Bundle) { at(b, "web").Text = otherPolicy }), 7, errs.ErrInvalid, "not this document alone"},
		"two texts in one":              {changed(func(b *fleet.Bundle) { at(b, "web").Text += "---\n" + otherPolicy }), 7, errs.ErrInvalid, "not this document alone"},
		"no policy language":            {changed(func(b *fleet.Bundle) { at(b, "web").Text = "x: [\n" }), 7, nil, "LandlockPolicy/web"},
		"a fragment of another content": {changed(func(b *fleet.Bundle) { at(b, "local/data").Text += "    - {allow: [write], at: [/]}\n" }), 7, errs.ErrTampered, "local/data"},
		"a fragment that is not in it": {changed(func(b *fleet.Bundle) {
			b.Docs = slices.DeleteFunc(b.Docs, func(d fleet.Doc) bool { return d.Name == "std/base" })
		}), 7, nil, "std/base"},
	} {
		m := newMachine(t, 7)
		m.mustActivate(nil, otherPolicy)
		m.Host.cfg.Support, m.Host.known = landlock.Support{State: landlock.Available, ABI: c.abi}, nil
		if c.abi == 0 {
			m.Host.cfg.Support = landlock.Support{State: landlock.NotBuilt, Err: errs.ErrLandlockNotBuilt}
		}
		before, _ := m.st.LastSeq()
		err := m.activateBundle(c.b, fleet.Digest([]byte(name)))
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := m.st.LastSeq(); after != before {
			t.Errorf("%s: %d entries in the log", name, after-before)
		}
		if m.changed != 1 {
			t.Errorf("%s: told of a change", name)
		}
	}
	m := newMachine(t, 7)
	if err := m.activate(nil, fmt.Sprintf(smackText, "a", "r"), fmt.Sprintf(smackText, "b", "r")); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("two SmackPolicies: %v", err)
	}
}

func TestDegraded(t *testing.T) {
	m := newMachine(t, 3)
	m.mustActivate(nil, degrading("one"), dataFragment, otherPolicy)
	if r := m.report(); !slices.Equal(r.Degraded, []string{"web"}) {
		t.Errorf("report %+v", r)
	}
	// After a start the store alone tells it.
	again := New(m.Host.cfg)
	if r, err := again.Report(); err != nil || !slices.Equal(r.Degraded, []string{"web"}) {
		t.Errorf("report after a start: %+v %v", r, err)
	}
}

func TestOverrides(t *testing.T) {
	m := newMachine(t, 7)
	m.mustActivate([]string{"web"}, web("one"), dataFragment, otherPolicy)
	own := store.Put{
		Kind: store.KindLandlockPolicy, Name: "web", Digest: fleet.Digest([]byte("own")),
		Resource: &apiv1.Resource{Kind: &apiv1.Resource_LandlockPolicy{LandlockPolicy: &apiv1.LandlockPolicy{Metadata: &apiv1.Metadata{Name: "web"}}}},
	}
	if _, err := m.st.Apply(t.Context(), store.Actor{Name: "uid:0"}, []store.Put{own}); err != nil {
		t.Fatal(err)
	}
	if r := m.report(); !slices.Equal(r.Overrides, []string{"web"}) {
		t.Errorf("report %+v", r)
	}
}

// TestRunning: what runs is counted by the bundle that their version is of.
func TestRunning(t *testing.T) {
	m := newMachine(t, 7)
	_, first := bundle(t, nil, web("one"), dataFragment, otherPolicy)
	m.mustActivate(nil, web("one"), dataFragment, otherPolicy)
	m.mustActivate(nil, web("two"), dataFragment, otherPolicy)
	_, second := bundle(t, nil, web("two"), dataFragment, otherPolicy)
	for _, sb := range []struct {
		policy  string
		version uint64
	}{{"web", 1}, {"web", 2}, {"web", 2}, {"other", 1}, {"mine", 1}} {
		m.sandboxes = append(m.sandboxes, &apiv1.Sandbox{Policy: sb.policy, Version: sb.version})
	}
	r := m.report()
	if r.Running[first] != 1 || r.Running[second] != 3 || r.Running[""] != 1 || r.RunningOlder != 1 {
		t.Errorf("report %+v", r)
	}
	// What a bundle holds no more is counted all the same.
	m.mustActivate(nil, otherPolicy)
	if r := m.report(); r.Running[first] != 1 || r.RunningOlder != 3 {
		t.Errorf("report %+v", r)
	}
	// So are containers and services.
	m.others = []Running{{"other", 1}, {"web", 1}, {"web", 2}, {"gone", 7}, {"../web", 1}}
	if r := m.report(); r.Running[first] != 2 || r.Running[""] != 3 || r.RunningOlder != 5 {
		t.Errorf("report %+v", r)
	}
}
