package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A version that was answered with OK is there after kill -9, whatever the daemon was about to do.
func TestAppliedVersionSurvivesKill(t *testing.T) {
	d := startDaemon(t, t.TempDir())
	for n := 1; n <= 10; n++ {
		d.apply(policy("kept", fmt.Sprintf("{allow: [read], at: [/round/%d], missing: skip}", n)))
		d.stop(syscall.SIGKILL)
		d.start()
		if got := d.must("get", "policy", "kept", "-o", "name"); got != fmt.Sprintf("policy/kept@%d", n) {
			t.Fatalf("after round %d: %s", n, got)
		}
	}
	d.must("db", "check")
}

// Sandboxes outlive policyd, however it ends, stay confined, and are found again.
func TestSandboxSurvivesRestart(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			d := startDaemon(t, filepath.Join(dir, "state"))
			work := filepath.Join(dir, "work")
			if err := os.Mkdir(work, 0o755); err != nil {
				t.Fatal(err)
			}
			d.apply(policy("long", "{allow: [read, write, create, remove], at: ["+work+"]}"))
			secret := filepath.Join(dir, "secret")
			if err := os.WriteFile(secret, []byte("a secret\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			script := `echo before; while [ ! -e ` + work + `/go ]; do sleep 0.1; done; echo after; cat ` + secret + ` || echo refused; : > ` + work + `/done; sleep 600`
			id := d.must("run", "long", "--detach", "--", "sh", "-c", script)
			eventually(t, "first output", func() bool { return strings.Contains(d.must("logs", id), "before") })

			d.stop(sig)
			d.start()
			if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the sandbox goes on after the restart", func() bool {
				_, err := os.Stat(filepath.Join(work, "done"))
				return err == nil
			})
			if got := d.must("logs", id); !strings.Contains(got, "after\n") || !strings.Contains(got, "refused") || strings.Contains(got, "a secret") {
				t.Errorf("output after the restart: %q", got)
			}
			if ps := d.must("ps", "-o", "name"); ps != id {
				t.Errorf("ps after the restart: %q, want %s", ps, id)
			}
			d.must("kill", id)
			if r := d.ctl("wait", id); r.code == 0 {
				t.Errorf("wait of a killed sandbox: %s", r)
			}
			d.must("db", "check")
		})
	}
}

// What a sandbox started dies with it, also when it did all it could to get away.
func TestDescendantsDie(t *testing.T) {
	d := startDaemon(t, t.TempDir())
	d.apply(policy("forks", "{allow: [read, execute], at: [/usr/bin/setsid]}"))
	mark := fmt.Sprintf("%d.%d", 4000+os.Getpid()%1000, time.Now().Nanosecond())
	id := d.must("run", "forks", "--detach", "--", "sh", "-c",
		`(setsid sh -c 'sleep `+mark+` & sleep `+mark+` & exec sleep `+mark+`' &) ; sleep `+mark)
	eventually(t, "four sleepers", func() bool { return len(processesWith(mark)) >= 4 })
	d.must("kill", "--all", id)
	eventually(t, "nobody is left", func() bool { return len(processesWith(mark)) == 0 })

	// The first process ending by itself takes the rest along, too.
	id = d.must("run", "forks", "--detach", "--", "sh", "-c", `(setsid sh -c 'sleep `+mark+` & sleep `+mark+`' &); sleep 0.5`)
	d.ctl("wait", id)
	eventually(t, "nobody is left after the first process ended", func() bool { return len(processesWith(mark)) == 0 })
}

// processesWith lists the pids whose arguments hold the mark, without policyctl, policyd and shells that only carry it in a script.
func processesWith(mark string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range dirs {
		b, err := os.ReadFile(f)
		if err == nil && strings.HasPrefix(string(b), "sleep\x00"+mark) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}
