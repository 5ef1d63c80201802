package store

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// binding makes a Binding of a policy, whose digest depends on its name and the reference.
func binding(name, ref string) Put {
	return pinned(Put{
		Kind: KindBinding, Name: name, Source: "# " + ref,
		Resource: &apiv1.Resource{Kind: &apiv1.Resource_Binding{Binding: &apiv1.Binding{
			Metadata: &apiv1.Metadata{Name: name},
			Spec:     &apiv1.BindingSpec{Match: &apiv1.BindingMatch{Namespace: []string{"edge"}}, Policy: ref},
		}}},
	}, ref, nil)
}

func wantErr(t *testing.T, what string, err, want error, says string) {
	t.Helper()
	if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %v with %q", what, err, want, says)
	}
}

func TestBindingNeedsItsPolicy(t *testing.T) {
	s := openTest(t, Options{})
	mustApply(t, s, policy("web", "one"))
	for _, c := range []struct {
		name string
		puts []Put
		want error
	}{
		{"no policy", []Put{binding("b", "absent")}, errs.ErrNotFound},
		{"no version", []Put{binding("b", "web@2")}, errs.ErrNotFound},
		{"no tag", []Put{binding("b", "web@stable")}, errs.ErrNotFound},
		{"no digest", []Put{binding("b", "web@sha256:00000000")}, errs.ErrNotFound},
		{"no reference", []Put{binding("b", "web@")}, errs.ErrInvalid},
		{"another policy with it", []Put{binding("b", "mail"), policy("web", "two")}, errs.ErrNotFound},
		{"a version beyond the one with it", []Put{binding("b", "web@3"), policy("web", "two")}, errs.ErrNotFound},
	} {
		if _, err := s.Apply(t.Context(), alice, c.puts); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if info, err := s.Info(KindLandlockPolicy, "web"); err != nil || info.GetNumber() != 1 {
		t.Errorf("what was refused left something behind: %v, %v", info, err)
	}
	mustApply(t, s, binding("with", "mail"), binding("number", "web@2"), binding("digest", "web@"+policy("web", "two").Digest[:20]), policy("web", "two"), policy("mail", "one"))
	mustApply(t, s, binding("number", "web@2"), policy("web", "two")) // unchanged: still the second
	list, err := s.Bindings()
	if err != nil || len(list) != 3 || list[0].GetInfo().GetName() != "digest" {
		t.Errorf("%v, %v", list, err)
	}
}

func TestBindingKeepsItsPolicy(t *testing.T) {
	s := openTest(t, Options{KeepVersions: 1})
	mustApply(t, s, policy("web", "one"))
	mustApply(t, s, policy("web", "two"))
	mustApply(t, s, policy("web", "three"))
	if _, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@2", "stable", false, nil); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, binding("old", "web@1"))
	mustApply(t, s, binding("tagged", "web@stable"))
	if n, err := s.GC(t.Context(), alice); err != nil || n != 0 {
		t.Errorf("GC removed %d: %v", n, err)
	}
	for _, purge := range []bool{false, true} {
		err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", nil, purge)
		wantErr(t, "delete of a policy", err, errs.ErrReferenced, "by Binding/old@1, Binding/tagged@1")
	}
	_, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web", "stable", true, nil)
	wantErr(t, "removal of a tag", err, errs.ErrReferenced, "tag stable of LandlockPolicy/web by Binding/tagged@1")
	if _, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@3", "stable", false, nil); err != nil {
		t.Errorf("moving the tag: %v", err)
	}

	// Another version of the Binding, or none, lets go.
	mustApply(t, s, policy("mail", "one"))
	mustApply(t, s, binding("tagged", "mail"))
	if err := s.Delete(t.Context(), alice, KindBinding, "old", nil, false); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Bindings(); err != nil || len(list) != 1 || list[0].GetInfo().GetNumber() != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if n, err := s.GC(t.Context(), alice); err != nil || n != 3 { // web@1, web@2 and tagged@1
		t.Errorf("GC afterwards removed %d: %v", n, err)
	}
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", nil, true); err != nil {
		t.Errorf("delete afterwards: %v", err)
	}

	// Going back to what names a policy that is gone is refused.
	mustApply(t, s, policy("cache", "one"))
	mustApply(t, s, binding("b", "cache"))
	mustApply(t, s, binding("b", "mail"))
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "cache", nil, false); err != nil {
		t.Fatal(err)
	}
	_, err = s.Rollback(t.Context(), alice, KindBinding, "b", 1, nil)
	wantErr(t, "rollback", err, errs.ErrDeleted, "cache")
	_, err = s.Apply(t.Context(), alice, []Put{binding("c", "cache@1")})
	wantErr(t, "a version of a deleted policy", err, errs.ErrDeleted, "cache")
	if info, err := s.Info(KindBinding, "b"); err != nil || info.GetNumber() != 2 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestCheckFindsBindingOfNoPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	s, err := Open(path, Options{NoSync: true}) // not openAt, which wants a whole file at the end
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, policy("web", "one"), binding("b", "web"), policy("mail", "one"), binding("c", "mail@1"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wholeFile(t, path)
	db, err := bolt.Open(path, 0o600, boltOptions(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return kindBucket(tx, bucketKeyHeads, KindLandlockPolicy).Delete([]byte("web"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	problems, _, _, err := CheckFile(t.Context(), path)
	told := func(s string) bool {
		return slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, s) })
	}
	if err != nil || !told("Binding/b@1 names policy web: not found") || told("Binding/c") {
		t.Errorf("problems %q, %v", problems, err)
	}
}
