package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// The core of a detached sandbox, on every kernel: confined as asked, output kept,
// exit status told, everything recorded.
func TestDetached(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		eachContainment(t, func(t *testing.T, containment string) {
			cfg := testConfig(t, containment)
			m := newTestManager(t, cfg)
			dir := t.TempDir()
			r := shell(t, dir, `echo out; echo err >&2; echo x > "$1"/in && echo inside; echo x > "$2"/out || echo refused; exit 7`, dir, t.TempDir())
			sb, err := m.Start(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			exit, err := m.Wait(t.Context(), sb.GetId()[:6])
			if err != nil || exit.GetCode() != 7 || exit.GetSignal() != 0 || exit.GetUnknown() {
				t.Fatalf("exit %v, %v; want code 7", exit, err)
			}
			stdout, stderr := logText(t, m, sb.GetId())
			if stdout != "out\ninside\nrefused\n" || !strings.HasPrefix(stderr, "err\n") {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
			got, err := m.Get(sb.GetId())
			if err != nil || got.GetState() != apiv1.SandboxState_SANDBOX_STATE_EXITED || got.GetEnded() == nil {
				t.Errorf("record %v, %v", got, err)
			}
			eventually(t, "the store has the record", func() bool {
				rec, err := cfg.Store.Sandbox(sb.GetId())
				return err == nil && ended(rec)
			})
			if n := m.AliveBy(r.OwnerUID); n != 0 {
				t.Errorf("%d alive", n)
			}
		})
	})
}

func TestStartErrors(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	m := newTestManager(t, cfg)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	missing := testRequest(t, filepath.Join(dir), "/bin/true")
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	missing.Profile, missing.ProfileDigest = testProfile(t, gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	with := func(f func(r *Request)) *Request {
		r := testRequest(t, dir, "/bin/true")
		f(r)
		return r
	}
	refused := errors.New("no more")
	for _, tc := range []struct {
		name string
		r    *Request
		want error
	}{
		{"no program", testRequest(t, dir), errs.ErrInvalid},
		{"empty program", testRequest(t, dir, ""), errs.ErrInvalid},
		{"NUL", testRequest(t, dir, "/bin/true", "a\x00b"), errs.ErrInvalid},
		{"nonexistent", testRequest(t, dir, "/nonexistent"), errs.ErrProgramNotFound},
		{"not in PATH", testRequest(t, dir, "no-such-program-here"), errs.ErrProgramNotFound},
		{"not executable", testRequest(t, dir, plain), errs.ErrProgramRefused},
		{"rule's path missing", missing, errs.ErrPathMissing},
		{"relative directory", with(func(r *Request) { r.Spec.Directory = "tmp" }), errs.ErrInvalid},
		{"bad environment", with(func(r *Request) { r.Spec.Environment = []string{"novalue"} }), errs.ErrInvalid},
		{"bad umask", with(func(r *Request) { r.Process = &apiv1.Process{Umask: "0999"} }), errs.ErrInvalid},
		{"bad limit", with(func(r *Request) { r.Process = &apiv1.Process{Limits: map[string]string{"nofile": "many"}} }), errs.ErrInvalid},
		{"terminal", with(func(r *Request) { r.Spec.Terminal = &apiv1.Terminal{} }), errs.ErrInvalid},
		{"not admitted", with(func(r *Request) { r.Admit = func(int) error { return refused } }), refused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if sb, err := m.Start(t.Context(), tc.r); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, %v; want %v", sb, err, tc.want)
			}
		})
	}
	// Nothing of it is left.
	if n := len(m.all()); n != 0 {
		t.Errorf("%d boxes in memory", n)
	}
	if recs, _, err := m.List(Filter{Ended: true}); err != nil || len(recs) != 0 {
		t.Errorf("records of starts that failed: %v, %v", recs, err)
	}
	stopAll(t, m) // what was made in advance goes
	if left := orphans(m.logs.root, nil); len(left) != 0 {
		t.Errorf("folders of starts that failed: %v", left)
	}
	if n := m.AliveBy(uint32(os.Geteuid())); n != 0 {
		t.Errorf("%d count as alive", n)
	}
}

