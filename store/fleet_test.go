package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

var node = Actor{Name: "fleet:prod/stable"}

func activation(seq uint64, content string, overridable []string, puts ...Put) Activation {
	return Activation{
		State:  &apiv1.FleetState{Fleet: "prod", Channel: "stable", Seq: seq, Pointer: []byte("note"), ClusterId: 9, Revision: int64(seq)},
		Digest: digestOf("bundle " + content), Blob: []byte("bundle " + content), Puts: puts,
		Overridable: func(kind, name string) bool { return slices.Contains(overridable, kind+"/"+name) },
	}
}

func mustActivate(t testing.TB, s *Store, seq uint64, content string, overridable []string, puts ...Put) *Activated {
	t.Helper()
	done, err := s.Activate(t.Context(), node, activation(seq, content, overridable, puts...))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestActivate(t *testing.T) {
	s := openTest(t, Options{KeepVersions: 1})
	base := fragmentOf("local/base", "one")
	mustApply(t, s, policy("web", "local"), policy("mine", "one"))
	done := mustActivate(t, s, 1, "a", nil, fragment("local/base", "one"), policy("web", "one", base), policy("db", "one"))
	if done.Changed != 3 || done.Removed != 0 {
		t.Errorf("first: %+v", done)
	}
	list, _, err := s.List(KindLandlockPolicy, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, info := range list {
		got = append(got, fmt.Sprint(info.GetName(), "@", info.GetNumber(), " ", info.GetOrigin()))
	}
	equal(t, "policies", got, []string{"db@1 stable@1", "mine@1 ", "web@2 stable@1"})
	history, err := s.History(KindLandlockPolicy, "web", 0, 0)
	if err != nil || history[0].GetOrigin() != "stable@1" || history[1].GetOrigin() != "" || history[0].GetAuthor() != node.Name {
		t.Errorf("history: %v %v", history, err)
	}

	// The next bundle: one policy is unchanged, one changes, one is gone though a sandbox runs it.
	if err := s.PutSandboxes(t.Context(), []*apiv1.Sandbox{sandbox("abc", "db", 1, apiv1.SandboxState_SANDBOX_STATE_RUNNING)}, nil); err != nil {
		t.Fatal(err)
	}
	done = mustActivate(t, s, 3, "b", nil, policy("web", "two"), policy("new", "one"))
	if done.Changed != 2 || done.Removed != 2 {
		t.Errorf("second: %+v", done)
	}
	if _, err := s.Info(KindLandlockPolicy, "db"); !errors.Is(err, errs.ErrDeleted) {
		t.Errorf("what the bundle holds no more: %v", err)
	}
	if v, err := s.Get(KindLandlockPolicy, "db@1"); err != nil || !v.GetInfo().GetDeleted() {
		t.Errorf("its history: %v %v", v.GetInfo(), err)
	}
	st, documents, overridden, err := s.Fleet()
	if err != nil || len(documents) != 2 || len(overridden) != 0 || st.GetSeq() != 3 || st.GetActiveSeq() != 3 ||
		st.GetDigest() != digestOf("bundle b") || st.GetPrevious() != digestOf("bundle a") || st.GetAccepted()["prod/stable"].GetSeq() != 3 {
		t.Errorf("state %v, documents %v, overridden %v, %v", st, documents, overridden, err)
	}

	// Back to the former bundle, whose bytes are kept, under a newer number; the one before that is not kept any more.
	mustActivate(t, s, 4, "c", nil, policy("web", "one", base))
	if _, err := s.FleetBundle(digestOf("bundle a")); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a bundle of long ago: %v", err)
	}
	for _, content := range []string{"bundle b", "bundle c"} {
		if blob, err := s.FleetBundle(digestOf(content)); err != nil || string(blob) != content {
			t.Errorf("%s: %q %v", content, blob, err)
		}
	}
	mustActivate(t, s, 5, "c", nil, policy("web", "one", base)) // the same again, by a newer pointer
	if st, err := s.FleetState(); err != nil || st.GetPrevious() != digestOf("bundle b") || st.GetActiveSeq() != 5 {
		t.Errorf("state %v %v", st, err)
	}
	if _, err := s.Activate(t.Context(), node, activation(4, "b", nil, policy("web", "two"))); !errors.Is(err, errs.ErrVersionMismatch) {
		t.Errorf("an older pointer: %v", err)
	}
	events, err := s.Events(0, 0)
	if last := events[len(events)-1]; err != nil || last.GetType() != EventFleetActivate || last.GetAttributes()["seq"] != "5" {
		t.Errorf("last entry of the log: %v %v", last, err)
	}
}

// TestNotEditable: what the bundle holds is not changed here, whatever the way.
func TestNotEditable(t *testing.T) {
	s := openTest(t, Options{})
	mustActivate(t, s, 1, "a", nil, policy("web", "one"))
	mustActivate(t, s, 2, "b", nil, policy("web", "two"))
	changes := map[string]func() error{
		"apply": func() error {
			_, err := s.Apply(t.Context(), alice, []Put{policy("other", "x"), policy("web", "three")})
			return err
		},
		"rollback": func() error { _, err := s.Rollback(t.Context(), alice, KindLandlockPolicy, "web", 1, nil); return err },
		"tag": func() error {
			_, err := s.SetTag(t.Context(), alice, KindLandlockPolicy, "web@1", "stable", false, nil)
			return err
		},
		"delete":  func() error { return s.Delete(t.Context(), alice, KindLandlockPolicy, "web", nil, false) },
		"purge":   func() error { return s.Delete(t.Context(), alice, KindLandlockPolicy, "web", nil, true) },
		"dry run": func() error { return s.CheckFleet(KindLandlockPolicy, "web", false) },
	}
	for name, change := range changes {
		if err := change(); !errors.Is(err, errs.ErrFromChannel) || !strings.Contains(err.Error(), "policyctl fleet publish stable") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := s.Info(KindLandlockPolicy, "web"); err != nil || info.GetNumber() != 2 {
		t.Errorf("afterwards: %v %v", info, err)
	}
	if _, err := s.Info(KindLandlockPolicy, "other"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("what was refused with it: %v", err)
	}
	mustApply(t, s, policy("own", "one"), fragment("web", "of another kind"))
	if err := s.LeaveFleet(t.Context(), alice); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, policy("web", "three"))
	if _, err := s.Activate(t.Context(), node, activation(1, "a", nil, policy("web", "one"))); !errors.Is(err, errs.ErrVersionMismatch) {
		t.Errorf("an old pointer after the fleet was left: %v", err)
	}
}

// TestOverride: a version of this host's own stays as long as the bundle allows it.
func TestOverride(t *testing.T) {
	s := openTest(t, Options{})
	may := []string{"LandlockPolicy/web"}
	mustApply(t, s, policy("web", "before the fleet"))
	mustActivate(t, s, 1, "a", may, policy("web", "one"))
	if info, err := s.Info(KindLandlockPolicy, "web"); err != nil || info.GetOrigin() != "stable@1" {
		t.Errorf("what was there is no override: %v %v", info, err)
	}
	mustApply(t, s, policy("web", "own"))
	if err := s.Delete(t.Context(), alice, KindLandlockPolicy, "web", nil, false); !errors.Is(err, errs.ErrFromChannel) {
		t.Errorf("delete: %v", err)
	}
	mustActivate(t, s, 2, "a", may, policy("web", "one"))
	mustActivate(t, s, 3, "b", may, policy("web", "two"))
	head, err := s.Info(KindLandlockPolicy, "web")
	if err != nil || head.GetDigest() != policy("web", "own").Digest || head.GetOrigin() != "" || head.GetAuthor() != alice.Name {
		t.Errorf("own version: %v %v", head, err)
	}
	_, documents, overridden, err := s.Fleet()
	if err != nil || len(overridden) != 1 || documents[0].GetDigest() != policy("web", "two").Digest {
		t.Errorf("documents %v, overridden %v, %v", documents, overridden, err)
	}
	if _, err := s.Rollback(t.Context(), alice, KindLandlockPolicy, "web", documents[0].GetNumber(), nil); err != nil {
		t.Errorf("back to the fleet's: %v", err)
	}
	if _, _, overridden, err = s.Fleet(); err != nil || len(overridden) != 0 {
		t.Errorf("overridden afterwards: %v %v", overridden, err)
	}
	mustApply(t, s, policy("web", "own"))
	mustActivate(t, s, 4, "c", nil, policy("web", "two"))
	if info, err := s.Info(KindLandlockPolicy, "web"); err != nil || info.GetDigest() != policy("web", "two").Digest || info.GetOrigin() != "stable@4" {
		t.Errorf("not allowed any more: %v %v", info, err)
	}
}

// TestActivationIsRefusedWhole: whatever is wrong with one document, nothing of the bundle is there afterwards.
func TestActivationIsRefusedWhole(t *testing.T) {
	s := openTest(t, Options{})
	mustActivate(t, s, 1, "a", nil, policy("web", "one"), smackPolicy("platform", "one"))
	mustApply(t, s, binding("local", "web"))
	if err := s.SetSmackState(t.Context(), &apiv1.SmackState{Assigned: "platform", AssignedVersion: 1}); err != nil {
		t.Fatal(err)
	}
	before, _ := s.FleetState()
	last, _ := s.LastSeq()
	seven := uint64(7)
	for name, c := range map[string]struct {
		puts []Put
		want error
		act  func(*Activation)
	}{
		"a Binding of the host names what goes": {[]Put{policy("new", "one"), smackPolicy("platform", "one")}, errs.ErrReferenced, nil},
		"the host's smackfs holds what goes":    {[]Put{policy("web", "two")}, errs.ErrReferenced, nil},
		"a Binding without its policy":          {[]Put{policy("web", "two"), smackPolicy("platform", "two"), binding("b", "nowhere")}, errs.ErrNotFound, nil},
		"another version is expected":           {[]Put{policy("web", "two"), {Kind: KindFragment, Name: "f", Resource: fragment("f", "x").Resource, Digest: fragment("f", "x").Digest, Expect: &seven}}, errs.ErrVersionMismatch, nil},
		"a document twice":                      {[]Put{policy("web", "two"), policy("web", "two")}, errs.ErrInvalid, nil},
		"no digest":                             {[]Put{policy("web", "two")}, errs.ErrInvalid, func(a *Activation) { a.Digest = "" }},
		"smackfs of a policy that is not there": {
			[]Put{policy("web", "two"), smackPolicy("platform", "two")},
			errs.ErrNotFound,
			func(a *Activation) { a.Smack = &apiv1.SmackState{Policy: "other", Version: 1} },
		},
	} {
		act := activation(2, "b", nil, c.puts...)
		if c.act != nil {
			c.act(&act)
		}
		if _, err := s.Activate(t.Context(), node, act); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, err := s.FleetState(); err != nil || !proto.Equal(before, after) {
		t.Errorf("state %v %v", after, err)
	}
	if now, err := s.LastSeq(); err != nil || now != last {
		t.Errorf("entries of the log: %d, before %d, %v", now, last, err)
	}
	if info, err := s.Info(KindLandlockPolicy, "web"); err != nil || info.GetNumber() != 1 {
		t.Errorf("web: %v %v", info, err)
	}
	// With what it needs, smackfs's record moves in the same transaction.
	act := activation(2, "b", nil, policy("web", "two"), smackPolicy("platform", "two"))
	act.Smack = &apiv1.SmackState{Assigned: "platform"} // its number is found here
	act.Events = []*apiv1.Event{{Type: EventSmackLoad, Subject: "platform@2"}}
	if _, err := s.Activate(t.Context(), node, act); err != nil {
		t.Fatal(err)
	}
	if st, err := s.SmackState(); err != nil || st.GetAssignedVersion() != 2 {
		t.Errorf("smackfs: %v %v", st, err)
	}
}

func TestFleetStateOfManyChannels(t *testing.T) {
	s := openTest(t, Options{})
	set := func(channel string, seq uint64) error {
		return s.SetFleetState(t.Context(), &apiv1.FleetState{Fleet: "prod", Channel: channel, Seq: seq})
	}
	for _, c := range []struct {
		channel string
		seq     uint64
		refused bool
	}{{"stable", 5, false}, {"stable", 5, false}, {"stable", 4, true}, {"edge", 2, false}, {"stable", 4, true}, {"edge", 1, true}, {"stable", 6, false}} {
		if err := set(c.channel, c.seq); errors.Is(err, errs.ErrVersionMismatch) != c.refused || err != nil && !c.refused {
			t.Errorf("%s %d: %v", c.channel, c.seq, err)
		}
	}
	mustActivate(t, s, 7, "a", nil, policy("web", "one"))
	if err := set("edge", 3); err != nil {
		t.Fatal(err)
	}
	if st, err := s.FleetState(); err != nil || st.GetDigest() != digestOf("bundle a") || st.GetActiveSeq() != 7 {
		t.Errorf("what is in force stays: %v %v", st, err)
	}
}

func TestFleetVersionsAreKept(t *testing.T) {
	s := openTest(t, Options{KeepVersions: 1})
	may := []string{"LandlockPolicy/web"}
	mustActivate(t, s, 1, "a", may, policy("web", "one"))
	mustApply(t, s, policy("web", "own"))
	mustApply(t, s, policy("web", "own 2"))
	if n, err := s.GC(t.Context(), alice); err != nil || n != 1 {
		t.Errorf("GC removed %d: %v", n, err)
	}
	if _, err := s.Get(KindLandlockPolicy, "web@1"); err != nil {
		t.Error(err)
	}
}

func TestCheckFindsFleetDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustActivate(t, s, 1, "a", nil, policy("web", "one"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	put := func(b *bolt.Bucket, key []byte, m proto.Message) error {
		payload, err := marshal(m)
		if err == nil {
			err = b.Put(key, seal(key, payload))
		}
		return err
	}
	db, err := bolt.Open(path, 0o600, boltOptions(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		documents := tx.Bucket(bucketKeyFleetDocuments)
		return errors.Join(
			tx.Bucket(bucketKeyFleet).Delete(fleetBundleKey(digestOf("bundle a"))),
			put(documents, joinKey(KindLandlockPolicy, "web"), &apiv1.FleetDocument{Kind: KindLandlockPolicy, Name: "web", Number: 1, Digest: digestOf("other")}),
			put(documents, joinKey(KindLandlockPolicy, "gone"), &apiv1.FleetDocument{Kind: KindLandlockPolicy, Name: "gone", Number: 1}),
			put(documents, joinKey(KindLandlockPolicy, "x"), &apiv1.FleetDocument{Kind: KindLandlockPolicy, Name: "web", Number: 1}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	problems, _, _, err := CheckFile(t.Context(), path)
	if err != nil || len(problems) != 4 {
		t.Errorf("problems %q, %v", problems, err)
	}
}

// TestWitness: what a host has seen of channels as a controller outlives it, is no state of the channel that it follows, and
// does not fall.
func TestWitness(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	s := openAt(t, path, Options{})
	mustActivate(t, s, 4, "a", nil, policy("web", "one"))
	for _, seq := range []uint64{7, 5, 7} {
		if err := s.WitnessFleet(t.Context(), "prod", "stable", seq, digestOf(fmt.Sprint(seq))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.WitnessFleet(t.Context(), "prod", "edge", 3, digestOf("edge")); err != nil {
		t.Fatal(err)
	}
	mustActivate(t, s, 5, "b", nil, policy("web", "two")) // the agent may be behind
	if err := s.LeaveFleet(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, Options{})
	mustActivate(t, s, 6, "c", nil, policy("web", "two"))
	for _, c := range []struct {
		fleet, channel string
		want           uint64
	}{{"prod", "stable", 7}, {"prod", "edge", 3}, {"prod", "lab", 0}, {"test", "stable", 0}} {
		if got, err := s.FleetWitnessed(c.fleet, c.channel); err != nil || got != c.want {
			t.Errorf("%s of %s: %d %v, want %d", c.channel, c.fleet, got, err, c.want)
		}
	}
	mustActivate(t, s, 9, "d", nil, policy("web", "three"))
	if got, err := s.FleetWitnessed("prod", "stable"); err != nil || got != 9 {
		t.Errorf("the agent's own: %d %v", got, err)
	}
}
