package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// TestSmack: the kernel holds the bundle's SmackPolicy before the store moves, and what it held when the store does not.
func TestSmack(t *testing.T) {
	m := newMachine(t, 7)
	m.mustActivate(nil, otherPolicy, fmt.Sprintf(smackText, "platform", "r"))
	st, err := m.st.SmackState()
	if err != nil || st.GetAssigned() != "platform" || st.GetAssignedVersion() != 1 || m.rule() != "r" {
		t.Fatalf("after the first: %v %v, the kernel has %q", st, err, m.rule())
	}
	m.mustActivate(nil, otherPolicy, web("one"), dataFragment, fmt.Sprintf(smackText, "platform", "rw"))
	if st, err := m.st.SmackState(); err != nil || st.GetVersion() != 2 || len(st.GetIntent()) != 0 || m.rule() != "rw" {
		t.Fatalf("after the second: %v %v, the kernel has %q", st, err, m.rule())
	}

	// The store refuses: a Binding of this host names a policy that the bundle drops.
	own := store.Put{
		Kind: store.KindBinding, Name: "own", Digest: fleet.Digest([]byte("own")),
		Resource: &apiv1.Resource{Kind: &apiv1.Resource_Binding{Binding: &apiv1.Binding{
			Metadata: &apiv1.Metadata{Name: "own"}, Spec: &apiv1.BindingSpec{Policy: "web"},
		}}},
	}
	if _, err := m.st.Apply(t.Context(), store.Actor{Name: "uid:0"}, []store.Put{own}); err != nil {
		t.Fatal(err)
	}
	if err := m.activate(nil, otherPolicy, fmt.Sprintf(smackText, "platform", "rwx")); !errors.Is(err, errs.ErrReferenced) {
		t.Errorf("error %v", err)
	}
	if st, err := m.st.SmackState(); err != nil || st.GetVersion() != 2 || len(st.GetIntent()) != 0 || m.rule() != "rw" {
		t.Errorf("what was refused: %v %v, the kernel has %q", st, err, m.rule())
	}
	if _, err := m.st.Get(store.KindSmackPolicy, "platform@3"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("its version: %v", err)
	}
	if r := m.report(); !r.Smack || r.SmackRules != 1 {
		t.Errorf("report %+v", r)
	}

	// A bundle without one takes it out; a kernel without Smack fails.
	m.mustActivate(nil, otherPolicy, web("one"), dataFragment)
	if st, err := m.st.SmackState(); err != nil || st.GetAssigned() != "" || m.rule() != "" {
		t.Errorf("dropped: %v %v, the kernel has %q", st, err, m.rule())
	}
	m.fs = nil
	if err := m.activate(nil, otherPolicy, web("one"), dataFragment, fmt.Sprintf(smackText, "platform", "r")); !errors.Is(err, errs.ErrSmackNotBuilt) {
		t.Errorf("without Smack: %v", err)
	}
	m.mustActivate(nil, otherPolicy, web("two"), dataFragment) // which needs none
}

// cutFS lets so many writes through to the kernel; from then on nothing is written, neither there nor into the store, as
// when the process is killed.
type cutFS struct {
	smackfs.FS
	left *int
	cut  func()
}

func (f cutFS) Unwrap() smackfs.FS { return f.FS }

func (f cutFS) Open(name string, flag int) (smackfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return cutFile{file, f}, nil
}

type cutFile struct {
	smackfs.File
	fs cutFS
}

func (f cutFile) Write(p []byte) (int, error) {
	if len(p) == 0 { // asks whether it may
		return f.File.Write(p)
	}
	if *f.fs.left == 0 {
		f.fs.cut()
		return 0, errors.New("killed")
	}
	*f.fs.left--
	n, err := f.File.Write(p)
	if *f.fs.left == 0 {
		f.fs.cut()
	}
	return n, err
}

// TestKilledWithSmack ends an activation at every write to the kernel, and between the last one and the store: after the
// next start the kernel holds the SmackPolicy of the bundle that the store has in force.
func TestKilledWithSmack(t *testing.T) {
	rules := func(access string) string {
		text := fmt.Sprintf(smackText, "platform", access)
		for i := range 600 { // more than one chunk
			text += fmt.Sprintf("        S%d O%d %s\n", i, i, access)
		}
		return text
	}
	for left := 0; ; left++ {
		path := filepath.Join(t.TempDir(), "policyd.db")
		st := storetest.OpenAt(t, path, store.Options{NoSync: true})
		model := smackfs.NewModel(smackfs.ModelKernel{})
		fs := smackfs.FS(model)
		m := &machine{t: t, st: st, fs: model}
		m.smack = smackhost.New(smackhost.Config{Store: st, Find: func() (smackfs.FS, error) { return fs, nil }})
		m.Host = New(Config{Store: st, Smack: m.smack, Support: landlock.Support{State: landlock.Available, ABI: 7}})
		m.mustActivate(nil, otherPolicy, rules("r"))
		n := left
		fs = cutFS{model, &n, func() { st.Close() }}
		err := m.activate(nil, otherPolicy, web("one"), dataFragment, rules("wx"))
		last := n > 0 // more writes than there are
		st.Close()

		st = storetest.OpenAt(t, path, store.Options{NoSync: true})
		m.st, fs = st, smackfs.FS(model)
		m.smack = smackhost.New(smackhost.Config{Store: st, Find: func() (smackfs.FS, error) { return model, nil }})
		if err := m.smack.Boot(t.Context()); err != nil {
			t.Fatalf("after %d writes: %v", left, err)
		}
		state, err2 := st.FleetState()
		if err2 != nil {
			t.Fatal(err2)
		}
		_, webErr := st.Info(store.KindLandlockPolicy, "web")
		switch {
		case (err == nil) != (state.GetActiveSeq() == 2):
			t.Fatalf("after %d writes: %v, and number %d is in force", left, err, state.GetActiveSeq())
		case err != nil && (m.rule() != "r" || !errors.Is(webErr, errs.ErrNotFound)):
			t.Fatalf("after %d writes: the kernel has %q, web: %v", left, m.rule(), webErr)
		case err == nil && (m.rule() != "wx" || webErr != nil):
			t.Fatalf("after %d writes: the kernel has %q, web: %v", left, m.rule(), webErr)
		}
		st.Close()
		if last {
			if err != nil || left < 3 {
				t.Errorf("with %d writes, all: %v", left, err)
			}
			return
		}
	}
}
