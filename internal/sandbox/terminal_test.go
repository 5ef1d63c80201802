package sandbox

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/testkernel"
)

func withTerminal(r *Request, rows, columns uint32) *Request {
	r.Spec.Terminal = &apiv1.Terminal{Rows: rows, Columns: columns}
	return r
}

func typeIn(t *testing.T, a *Attached, text string) {
	t.Helper()
	if err := a.WriteStdin([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		eachContainment(t, func(t *testing.T, containment string) {
			m := newTestManager(t, testConfig(t, containment))
			r := withTerminal(shell(t, t.TempDir(), `tty >/dev/null && stty size; trap 'stty size' WINCH; echo ready; read x; echo "got $x"; until read y; do :; done; echo "got $y"; exit 5`), 30, 100)
			a, o, finished := attach(t, m, r)
			o.await(t, "30 100")
			o.await(t, "ready")
			typeIn(t, a, "one\n")
			o.await(t, "got one")
			// A shell that was just about to read runs its trap only after what it reads, so it is told again.
			eventually(t, "the program hears of the new size", func() bool {
				for _, rows := range []uint32{41, 40} {
					if err := a.Resize(&apiv1.Terminal{Rows: rows, Columns: 120}); err != nil {
						t.Fatal(err)
					}
				}
				return strings.Contains(o.text(), "40 120")
			})
			typeIn(t, a, "two\n")
			awaitEnd(t, finished)
			// A size that was told while the last line was read may be reported behind it, and nothing else may.
			rest := strings.NewReplacer("41 120\r\n", "", "40 120\r\n", "").Replace(o.text())
			if o.exit.GetCode() != 5 || !strings.HasSuffix(rest, "got two\r\n") {
				t.Errorf("exit %v, output %q", o.exit, o.text())
			}
		})
	})
}

// awaitForeground waits until a program of that name reads the terminal. Before its exec
// the shell's own process does, which does not take signals as the program will.
func awaitForeground(t *testing.T, a *Attached, name string) {
	t.Helper()
	eventually(t, name+" is in the foreground", func() bool {
		pgrp, err := foreground(a.b.term)
		if err != nil {
			return false
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pgrp))
		return err == nil && strings.TrimSpace(string(comm)) == name
	})
}

// Job control works: ^C reaches the foreground job only, ^Z stops it, fg goes on.
func TestTerminalJobControl(t *testing.T) {
	testkernel.RequireTool(t, "bash", "apt-get install bash")
	eachContainment(t, func(t *testing.T, containment string) {
		m := newTestManager(t, testConfig(t, containment))
		r := withTerminal(testRequest(t, t.TempDir(), "bash", "--norc", "--noprofile", "-i"), 24, 80)
		r.Spec.Environment = []string{"PS1=P> ", "TERM=dumb"}
		a, o, finished := attach(t, m, r)
		o.await(t, "P> ")
		typeIn(t, a, "sleep 1000; echo rc=$((1000+$?))\n")
		o.await(t, "sleep 1000")
		id := a.Sandbox().GetId()
		awaitForeground(t, a, "sleep")
		typeIn(t, a, "\x03")
		o.await(t, "P> ")
		typeIn(t, a, "echo rc=$((1000+$?))\n")
		o.await(t, "rc=1130") // 128+SIGINT

		typeIn(t, a, "cat\n")
		awaitForeground(t, a, "cat")
		typeIn(t, a, "echoed\n")
		o.await(t, "echoed\r\nechoed")
		typeIn(t, a, "\x1a")
		o.await(t, "Stopped")
		typeIn(t, a, "jobs; fg\n")
		awaitForeground(t, a, "cat")
		typeIn(t, a, "again\n")
		o.await(t, "again\r\nagain")
		// A signal from outside goes to the foreground job, not to the shell.
		if err := m.Signal(id, int(syscall.SIGTERM), false); err != nil {
			t.Fatal(err)
		}
		o.await(t, "Terminated")
		eventually(t, "the prompt is there again", func() bool { return strings.HasSuffix(o.text(), "P> ") })
		if err := a.CloseStdin(); err != nil { // end of file at the prompt
			t.Fatal(err)
		}
		awaitEnd(t, finished)
	})
}

func TestTerminalEndOfInput(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	for _, tc := range []struct{ name, input, want string }{
		{"whole line", "abc\n", "abc\r\nabc\r\n"},
		{"unfinished line", "abc", "abcabc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := run(t, m, withTerminal(testRequest(t, t.TempDir(), "cat"), 24, 80), tc.input)
			if o.exit.GetCode() != 0 || !strings.HasPrefix(strings.ReplaceAll(o.text(), "^D\b\b", ""), tc.want) {
				t.Errorf("exit %v, output %q", o.exit, o.text())
			}
		})
	}
}

// The terminal belongs to the user the program runs as.
func TestTerminalOwner(t *testing.T) {
	testkernel.RequireRoot(t)
	m := newTestManager(t, testConfig(t, "supervisor"))
	dir := t.TempDir()
	r := withTerminal(shell(t, dir, `test -O "$(tty)" && id -u && exec <"$(tty)" && echo opened`), 24, 80)
	r.Cred = &spawn.Credential{UID: 65534, GID: 65534}
	if o := run(t, m, r, ""); !strings.Contains(o.text(), "65534\r\nopened") {
		t.Errorf("exit %v, output %q", o.exit, o.text())
	}
	if os.Geteuid() != 0 {
		t.Error("the test changed its own user")
	}
}
