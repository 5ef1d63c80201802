package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

func TestAttached(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		eachContainment(t, func(t *testing.T, containment string) {
			m := newTestManager(t, testConfig(t, containment))
			dir := t.TempDir()
			for _, tc := range []struct {
				name, script, stdin string
				stdout, stderr      string
				code, signal        int32
			}{
				{"exit code", "exit 3", "", "", "", 3, 0},
				{"streams apart", "echo out; echo err >&2", "", "out\n", "err\n", 0, 0},
				{"half-close", "wc -c; echo after >&2", "12345", "5\n", "after\n", 0, 0},
				{"signal", "kill -TERM $$", "", "", "", 143, 15},
				{"input not read", "exec <&-; echo done", strings.Repeat("x", 1000), "done\n", "", 0, 0},
				{"confined", `echo x > /policyd-no || echo refused`, "", "refused\n", "*", 0, 0},
				{"output after the end", `(sleep 0.2; echo late) & echo now`, "", "now\n", "", 0, 0},
				{"closed early", `exec >&- 2>&-; sleep 0.2; exit 4`, "", "", "", 4, 0},
			} {
				t.Run(tc.name, func(t *testing.T) {
					o := run(t, m, shell(t, dir, tc.script), tc.stdin)
					if o.stdout.String() != tc.stdout || tc.stderr != "*" && o.stderr.String() != tc.stderr {
						t.Errorf("stdout %q, stderr %q", o.stdout.String(), o.stderr.String())
					}
					if o.exit.GetCode() != tc.code || o.exit.GetSignal() != tc.signal {
						t.Errorf("exit %v, want code %d signal %d", o.exit, tc.code, tc.signal)
					}
				})
			}
		})
	})
}

// Random bytes come back as they went, through a client that reads slowly.
func TestAttachedIsBinarySafe(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	data := make([]byte, 3<<20+17)
	rand.Read(data)
	a, err := m.Run(t.Context(), testRequest(t, t.TempDir(), "cat"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	go func() {
		for p := data; len(p) > 0; {
			n := min(len(p), 64<<10)
			if err := a.WriteStdin(p[:n]); err != nil {
				t.Error(err)
			}
			p = p[n:]
		}
		if err := a.CloseStdin(); err != nil {
			t.Error(err)
		}
	}()
	var back bytes.Buffer
	var exit *apiv1.ExitStatus
	err = a.Stream(t.Context(), func(r *apiv1.RunResponse) error {
		time.Sleep(200 * time.Microsecond)
		back.Write(r.GetStdout())
		exit = r.GetExit()
		return nil
	})
	if err != nil || exit.GetCode() != 0 {
		t.Fatalf("%v, %v", exit, err)
	}
	if !bytes.Equal(back.Bytes(), data) {
		t.Errorf("%d bytes came back of %d, or others", back.Len(), len(data))
	}
}

// A client may take longer than the sandbox lives: all output comes, and then the exit.
func TestAttachedSlowClient(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	a, err := m.Run(t.Context(), shell(t, t.TempDir(), `head -c 60000 /dev/zero; exit 6`))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	total, code := 0, int32(-1)
	err = a.Stream(t.Context(), func(r *apiv1.RunResponse) error {
		if total == 0 {
			<-a.b.done
			time.Sleep(drainGrace + 100*time.Millisecond) // the deadline for new output passes
		}
		total += len(r.GetStdout())
		if r.GetExit() != nil {
			code = r.GetExit().GetCode()
		}
		return nil
	})
	if err != nil || total != 60000 || code != 6 {
		t.Errorf("%d bytes, code %d, %v", total, code, err)
	}
}

// A client that does not read holds the program back.
func TestAttachedBackPressure(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	// Each round writes 64 KiB and then says so in a file.
	script := `i=0; while [ $i -lt 200 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > "$1"; done`
	a, err := m.Run(t.Context(), shell(t, dir, script, count))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	release := make(chan struct{})
	done := make(chan error, 1)
	total := 0
	go func() {
		done <- a.Stream(t.Context(), func(r *apiv1.RunResponse) error {
			<-release
			total += len(r.GetStdout())
			return nil
		})
	}()
	rounds := func() string { data, _ := os.ReadFile(count); return strings.TrimSpace(string(data)) }
	before := "-"
	eventually(t, "the program stands still", func() bool {
		now := rounds()
		same := now == before
		before = now
		time.Sleep(200 * time.Millisecond)
		return same
	})
	// One chunk is with the client and the pipe is full: 2 rounds, not 200.
	if len(before) > 1 {
		t.Errorf("the program wrote %s rounds to a client that does not read", before)
	}
	close(release)
	awaitEnd(t, done)
	if total != 200*65536 {
		t.Errorf("%d bytes came", total)
	}
}

func TestClientGoesAway(t *testing.T) {
	eachContainment(t, func(t *testing.T, containment string) {
		m := newTestManager(t, testConfig(t, containment))
		dir := t.TempDir()
		for _, tc := range []struct {
			name, script string
			signal       int32
		}{
			{"hung up", "echo ready; exec sleep 1000", int32(syscall.SIGHUP)},
			{"ignores it", "trap '' HUP PIPE; echo ready; while :; do sleep 1; done", int32(syscall.SIGKILL)},
		} {
			t.Run(tc.name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				a, err := m.Run(ctx, shell(t, dir, tc.script))
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				o := newOutput()
				done := make(chan error, 1)
				go func() { done <- a.Stream(ctx, o.send) }()
				o.await(t, "ready")
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("stream: %v", err)
				}
				exit, err := m.Wait(t.Context(), a.Sandbox().GetId())
				if err != nil || exit.GetSignal() != tc.signal {
					t.Errorf("exit %v, %v; want signal %d", exit, err, tc.signal)
				}
			})
		}
	})
}

