package smackfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

func TestLook(t *testing.T) {
	m := newModel()
	load(t, m, setOf(t, "A B r", "B C w"), nil, Options{})
	if _, err := ApplySettings(t.Context(), m, &smack.Settings{Unconfined: "U", Onlycap: []string{"_", "Sys"}}, nil, SettingsOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := Look(m)
	want := Status{Label: "_", Onlycap: []string{"Sys", "_"}, Kernel: smack.Kernel{Bringup: true, Unconfined: "U"}, Rules: 2, Labels: 10}
	if err != nil || fmt.Sprint(*s) != fmt.Sprint(want) {
		t.Errorf("%+v, %v, want %+v", s, err, want)
	}
	s, err = Look(m.As(Caller{Label: "X", Root: true, MacAdmin: true}))
	if err != nil || !errors.Is(s.Writable, errs.ErrSmackOnlycap) || s.Rules != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = Look(NewModel(ModelKernel{Old: true})); err != nil || s.Kernel.Bringup || s.Writable != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// testWindow asks, without a pause, for something that old and new rules allow, while they take each other's place.
func testWindow(t *testing.T, fs FS, loads int) {
	r := rand.New(rand.NewPCG(8, 8))
	a := randomRules(r, "Win", 40, 600, false)
	b := changed(r, a, "Win", 40, 3)
	a["Win0 Win1"], b["Win0 Win1"] = smack.Read|smack.Write, smack.Read|smack.Execute // letters come and go, r stays
	sets := []*smack.Set{setOfMap(t, a), setOfMap(t, b)}
	owned := load(t, fs, sets[0], nil, Options{}).Owned
	var asked, denied atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			ok, err := ask(fs, smack.Query{Subject: "Win0", Object: "Win1", Access: smack.Read})
			if err != nil {
				stopped <- err
				return
			}
			asked.Add(1)
			if !ok {
				denied.Add(1)
			}
		}
	}()
	for i := range loads {
		owned = load(t, fs, sets[(i+1)%2], owned, Options{Order: Order(i % 2)}).Owned
	}
	for asked.Load() == 0 { // the asker may not have had a turn yet
		owned = load(t, fs, sets[0], owned, Options{}).Owned
		owned = load(t, fs, sets[1], owned, Options{}).Owned
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if denied.Load() != 0 {
		t.Errorf("denied in %d of %d", denied.Load(), asked.Load())
	}
	load(t, fs, &smack.Set{}, owned, Options{})
}

func TestWindow(t *testing.T) { testWindow(t, newModel(), 20) }
