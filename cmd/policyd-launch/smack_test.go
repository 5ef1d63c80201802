package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Without its label a program is not started, whatever keeps it from having it. What a kernel with Smack does is
// tested with real containers, in policyd-runc.
func TestNoLabelNoProgram(t *testing.T) {
	b := prepare(t, nil)
	if _, err := os.Stat("/proc/thread-self/attr/smack/current"); err == nil {
		t.Skip("this kernel has Smack")
	}
	for _, label := range []string{"Web", "a/b", "-x", "*", "é", strings.Repeat("x", 256)} {
		cmd := exec.Command(launcher(t), "exec", "--file", b.file, "--digest", b.digest, "--smack-label", label, "--", "/bin/echo", "ran")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != exitPolicy || strings.Contains(string(out), "ran") || !strings.Contains(string(out), "smack label cannot be set") {
			t.Errorf("%.20q: exit %d, %s", label, code, out)
		}
	}
	// An empty one is none.
	out, err := exec.Command(launcher(t), "exec", "--file", b.file, "--digest", b.digest, "--smack-label", "", "--", "/bin/echo", "ran").CombinedOutput()
	if err != nil || string(out) != "ran\n" {
		t.Errorf("no label: %s, %v", out, err)
	}
}