func TestSendFails(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	a, err := m.Run(t.Context(), testRequest(t, t.TempDir(), "yes"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	lost := errors.New("connection lost")
	if err := a.Stream(t.Context(), func(*apiv1.RunResponse) error { return lost }); !errors.Is(err, lost) {
		t.Errorf("stream: %v", err)
	}
	if exit, err := m.Wait(t.Context(), a.Sandbox().GetId()); err != nil || exit.GetSignal() == 0 {
		t.Errorf("exit %v, %v", exit, err)
	}
}

// Nothing of the input is buffered without bound either: a program that does not read
// blocks the writer, and ending the program frees it.
func TestStdinBlocks(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	a, _, finished := attach(t, m, testRequest(t, t.TempDir(), "sleep", "1000"))
	wrote := make(chan error, 1)
	go func() { wrote <- a.WriteStdin(make([]byte, 1<<20)) }()
	select {
	case err := <-wrote:
		t.Fatalf("1 MiB went to a program that does not read: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := m.Signal(a.Sandbox().GetId(), int(syscall.SIGKILL), false); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, finished)
	if err := <-wrote; err != nil {
		t.Errorf("write to a program that ended: %v", err)
	}
	if err := a.Resize(&apiv1.Terminal{}); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("resize without terminal: %v", err)
	}
}

func TestProcessSettings(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	dir := t.TempDir()
	r := shell(t, dir, `umask; ulimit -n; pwd; echo "$A $B $PATH"; ls /proc/self/fd | wc -l`)
	r.Process = &apiv1.Process{Umask: "0027", Limits: map[string]string{"nofile": "64"}, Environment: map[string]string{"B": "policy"}}
	r.Spec.Environment = []string{"A=caller", "B=caller"}
	r.Spec.Directory = dir
	path := userPath
	// stdio and the folder ls reads.
	want := fmt.Sprintf("0027\n64\n%s\ncaller policy %s\n4\n", dir, path)
	if o := run(t, m, r, ""); o.text() != want {
		t.Errorf("got %q, stderr %q, want %q", o.text(), o.stderr.String(), want)
	}
	if o := run(t, m, shell(t, dir, "umask; pwd"), ""); o.text() != "0022\n/\n" {
		t.Errorf("defaults: %q", o.text())
	}
	r = shell(t, dir, `echo "$HOME $USER $LOGNAME $SHELL"`)
	r.Spec.Environment = []string{"HOME=/caller"}
	r.User = &User{Name: "web", Home: "/home/web", Shell: "/bin/sh"}
	if o := run(t, m, r, ""); o.text() != "/home/web web web /bin/sh\n" {
		t.Errorf("another user's environment: %q", o.text())
	}
}
