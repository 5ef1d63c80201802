package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// childApplyForever applies versions from several goroutines and writes a line after each acknowledgement.
func childApplyForever(args []string) error {
	s, err := Open(args[0], Options{})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprint("w", w)
				base := fragmentOf("local/base", fmt.Sprint(i/3))
				content := strings.Repeat("x", rand.IntN(20000)) + fmt.Sprint(args[1], i)
				applied, err := s.Apply(context.Background(), alice, []Put{policy(name, content, base)})
				if err != nil {
					fmt.Println("error", err)
					return
				}
				info := applied[0].Info
				fmt.Printf("ok %s %d %s\n", name, info.GetNumber(), info.GetDigest()) // one write(2): not buffered
				if i%20 == 19 {
					if _, err := s.GC(context.Background(), alice); err != nil {
						fmt.Println("error", err)
					}
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// TestKilled kills a process with SIGKILL right after an acknowledgement and at random moments, many times over one
// store: what was acknowledged is there, the newest or in the history, and everything checks.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	total := 0
	for round := range rounds {
		cmd, lines := startChild(t, "apply-forever", path, fmt.Sprint("r", round))
		acknowledged := make(map[string][]string) // name: number, digest of the last one
		read := func() bool {
			if !lines.Scan() {
				return false
			}
			f := strings.Fields(lines.Text())
			if f[0] != "ok" {
				t.Fatalf("round %d: %s", round, lines.Text())
			}
			acknowledged[f[1]] = f[2:]
			total++
			return true
		}
		for range 1 + rand.IntN(30) { // at the last one's moment
			read()
		}
		if round%2 == 1 {
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		}
		cmd.Process.Kill()
		for read() {
		}
		cmd.Wait()
		s, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for name, want := range acknowledged {
			n, _ := strconv.ParseUint(want[0], 10, 64)
			v, err := s.Get(KindLandlockPolicy, name+"@"+want[0])
			if err != nil || v.GetInfo().GetDigest() != want[1] {
				t.Errorf("round %d: acknowledged %s@%d: %v %v", round, name, n, v.GetInfo(), err)
			}
			if newest, err := s.Info(KindLandlockPolicy, name); err != nil || newest.GetNumber() < n || newest.GetNumber() > n+1 {
				t.Errorf("round %d: newest of %s: %v %v, acknowledged %d", round, name, newest, err, n)
			}
			for _, pin := range v.GetInfo().GetPins() {
				if f, err := s.FragmentByDigest(pin.GetDigest()); err != nil || fragmentDigest(f) != pin.GetDigest() {
					t.Errorf("round %d: pinned content: %v", round, err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wholeFile(t, path)
	}
	t.Logf("%d acknowledged versions over %d kills", total, rounds)
	if total < rounds {
		t.Error("too few acknowledgements to mean something")
	}
}

// TestKilledWhileCreating leaves no file that cannot be opened.
func TestKilledWhileCreating(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "policyd.db")
		cmd, _ := startChild(t, "apply-forever", path, "x")
		time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		s, err := Open(path, Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), &apiv1.Event{Type: EventExit}); err != nil {
			t.Error(err)
		}
		s.Close()
		wholeFile(t, path)
	}
}

// What a killed process left beside the store goes when it is old; what another may be writing stays.
func TestStaleFilesAreRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policyd.db")
	var temps [2]string
	for i := range temps {
		var err error
		if temps[i], err = tempBeside(path); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(temps[0], long, long); err != nil {
		t.Fatal(err)
	}
	openAt(t, path, Options{})
	leftNothing(t, path, temps[1])
	if _, err := os.Stat(temps[1]); err != nil {
		t.Error(err)
	}
}