func TestStartIsIdempotent(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	m := newTestManager(t, cfg)
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	request := func() *Request {
		r := shell(t, dir, `echo x >> "$1"; exec sleep 100`, mark)
		r.RequestID = "one"
		return r
	}
	ids := make(chan string, 10)
	for range cap(ids) {
		r := request()
		go func() {
			sb, err := m.Start(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			ids <- sb.GetId()
		}()
	}
	id := <-ids
	for range cap(ids) - 1 {
		if other := <-ids; other != id {
			t.Errorf("one request started %s and %s", id, other)
		}
	}
	other := request()
	other.Spec.Argv = []string{"/bin/true"}
	if _, err := m.Start(t.Context(), other); !errors.Is(err, errs.ErrRequestReused) {
		t.Errorf("another request with the same id: %v", err)
	}
	elsewhere := request()
	elsewhere.OwnerUID = 12345
	sb, err := m.Start(t.Context(), elsewhere)
	if err != nil || sb.GetId() == id {
		t.Errorf("the same id of another owner: %v, %v", sb, err)
	}
}

// Descendants that got away by double fork and setsid end with the first process.
func TestDescendantsEnd(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		m := newTestManager(t, testConfig(t, containment))
		dir := t.TempDir()
		pidFile := filepath.Join(dir, "pid")
		daemon := `setsid sh -c 'sleep 1000 & echo $! > "$0".new; mv "$0".new "$0"; exec sleep 1000' "$1" </dev/null >/dev/null 2>&1 &
			while ! [ -e "$1" ]; do sleep 0.01; done; `
		for _, tc := range []struct {
			name, script string
			kill         bool
		}{
			{"by itself", daemon + "exit 0", false},
			{"killed", daemon + "exec sleep 1000", true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				os.Remove(pidFile)
				sb, err := m.Start(t.Context(), shell(t, dir, tc.script, pidFile))
				if err != nil {
					t.Fatal(err)
				}
				var pid int
				eventually(t, "daemon runs", func() bool {
					data, err := os.ReadFile(pidFile)
					pid, _ = strconv.Atoi(strings.TrimSpace(string(data)))
					return err == nil && pid > 0
				})
				if tc.kill {
					if err := m.Signal(sb.GetId(), 0, true); err != nil {
						t.Fatal(err)
					}
				}
				exit, err := m.Wait(t.Context(), sb.GetId())
				if err != nil {
					t.Fatal(err)
				}
				if tc.kill && exit.GetSignal() != int32(syscall.SIGKILL) || !tc.kill && exit.GetCode() != 0 {
					t.Errorf("exit %v", exit)
				}
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !isZombie(pid) {
					t.Errorf("daemon %d outlived its sandbox: %v", pid, err)
				}
			})
		}
	})
}

func isZombie(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(data), ") Z ")
}

func TestSignals(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		m := newTestManager(t, testConfig(t, containment))
		dir := t.TempDir()
		sb, err := m.Start(t.Context(), testRequest(t, dir, "sleep", "1000"))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []int{0, -1, 65} {
			if err := m.Signal(sb.GetId(), bad, false); !errors.Is(err, errs.ErrInvalid) {
				t.Errorf("signal %d: %v", bad, err)
			}
		}
		if err := m.Remove(t.Context(), sb.GetId()); !errors.Is(err, errs.ErrStillRunning) {
			t.Errorf("remove while it runs: %v", err)
		}
		if err := m.Signal(sb.GetId(), int(syscall.SIGTERM), false); err != nil {
			t.Fatal(err)
		}
		exit, err := m.Wait(t.Context(), sb.GetId())
		if err != nil || exit.GetCode() != 128+15 || exit.GetSignal() != 15 {
			t.Errorf("exit %v, %v; want 143 by signal 15", exit, err)
		}
		if err := m.Signal(sb.GetId(), int(syscall.SIGTERM), false); !errors.Is(err, errs.ErrNotRunning) {
			t.Errorf("signal after the end: %v", err)
		}
		if err := m.Remove(t.Context(), sb.GetId()); err != nil {
			t.Errorf("remove: %v", err)
		}
		if _, err := m.Get(sb.GetId()); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("after remove: %v", err)
		}
		for _, id := range []string{"", "zz", strings.Repeat("0", 13), "../x"} {
			if _, err := m.Get(id); !errors.Is(err, errs.ErrInvalid) {
				t.Errorf("id %q: %v", id, err)
			}
		}
	})
}

func TestRemoveAtEnd(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	r := testRequest(t, t.TempDir(), "/bin/true")
	r.Spec.Remove = true
	sb, err := m.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sandbox is forgotten", func() bool {
		_, err := m.Get(sb.GetId())
		return errors.Is(err, errs.ErrNotFound)
	})
	if _, err := os.Stat(m.logs.folder(sb.GetId())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
}

func TestLogsFollow(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	dir := t.TempDir()
	sb, err := m.Start(t.Context(), shell(t, dir, `for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done`))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got string
	err = m.Logs(ctx, sb.GetId(), LogOptions{Follow: true}, func(r *apiv1.LogsResponse) error {
		got += string(r.GetStdout())
		return nil
	})
	if want := "line 1\nline 2\nline 3\nline 4\nline 5\n"; err != nil || got != want {
		t.Errorf("followed %q, %v", got, err)
	}
	got = ""
	err = m.Logs(ctx, sb.GetId(), LogOptions{Tail: 2}, func(r *apiv1.LogsResponse) error {
		got += string(r.GetStdout())
		return nil
	})
	if want := "line 4\nline 5\n"; err != nil || got != want {
		t.Errorf("tail %q, %v", got, err)
	}
}

func TestUsage(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		m := newTestManager(t, testConfig(t, containment))
		sb, err := m.Start(t.Context(), shell(t, t.TempDir(), `echo 0123456789; sleep 1000 & sleep 1000`))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "three processes and their output are seen", func() bool {
			u := m.Usage()
			return len(u) == 1 && u[0].GetProcesses() == 3 && u[0].GetMemory() > 0 && u[0].GetLogBytes() == 11
		})
		if n := m.LogBytesBy(uint32(os.Geteuid())); n != 11 {
			t.Errorf("%d log bytes", n)
		}
		if n := m.AliveBy(uint32(os.Geteuid())); n != 1 {
			t.Errorf("%d alive", n)
		}
		recs, next, err := m.List(Filter{})
		if err != nil || next != "" || len(recs) != 1 || recs[0].GetId() != sb.GetId() {
			t.Errorf("list: %v, %q, %v", recs, next, err)
		}
	})
}
