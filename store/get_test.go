package store

import (
	"errors"
	"fmt"
	"testing"

	"policyd.dev/policyd/internal/errs"
)

func TestListAndHistory(t *testing.T) {
	s := openTest(t, Options{})
	for i := range 5 {
		team := map[string]string{"team": []string{"edge", "core"}[i%2], "n": fmt.Sprint(i)}
		mustApply(t, s, labelled(policy(fmt.Sprintf("p%d", i), "one"), team))
	}
	mustApply(t, s, policy("p1.x", "one")) // begins as another name
	for i := range 7 {
		mustApply(t, s, policy("p1", fmt.Sprint("v", i)))
	}
	mustApply(t, s, labelled(policy("p1", "labels"), map[string]string{"team": "core"}))
	all, next, err := s.List(KindLandlockPolicy, Filter{})
	if err != nil || next != "" {
		t.Fatal(err, next)
	}
	equal(t, "list", names(all), []string{"p0", "p1", "p1.x", "p2", "p3", "p4"})
	core, _, err := s.List(KindLandlockPolicy, Filter{Labels: map[string]string{"team": "core"}})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "labels", names(core), []string{"p1", "p3"})
	var paged []string
	for after := ""; ; {
		page, next, err := s.List(KindLandlockPolicy, Filter{After: after, Limit: 2})
		if err != nil || len(page) > 2 {
			t.Fatal(len(page), err)
		}
		paged = append(paged, names(page)...)
		if after = next; next == "" {
			break
		}
	}
	equal(t, "pages", paged, names(all))
	for _, c := range []struct {
		before uint64
		limit  int
		want   []uint64
	}{{0, 0, []uint64{9, 8, 7, 6, 5, 4, 3, 2, 1}}, {0, 2, []uint64{9, 8}}, {8, 3, []uint64{7, 6, 5}}, {2, 9, []uint64{1}}, {1, 9, nil}, {100, 1, []uint64{9}}} {
		got, err := s.History(KindLandlockPolicy, "p1", c.before, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("history before %d limit %d", c.before, c.limit), numbers(got), c.want)
	}
	if last, _ := s.History(KindLandlockPolicy, "p4", 0, 0); len(last) != 1 {
		t.Errorf("history of the last name: %v", last)
	}
	if _, err := s.History(KindLandlockPolicy, "none", 0, 0); !errors.Is(err, errs.ErrNotFound) {
		t.Error(err)
	}
	if list, _, err := s.List(KindFragment, Filter{}); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if _, _, err := s.List("Poem", Filter{}); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
}

func TestTags(t *testing.T) {
	s := openTest(t, Options{})
	mustApply(t, s, policy("web", "one"))
	mustApply(t, s, policy("web", "two"))
	tag := func(ref, tag string, remove bool) error {
		_, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, ref, tag, remove, nil)
		return err
	}
	for _, c := range []struct{ ref, tag string }{{"web@1", "stable"}, {"web", "next"}, {"web@stable", "old"}} {
		if err := tag(c.ref, c.tag, false); err != nil {
			t.Fatal(err)
		}
	}
	info, _ := s.Info(KindLandlockPolicy, "web@1")
	equal(t, "tags", info.GetTags(), []string{"old", "stable"})
	if err := tag("web@2", "stable", false); err != nil { // moves
		t.Fatal(err)
	}
	if err := tag("web", "old", true); err != nil {
		t.Fatal(err)
	}
	history, _ := s.History(KindLandlockPolicy, "web", 0, 0)
	equal(t, "tags of 2", history[0].GetTags(), []string{"next", "stable"})
	equal(t, "tags of 1", history[1].GetTags(), nil)
	seq, _ := s.LastSeq()
	if err := tag("web@2", "stable", false); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.LastSeq(); after != seq {
		t.Error("a tag that was there already was logged again")
	}
	for _, c := range []struct {
		ref, tag string
		remove   bool
		want     error
	}{
		{"web", "old", true, errs.ErrNotFound},
		{"web@2", "next", true, errs.ErrInvalid},
		{"web@9", "x", false, errs.ErrNotFound},
		{"web", "9", false, errs.ErrInvalid},
		{"web", "sha256:00000000", false, errs.ErrInvalid},
		{"none", "x", false, errs.ErrNotFound},
	} {
		if err := tag(c.ref, c.tag, c.remove); !errors.Is(err, c.want) {
			t.Errorf("tag %+v: %v", c, err)
		}
	}
}

// Of two who move a tag from the same place the second learns of the first.
func TestTagsExpected(t *testing.T) {
	s := openTest(t, Options{})
	mustApply(t, s, policy("web", "one"))
	mustApply(t, s, policy("web", "two"))
	for _, c := range []struct {
		ref    string
		remove bool
		expect uint64
		want   error
	}{
		{"web@1", false, 1, errs.ErrVersionMismatch}, // no such tag yet
		{"web@1", false, 0, nil},
		{"web@2", false, 0, errs.ErrVersionMismatch},
		{"web@2", false, 2, errs.ErrVersionMismatch},
		{"web@2", false, 1, nil},
		{"web@2", false, 1, errs.ErrVersionMismatch}, // moved already, as another may have done
		{"web@2", false, 2, nil},
		{"web", true, 1, errs.ErrVersionMismatch},
		{"web", true, 0, errs.ErrVersionMismatch},
		{"web", true, 2, nil},
		{"web", true, 2, errs.ErrNotFound},
	} {
		before, err := s.LastSeq()
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.SetTag(t.Context(), alice, KindLandlockPolicy, c.ref, "stable", c.remove, &c.expect)
		if !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		if after, _ := s.LastSeq(); err != nil && after != before {
			t.Errorf("%+v: refused, and logged", c)
		}
	}
}
