package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/clitest"
	"policyd.dev/policyd/internal/testkernel"
)

// A shell at a terminal: it has one of its own, of the right size, follows its
// changes, and ^C is for its foreground job.
func TestTerminal(t *testing.T) {
	socket := start(t)
	s := open(t, "run", "shell", "--socket", socket, "--tty", "--rm", "--dir", "/", "--env", "PS1=ready> ", "--", "/bin/sh", "-i")
	s.expect("ready> ")
	if !s.raw() {
		t.Error("the terminal is not in raw mode")
	}
	s.typed("stty size; tty; echo $TERM\r")
	s.expect("24 80")
	s.expect("/dev/pts/")
	s.expect("xterm")
	s.resize(50, 132)
	s.typed("sleep 0.2; stty size\r")
	s.expect("50 132")
	s.typed("sleep 100; echo came-$?\r")
	time.Sleep(200 * time.Millisecond) // sleep has no sign that it runs
	s.typed("\x03")
	s.typed("echo after-$?\r")
	s.expect("after-130")
	s.typed("sleep 100\r")
	time.Sleep(200 * time.Millisecond)
	s.typed("\x1a") // job control
	s.expect("Stopped")
	s.typed("fg\r")
	time.Sleep(200 * time.Millisecond)
	s.typed("\x03")
	s.typed("echo job-$?\r")
	s.expect("job-130")
	s.typed("exit 7\r")
	if code := s.end(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if s.raw() {
		t.Error("the terminal was left in raw mode")
	}
}

// Full-screen programs work: an editor writes a file, top draws and quits.
func TestFullScreenPrograms(t *testing.T) {
	socket := start(t)
	t.Run("vi", func(t *testing.T) {
		vi := testkernel.RequireTool(t, "vi", "apt-get install vim-tiny")
		dir, err := os.MkdirTemp("/tmp", "policyctl-vi-") //nolint:usetesting // what the policy allows
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s := open(t, "run", "shell", "--socket", socket, "--tty", "--dir", dir, "--env", "HOME="+dir, "--", vi, "text")
		s.expect("\x1b[") // it draws
		s.typed("ihello from vi\x1b:wq\r")
		if code := s.end(); code != 0 {
			t.Errorf("exit code %d; terminal:\n%q", code, s.text())
		}
		if b, err := os.ReadFile(dir + "/text"); err != nil || string(b) != "hello from vi\n" {
			t.Errorf("the file is %q, %v", b, err)
		}
	})
	t.Run("top", func(t *testing.T) {
		top := testkernel.RequireTool(t, "top", "apt-get install procps")
		s := open(t, "run", "shell", "--socket", socket, "--tty", "--dir", "/", "--", top)
		s.expect("COMMAND")
		s.typed("q")
		if code := s.end(); code != 0 {
			t.Errorf("exit code %d; terminal:\n%q", code, s.text())
		}
	})
}

// Whatever ends a session, the terminal comes back as it was.
func TestTerminalIsRestored(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*session, string)
		code int
	}{
		{"program killed", func(s *session, _ string) { s.typed("kill -9 $$\r") }, 137},
		{"SIGTERM to policyctl", func(s *session, _ string) { _ = s.cmd.Process.Signal(syscall.SIGTERM) }, 9},
		{"SIGHUP to policyctl", func(s *session, _ string) { _ = s.cmd.Process.Signal(syscall.SIGHUP) }, 8},
		{"sandbox ended by another", func(_ *session, socket string) {
			_ = exec.Command("sh", "-c", daemons+"/policyctl --socket "+socket+" kill --all $("+daemons+"/policyctl --socket "+socket+" ps -o name)").Run()
		}, 137},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := start(t)
			s := open(t, "run", "shell", "--socket", socket, "--tty", "--dir", "/", "--", "/bin/sh", "-c", `trap "exit 9" TERM; trap "exit 8" HUP; echo ready; while :; do read x; eval "$x"; done`)
			s.expect("ready")
			c.end(s, socket)
			if code := s.end(); code != c.code {
				t.Errorf("exit code %d, want %d; terminal:\n%q", code, c.code, s.text())
			}
			if s.raw() {
				t.Error("the terminal was left in raw mode")
			}
		})
	}
	t.Run("nothing started", func(t *testing.T) {
		socket := start(t)
		s := open(t, "run", "shell", "--socket", socket, "--tty", "--", "/nonexistent")
		s.expect("/nonexistent")
		if code := s.end(); code != 127 || s.raw() {
			t.Errorf("exit code %d, raw %v", code, s.raw())
		}
	})
	t.Run("policyd dies", func(t *testing.T) {
		f := &clitest.Fake{OnRun: func(st grpc.BidiStreamingServer[apiv1.RunRequest, apiv1.RunResponse]) error {
			if _, err := st.Recv(); err != nil {
				return err
			}
			_ = st.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Started{Started: &apiv1.Sandbox{Id: "abc"}}})
			_ = st.Send(&apiv1.RunResponse{Response: &apiv1.RunResponse_Stdout{Stdout: []byte("ready")}})
			<-st.Context().Done()
			return st.Context().Err()
		}}
		f.Serve(t)
		s := open(t, "run", "shell", "--socket", f.Socket, "--tty", "--", "sh")
		s.expect("ready")
		f.Stop()
		s.expect("sandbox abc")
		if code := s.end(); code != 125 || s.raw() {
			t.Errorf("exit code %d, raw %v", code, s.raw())
		}
	})
}

