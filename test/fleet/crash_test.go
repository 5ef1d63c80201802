package fleettest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/agent"
	"policyd.dev/policyd/internal/fleet/host"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// childActivate verifies what the one before it has left, says so, and then puts one of two bundles into force after the
// other, until it is killed. Its arguments are the store and the files of the bundles.
func childActivate(args []string) error {
	st, err := store.Open(args[0], store.Options{})
	if err != nil {
		return err
	}
	var bundles []agent.Activation
	for _, path := range args[1:] {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b, err := fleet.Decode(raw)
		if err != nil {
			return err
		}
		bundles = append(bundles, agent.Activation{Digest: fleet.Digest(raw), Blob: raw, Manifest: &fleet.Manifest{}, Bundle: b})
	}
	seq, active, err := whole(st, bundles)
	if err != nil {
		return err
	}
	fmt.Println("whole", seq, active)
	h := host.New(host.Config{
		Store: st, Smack: smackhost.New(smackhost.Config{Store: st, Find: noSmack}), Support: landlock.Support{State: landlock.Available, ABI: 7},
	})
	for {
		seq++
		a := bundles[seq%2]
		a.State = &apiv1.FleetState{Fleet: fleetName, Channel: "stable", Seq: seq}
		if err := h.Keep(context.Background(), a.State); err != nil {
			return err
		}
		if err := h.Activate(context.Background(), a); err != nil {
			return err
		}
		if os.Getenv(unsaidEnv) != "" {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		fmt.Println("active", seq)
	}
}

// unsaidEnv makes the child end by SIGKILL between the first commit of a bundle and its word of it, a moment that a kill
// from outside rarely meets.
const unsaidEnv = "POLICYD_TEST_UNSAID"

// whole tells the newest sequence number and the one of the bundle in force; an error when anything of another is in
// force with it.
func whole(st *store.Store, bundles []agent.Activation) (seq, active uint64, err error) {
	state, documents, overridden, err := st.Fleet()
	if err != nil {
		return 0, 0, err
	}
	which := -1
	for i, a := range bundles {
		if a.Digest == state.GetDigest() {
			which = i
		}
	}
	want := map[string]string{}
	if which >= 0 {
		for _, d := range bundles[which].Bundle.Docs {
			if !policy.IsReserved(d.Name) {
				want[d.Kind+"/"+d.Name] = d.Digest
			}
		}
		if blob, err := st.FleetBundle(state.GetDigest()); err != nil || fleet.Digest(blob) != state.GetDigest() {
			return 0, 0, fmt.Errorf("the bytes of the bundle in force: %w", err)
		}
	}
	if len(documents) != len(want) || len(overridden) > 0 {
		return 0, 0, fmt.Errorf("of bundle %d there are %d documents, want %d", which, len(documents), len(want))
	}
	for _, kind := range store.Kinds() {
		infos, _, err := st.List(kind, store.Filter{})
		if err != nil {
			return 0, 0, err
		}
		for _, info := range infos {
			key := kind + "/" + info.GetName()
			if want[key] != info.GetDigest() || info.GetOrigin() == "" {
				return 0, 0, fmt.Errorf("with bundle %d there is %s %s", which, key, info.GetDigest())
			}
			delete(want, key)
		}
	}
	if len(want) > 0 {
		return 0, 0, fmt.Errorf("of bundle %d these are not there: %v", which, want)
	}
	if active = state.GetActiveSeq(); which >= 0 && which != int(active%2) {
		return 0, 0, fmt.Errorf("bundle %d is in force by number %d", which, active)
	}
	return state.GetSeq(), active, nil
}

// TestKilledActivating kills a process that activates with SIGKILL, a thousand times: never a mixture of two bundles, and
// what was acknowledged is not taken back.
func TestKilledActivating(t *testing.T) {
	t.Parallel()
	const stores = 4
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	for range stores {
		t.Run("store", func(t *testing.T) {
			t.Parallel()
			killedActivating(t, rounds/stores)
		})
	}
}

func killedActivating(t *testing.T, rounds int) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	a, _ := bundle(t, webPolicy("web", "/srv/a"), webPolicy("same", "/srv"), webPolicy("only-a", "/srv/a"))
	b, _ := bundle(t, webPolicy("web", "/srv/b"), webPolicy("same", "/srv"), webPolicy("only-b", "/srv/b"))
	args := []string{path, writeFile(t, "a", a), writeFile(t, "b", b)}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var kept, acknowledged uint64
	met := map[string]int{}
	for round := range rounds {
		cmd := exec.Command(exe, args...)
		cmd.Env = append(os.Environ(), childEnv+"=activate")
		unsaid := round%10 == 9
		if unsaid {
			cmd.Env = append(cmd.Env, unsaidEnv+"=1")
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var text strings.Builder
		cmd.Stderr = &text
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var verdict string
		var seq, active uint64
		if !lines.Scan() {
			_ = cmd.Wait()
			t.Fatalf("round %d, after number %d: %s", round, acknowledged, text.String())
		}
		if _, err := fmt.Sscan(lines.Text(), &verdict, &seq, &active); err != nil || verdict != "whole" || seq < kept || active < acknowledged {
			t.Fatalf("round %d: %q %v, number %d was acknowledged", round, lines.Text(), err, acknowledged)
		}
		switch { // how far the one before had come
		case active > acknowledged:
			met["after the bundle"]++
		case seq > kept:
			met["between the pointer and the bundle"]++
		default:
			met["before the pointer"]++
		}
		kept, acknowledged = seq, active
		patience := rand.N(12 * time.Millisecond)
		if unsaid {
			patience = time.Minute
		}
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &verdict, &seq); err != nil || verdict != "active" {
				t.Fatalf("round %d: %q %v", round, lines.Text(), err)
			}
			kept, acknowledged = seq, seq
		}
		kill.Stop()
		var ended *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("round %d: %v %s", round, err, text.String())
		}
	}
	problems, entries, _, err := store.CheckFile(t.Context(), path)
	if err != nil || len(problems) > 0 {
		t.Errorf("store: %v %v", problems, err)
	}
	t.Logf("%d rounds up to number %d, %d entries in the log; the kills came %v", rounds, kept, entries, met)
	if met["after the bundle"] == 0 {
		t.Error("no kill came between a commit and its acknowledgement")
	}
}
