package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// What becomes of a sandbox whose policyd is killed, by when it ends.
func TestExitAfterRestart(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		for _, tc := range []struct {
			name, script string
			endFirst     bool // it ends before the next policyd begins
			kill         bool // it is ended by that one
		}{
			{"ends after the restart", `while ! [ -e "$1".go ]; do sleep 0.02; done; exit 9`, false, false},
			{"killed after the restart", `sleep 1000 & sleep 1000`, false, true},
			{"ends unseen", `while ! [ -e "$1".go ]; do sleep 0.02; done; : > "$1".over; exit 9`, true, false},
		} {
			t.Run(tc.name, func(t *testing.T) {
				c := newCrashed(t, containment)
				c.crash(t, tc.script, func(acks <-chan string) { <-acks })
				mark := filepath.Join(c.dir, "marks", "one")
				release := func() {
					if err := os.WriteFile(mark+".go", nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if tc.endFirst {
					release()
					eventually(t, "it ended", func() bool {
						_, err := os.Stat(mark + ".over")
						return err == nil
					})
					time.Sleep(100 * time.Millisecond)
				}
				m, st := c.restart(t)
				defer c.finish(t, m, st)
				want := int32(9)
				switch {
				case tc.kill:
					want = 128 + int32(syscall.SIGKILL)
					if err := m.Signal(c.acked["one"], int(syscall.SIGKILL), true); err != nil {
						t.Fatal(err)
					}
				case !tc.endFirst:
					release()
				}
				exit, err := m.Wait(t.Context(), c.acked["one"])
				if err != nil {
					t.Fatal(err)
				}
				sb, err := m.Get(c.acked["one"])
				if err != nil {
					t.Fatal(err)
				}
				unknown := sb.GetState() == apiv1.SandboxState_SANDBOX_STATE_UNKNOWN
				switch {
				case exit.GetUnknown() != unknown:
					t.Errorf("exit %v with state %v", exit, sb.GetState())
				case !unknown && exit.GetCode() != want:
					t.Errorf("exit %v, want %d", exit, want)
				case unknown && containment == "supervisor":
					t.Errorf("the supervisor's word is lost: %v", exit)
				case unknown && !tc.endFirst && kernelTells(t):
					t.Errorf("it ended while it was waited for, and nobody is said to have seen it: %v", exit)
				}
				if sb.GetEnded() == nil || m.AliveBy(1) != 0 {
					t.Errorf("record %v, %d alive", sb, m.AliveBy(1))
				}
				c.checkEvents(t, m, st, 0)
			})
		}
	})
}

// What got away by double fork is still held after a restart: it ends with its sandbox.
func TestDescendantsAfterRestart(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		c := newCrashed(t, containment)
		script := `setsid sh -c 'sleep 1000 & echo $! > "$0".new; mv "$0".new "$0"; exec sleep 1000' "$1" </dev/null >/dev/null 2>&1 &
			while ! [ -e "$1".go ]; do sleep 0.02; done; exit 0`
		mark := filepath.Join(c.dir, "marks", "one")
		pid := 0
		c.crash(t, script, func(acks <-chan string) {
			<-acks
			eventually(t, "the daemon runs", func() bool {
				data, err := os.ReadFile(mark)
				pid, _ = strconv.Atoi(strings.TrimSpace(string(data)))
				return err == nil && pid > 0
			})
		})
		m, st := c.restart(t)
		defer c.finish(t, m, st)
		usage := m.Usage()
		if len(usage) != 1 || usage[0].GetProcesses() < 3 {
			t.Errorf("after the restart %v is used", usage)
		}
		if err := os.WriteFile(mark+".go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Wait(t.Context(), c.acked["one"]); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !isZombie(pid) {
			t.Errorf("daemon %d outlived its sandbox: %v", pid, err)
		}
	})
}

// An attached sandbox has lost its client with policyd.
func TestAttachedAfterRestart(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		c := newCrashed(t, containment)
		c.crash(t, "attached:trap '' HUP; while :; do sleep 1; done", func(acks <-chan string) { <-acks })
		m, st := c.restart(t)
		defer c.finish(t, m, st)
		exit, err := m.Wait(t.Context(), c.acked["one"])
		if err != nil || exit.GetSignal() != int32(syscall.SIGKILL) && !exit.GetUnknown() {
			t.Errorf("exit %v, %v", exit, err)
		}
	})
}

// A graceful stop leaves detached sandboxes alone and ends attached ones.
func TestStop(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	dir := t.TempDir()
	sb, err := m.Start(t.Context(), testRequest(t, dir, "sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	a, _, finished := attach(t, m, testRequest(t, dir, "sleep", "1000"))
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-finished; !errors.Is(err, errs.ErrShutdown) {
		t.Errorf("stream: %v", err)
	}
	if _, err := m.Start(t.Context(), testRequest(t, dir, "/bin/true")); !errors.Is(err, errs.ErrShutdown) {
		t.Errorf("start after stop: %v", err)
	}
	if rec, err := m.cfg.Store.Sandbox(a.Sandbox().GetId()); err != nil || rec.GetExit().GetSignal() != int32(syscall.SIGHUP) {
		t.Errorf("attached: %v, %v", rec, err)
	}
	next, err := New(t.Context(), m.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopAll(t, next) })
	got, err := next.Get(sb.GetId())
	if err != nil || got.GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING || got.GetPid() != sb.GetPid() {
		t.Errorf("detached after restart: %v, %v", got, err)
	}
}

// kernelTells: from 6.15 on the kernel tells the status of processes that are not ours
// and were waited for; an older one only while they were not.
func kernelTells(t *testing.T) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil && info.Supported_mask&unix.PIDFD_INFO_EXIT != 0
}