// At a terminal without --tty, ^C is for the program; a second one ends all.
func TestInterruptTwice(t *testing.T) {
	socket := start(t)
	s := open(t, "run", "shell", "--socket", socket, "--dir", "/", "--", "/bin/sh", "-c", `trap "echo once" INT; (trap "" INT; sleep 1000) & echo ready; while :; do sleep 0.05; done`)
	s.expect("ready")
	s.typed("\x03")
	s.expect("once")
	s.typed("\x03")
	s.expect("interrupted again")
	if code := s.end(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
}

// top redraws on the terminal's other screen and gives it back on ^C.
func TestTopAtTerminal(t *testing.T) {
	f := &clitest.Fake{OnUsage: func(context.Context, *apiv1.UsageRequest) (*apiv1.UsageResponse, error) {
		u := &apiv1.UsageResponse_Usage{Sandbox: &apiv1.Sandbox{Id: "abc", Policy: "web", Version: 3, Argv: []string{"sleep", "\x1b[2J"}}, Processes: 2, CpuUsec: uint64(time.Now().UnixMicro() % 1e9)}
		return &apiv1.UsageResponse{Usages: []*apiv1.UsageResponse_Usage{u}}, nil
	}}
	f.Serve(t)
	s := open(t, "top", "--socket", f.Socket, "--interval", "100ms")
	s.expect(screenOn)
	s.expect("web@3")
	s.expect("100.") // a second look knows how much CPU it uses: all
	s.typed("\x03")
	s.expect(screenOff)
	if code := s.end(); code != cli.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(s.text(), "\x1b[2J") {
		t.Error("a command line reached the terminal with its escapes")
	}
}

// ^C while a change is on its way: the first waits and tells the outcome, the
// second leaves and tells how to learn it.
func TestInterruptDuringApply(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shell.yaml")
	if err := os.WriteFile(file, []byte(shellPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		times int
		code  int
		want  string
	}{
		{"once", 1, 0, "policy/shell@1 created"},
		{"twice", 2, cli.ExitInterrupted, "--request-id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrived, answer := make(chan struct{}, 1), make(chan struct{})
			f := &clitest.Fake{OnApply: func(_ context.Context, r *apiv1.ApplyRequest) (*apiv1.ApplyResponse, error) {
				arrived <- struct{}{}
				<-answer
				return &apiv1.ApplyResponse{Results: []*apiv1.ApplyResponse_Result{{
					Version: &apiv1.VersionInfo{Kind: "LandlockPolicy", Name: "shell", Number: 1}, Outcome: apiv1.ApplyResponse_OUTCOME_CREATED,
				}}}, nil
			}}
			f.Serve(t)
			s := open(t, "apply", "--socket", f.Socket, "-f", file)
			<-arrived
			s.typed("\x03")
			s.expect("waiting for policyd")
			if c.times == 2 {
				s.typed("\x03")
			} else {
				close(answer)
			}
			s.expect(c.want)
			if code := s.end(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if c.times == 2 {
				close(answer)
			}
		})
	}
}
