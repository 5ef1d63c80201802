package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

// bundleOf are the documents of the bundle a or b: a policy in both, one that changes, one that only this one has.
func bundleOf(which string) []Put {
	return []Put{policy("same", "one"), policy("web", which), policy("only-"+which, "one"), fragment("local/"+which, "one")}
}

// childActivateKilled puts the other bundle into force and kills itself with SIGKILL at the nth system call that writes
// or syncs; a number beyond the last one ends with a word.
func childActivateKilled(args []string) error {
	nth, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	s, err := Open(args[0], Options{})
	if err != nil {
		return err
	}
	st, err := s.FleetState()
	if err != nil {
		return err
	}
	which := "a"
	if st.GetDigest() == digestOf("bundle a") {
		which = "b"
	}
	in, err := newInjector()
	if err != nil {
		fmt.Println("unavailable:", err)
		return nil
	}
	in.record = func(seccompNotif) {
		if in.count == nth {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the call is never let through
		}
	}
	in.arm(0, false, 0)
	if _, err := s.Activate(context.Background(), node, activation(st.GetSeq()+1, which, nil, bundleOf(which)...)); err != nil {
		return err
	}
	in.mu.Lock()
	count := in.count
	in.mu.Unlock() // printing is a call that is counted
	fmt.Println("done", count)
	return nil
}

// TestKilledActivating kills a process before every write and sync of an activation: one bundle or the other is in force
// afterwards, never a mixture.
func TestKilledActivating(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustActivate(t, s, 1, "a", nil, bundleOf("a")...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	in, kept := "a", 0
	for nth := 1; ; nth++ {
		cmd := child("activate-killed", false, path, strconv.Itoa(nth))
		out, err := cmd.Output()
		switch {
		case strings.HasPrefix(string(out), "unavailable"):
			testkernel.Skip(t, string(out), "a kernel with seccomp user notification (5.7)")
		case err == nil:
			t.Logf("%d kills; the bundle of before stayed %d times", nth-1, kept)
			if nth < 3 {
				t.Error("too few kills to mean something")
			}
			return
		case cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL:
			t.Fatalf("at call %d: %v\n%s", nth, err, out)
		}
		now := wholeBundle(t, path)
		if now == in {
			kept++
		}
		in = now
	}
}

// wholeBundle tells which bundle is in force and fails the test when anything of the other is.
func wholeBundle(t *testing.T, path string) string {
	t.Helper()
	wholeFile(t, path)
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	st, documents, overridden, err := s.Fleet()
	if err != nil || len(overridden) > 0 {
		t.Fatalf("overridden %v, %v", overridden, err)
	}
	which, other := "a", "b"
	if st.GetDigest() == digestOf("bundle b") {
		which, other = other, which
	}
	if st.GetDigest() != digestOf("bundle "+which) || st.GetSeq() != st.GetActiveSeq() || len(documents) != len(bundleOf(which)) {
		t.Fatalf("in force is %v with %d documents", st, len(documents))
	}
	for _, p := range bundleOf(which) {
		if info, err := s.Info(p.Kind, p.Name); err != nil || info.GetDigest() != p.Digest || info.GetOrigin() == "" {
			t.Errorf("bundle %s: %s/%s: %v %v", which, p.Kind, p.Name, info, err)
		}
	}
	for _, name := range []string{KindLandlockPolicy + "/only-" + other, KindFragment + "/local/" + other} {
		kind, doc, _ := strings.Cut(name, "/")
		if info, err := s.Info(kind, doc); err == nil {
			t.Errorf("bundle %s is in force with %v of the other", which, info)
		}
	}
	return which
}
