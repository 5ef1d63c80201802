package store

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"policyd.dev/policyd/internal/errs"
)

func TestRequestIDs(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	s := openTest(t, Options{Now: func() time.Time { return now }})
	a := Actor{Name: "uid:1000", RequestID: "r1", RequestHash: []byte("one")}
	apply := func(a Actor, puts ...Put) ([]Applied, error) { return s.Apply(t.Context(), a, puts) }
	first, err := apply(a, policy("web", "one"))
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, policy("web", "two"))
	repeat, err := apply(a, policy("web", "one"))
	if err != nil || len(repeat) != 1 || !proto.Equal(repeat[0].Info, first[0].Info) || repeat[0].Outcome != first[0].Outcome {
		t.Errorf("repeat: %v %v, want %v", repeat, err, first)
	}
	if info, _ := s.Info(KindLandlockPolicy, "web"); info.GetNumber() != 2 {
		t.Errorf("the repeat had an effect: %v", info)
	}
	other := a
	other.RequestHash = []byte("two")
	if _, err := apply(other, policy("web", "three")); !errors.Is(err, errs.ErrRequestReused) {
		t.Errorf("another request of the id: %v", err)
	}
	if err := s.Delete(t.Context(), a, KindLandlockPolicy, "web", nil, false); !errors.Is(err, errs.ErrRequestReused) {
		t.Errorf("another method of the id: %v", err)
	}
	bob := a
	bob.Name = "uid:1001"
	if applied, err := apply(bob, policy("web", "bob")); err != nil || applied[0].Info.GetNumber() != 3 {
		t.Errorf("another actor's id: %v %v", applied, err)
	}
	del := Actor{Name: "uid:1000", RequestID: "r2"}
	for range 2 {
		if err := s.Delete(t.Context(), del, KindLandlockPolicy, "web", nil, false); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	now = now.Add(requestKept)
	if applied, err := apply(a, policy("web", "one")); err != nil || applied[0].Info.GetNumber() != 4 {
		t.Errorf("after a day: %v %v", applied, err)
	}
	if _, err := apply(Actor{RequestID: string(make([]byte, maxRequestID+1))}, policy("web", "x")); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
	start := Actor{Name: "uid:1000", RequestID: "start"}
	if err := s.Remember(t.Context(), start, "start", []byte("sandbox")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Recall(start, "start"); err != nil || string(got) != "sandbox" {
		t.Errorf("recall: %q %v", got, err)
	}
	if _, err := s.Recall(start, "run"); !errors.Is(err, errs.ErrRequestReused) {
		t.Error(err)
	}
	if got, err := s.Recall(Actor{Name: "uid:1000", RequestID: "new"}, "start"); err != nil || got != nil {
		t.Error(got, err)
	}
}
