package smackhost

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// TestEarly: the early load and the daemon after it come to what the daemon alone comes to, wherever the early load is
// killed, and the daemon changes nothing when it was not.
func TestEarly(t *testing.T) {
	h := newHost(t)
	v := h.apply("platform", "A B rw\nC D x\nE F a", "{ambient: Net}")
	h.load(v, LoadOptions{})
	want := h.kernel()
	for killed := 0; ; killed++ {
		h.reboot()
		h.write("load2", "S T r") // systemd's own
		runtime := t.TempDir()
		k := &killer{left: killed}
		early := NewEarly(killedStore{h.st, &killer{left: 0}}, runtime) // the store itself is not written
		m := New(Config{Store: earlyKilled{early, k}, Find: func() (smackfs.FS, error) { return killedFS{h.fs, k}, nil }, Log: quiet()})
		err := m.Boot(t.Context())
		events := h.events(store.EventSmackLoad)

		h.restart()
		adopted, aerr := AdoptEarly(t.Context(), h.st, runtime)
		if aerr != nil || adopted != (killed > 0) {
			t.Fatalf("killed after %d: adopted %v, %v", killed, adopted, aerr)
		}
		if again, err := AdoptEarly(t.Context(), h.st, runtime); again || err != nil {
			t.Errorf("adopted twice: %v, %v", again, err)
		}
		daemon := &killer{left: -1}
		h.Manager = New(Config{Store: h.st, Find: func() (smackfs.FS, error) { return killedFS{h.fs, daemon}, nil }, Log: quiet()})
		if err := h.Boot(t.Context()); err != nil {
			t.Fatalf("killed after %d: the daemon: %v", killed, err)
		}
		want["S T"] = "r"
		h.same("after the daemon", want)
		if s := h.state(); s.GetPolicy() != "platform" || s.GetOwn() != 3 || s.GetForeign() != 1 || s.GetDriftTotal() != 0 {
			t.Errorf("killed after %d: %v", killed, s)
		}
		if err == nil {
			if daemon.count != 0 {
				t.Errorf("the daemon wrote to a kernel that was as it should be")
			}
			if n := h.events(store.EventSmackLoad) - events; n == 0 {
				t.Error("the load at boot is not in the log")
			}
			break
		}
	}
	if _, _, err := h.Unload(t.Context(), store.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	if got := h.kernel(); got["A B"] != "" || got["S T"] != "r" {
		t.Errorf("after an unload: %v", got)
	}
}

// earlyKilled is an early load's store that is killed with it.
type earlyKilled struct {
	*Early
	k *killer
}

func (s earlyKilled) SetSmackState(ctx context.Context, st *apiv1.SmackState, events ...*apiv1.Event) error {
	if err := s.k.step(); err != nil {
		return err
	}
	return s.Early.SetSmackState(ctx, st, events...)
}

// TestEarlyFile: a file that is damaged, of another boot or no file at all is not believed.
func TestEarlyFile(t *testing.T) {
	h := newHost(t)
	for text, bad := range map[string]bool{
		"": true, "{": true, `{"bootID": 1}`: true, `{"state": "AAAA"}`: true,
		`{"bootID": "an-earlier-boot"}`: false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, EarlyFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if adopted, err := AdoptEarly(t.Context(), h.st, dir); adopted || (err != nil) != bad {
			t.Errorf("%q: %v, %v", text, adopted, err)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("/dev/zero", filepath.Join(dir, EarlyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := AdoptEarly(t.Context(), h.st, dir); err == nil {
		t.Error("a symlink is followed")
	}
	if adopted, err := AdoptEarly(t.Context(), h.st, t.TempDir()); adopted || err != nil {
		t.Errorf("nothing: %v, %v", adopted, err)
	}
}
