package smackbench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/smack"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/smack/smacktest"
)

// nextVersion changes every tenth rule: it loses letters, gains some, both, or goes; and as many new ones come.
func nextVersion(set *smack.Set) (*smack.Set, error) {
	b := smack.NewSetBuilder()
	i := 0
	for r := range set.All() {
		switch i++; i % 40 {
		case 0:
			r.Access &^= smack.Read
		case 10:
			r.Access |= smack.Append | smack.Write
		case 20:
			r.Access = r.Access&^smack.Execute | smack.Transmute
		case 30:
			b.Set("New::"+r.Subject, r.Object, r.Access)
			continue
		}
		b.Set(r.Subject, r.Object, r.Access)
	}
	return b.Build()
}

// poller asks access2, without a pause and by turns, for what every version allows.
type poller struct {
	fs      smackfs.FS
	queries []smack.Query
	next    int

	polls, denied atomic.Int64
	longest       time.Duration // from the first denial to the next permission
	since         time.Time
}

func (p *poller) poll() error {
	q := p.queries[p.next%len(p.queries)]
	p.next++
	a, err := smackfs.Ask(p.fs, q)
	if err != nil {
		return err
	}
	p.polls.Add(1)
	switch {
	case !a.Allowed:
		p.denied.Add(1)
		if p.since.IsZero() {
			p.since = time.Now()
		}
		p.longest = max(p.longest, time.Since(p.since))
	case !p.since.IsZero():
		p.longest = max(p.longest, time.Since(p.since))
		p.since = time.Time{}
	}
	return nil
}

// beside polls in a thread of its own while f runs.
func (p *poller) beside(f func() error) error {
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := p.poll(); err != nil {
				stopped <- err
				return
			}
		}
	}()
	err := f()
	close(stop)
	if pollErr := <-stopped; err == nil {
		err = pollErr
	}
	return err
}

// versions are two versions of the rules that take each other's place, and a poller of what both allow.
type versions struct {
	fs    smackfs.FS
	sets  [2]*smack.Set
	owned *smack.Set
}

func newVersions(fs smackfs.FS, shape smacktest.Shape) (*versions, *poller, error) {
	set, err := compiled(shape)
	if err != nil {
		return nil, nil, err
	}
	next, err := nextVersion(set)
	if err != nil {
		return nil, nil, err
	}
	v := &versions{fs: fs, sets: [2]*smack.Set{set, next}}
	if err := v.load(v.fs, 0); err != nil {
		return nil, nil, err
	}
	return v, &poller{fs: fs, queries: sharedPairs(set, next, 64)}, nil
}

func (v *versions) load(fs smackfs.FS, n int) error {
	r, err := smackfs.Load(context.Background(), fs, v.sets[n%2], v.owned, smackfs.Options{Order: smackfs.GrantsFirst})
	if err != nil {
		return err
	}
	v.owned = r.Owned
	return nil
}

func takeWindow(fs smackfs.FS, shape smacktest.Shape) (values, error) {
	v, p, err := newVersions(fs, shape)
	if err != nil {
		return nil, err
	}
	const rounds = 40
	out := values{}
	count := func(way string, p *poller) {
		out[way+"-polls"], out[way+"-denied"] = float64(p.polls.Load()), float64(p.denied.Load())
		out[way+"-ms"] = float64(p.longest.Nanoseconds()) / 1e6
	}
	if err := p.beside(func() error {
		for i := range rounds {
			if err := v.load(fs, i+1); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	count("load", p)
	p = &poller{fs: fs, queries: p.queries}
	rules := [2][]byte{text(v.sets[0]), text(v.sets[1])}
	if err := p.beside(func() error {
		for i := range rounds {
			if _, err := clearAndLoad(fs, rules[(i+1)%2]); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	count("clear", p)
	return out, nil
}

// One version of the rules takes the place of another and back, 40 times, while another thread asks access2 for what both
// versions allow: how often it is denied, and for how long at most. Every tenth rule changes.
func BenchmarkWindow(b *testing.B) {
	inGuests(b, func(b *testing.B, kernel string) {
		m := samples(b, kernel, "17k-500", "window")
		for _, way := range []string{"load", "clear"} {
			b.ReportMetric(m["window/"+way+"-polls"], way+"-polls")
			b.ReportMetric(m["window/"+way+"-denied"], way+"-denied")
			b.ReportMetric(m["window/"+way+"-ms"], way+"-denied-ms")
		}
		if m["window/load-denied"] != 0 || m["window/load-polls"] == 0 || m["window/clear-denied"] == 0 {
			b.Errorf("%v", m)
		}
	})
}

// What old and new rules allow is allowed after every write of a load, and between them; a load of the rules that are there
// writes nothing, and of one that changed, one.
func TestLoads(t *testing.T) {
	t.Run("model", func(t *testing.T) {
		testLoads(t, smackfs.NewModel(smackfs.ModelKernel{Bringup: true}))
	})
	testkernel.Each(t, testkernel.Smack, func(t *testing.T) {
		if t.Name() == "TestLoads/host" {
			t.Skip("of guests only: a machine's own Smack is not to be played with")
		}
		testLoads(t, smackfs.Dir("/sys/fs/smackfs"))
	})
}

func testLoads(t *testing.T, fs smackfs.FS) {
	v, p, err := newVersions(fs, smacktest.Platform)
	if err != nil {
		t.Fatal(err)
	}
	poll := &timedFS{FS: fs, after: func() {
		for range 3 {
			if err := p.poll(); err != nil {
				t.Error(err)
			}
		}
	}}
	beside := &poller{fs: fs, queries: p.queries}
	if err := beside.beside(func() error {
		for i := range 4 {
			if err := v.load(poll, i+1); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if p.polls.Load() == 0 || p.denied.Load() != 0 || beside.denied.Load() != 0 {
		t.Errorf("denied in %d of %d polls after a write, and in %d of %d beside", p.denied.Load(), p.polls.Load(), beside.denied.Load(), beside.polls.Load())
	}

	writes := &timedFS{FS: fs}
	r, err := smackfs.Load(t.Context(), writes, v.sets[0], v.owned, smackfs.Options{})
	if err != nil || r.Writes != 0 || !writes.first.IsZero() {
		t.Errorf("an unchanged load: %d writes, first at %v, %v", r.Writes, writes.first, err)
	}
	other, err := oneChanged(v.sets[0])
	if err != nil {
		t.Fatal(err)
	}
	line := ""
	for c := range other.Difference(v.sets[0]).All() {
		line = fmt.Sprint(c)
	}
	if r, err = smackfs.Load(t.Context(), fs, other, r.Owned, smackfs.Options{}); err != nil || r.Writes != 1 || r.Written != 1 {
		t.Errorf("one rule (%s) changed: %d writes of %d rules, %v", line, r.Writes, r.Written, err)
	}
}
