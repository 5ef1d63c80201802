package smackfs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/smack"
)

// childEnv makes the test binary the child of testKilledChild: the folder the intent goes to.
const childEnv = "POLICYD_SMACKFS_CHILD"

// killSets are what the child goes from and to.
func killSets(t *testing.T) (from, to *smack.Set) { return big(t, "Child", 1), big(t, "Child", 2) }

// TestKillChild is no test but the child: it loads rules, and before each write waits for a line.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		t.Skip("of TestKernel alone")
	}
	in := bufio.NewReader(os.Stdin)
	h := &hookFS{FS: Dir("/sys/fs/smackfs"), hook: func(n int, _ string, p []byte) ([]byte, error) {
		fmt.Fprintf(os.Stderr, "write %d\n", n)
		if _, err := in.ReadString('\n'); err != nil {
			return nil, err
		}
		return p, nil
	}}
	from, to := killSets(t)
	_, err := Load(t.Context(), h, to, from, Options{Intent: func(b []byte) error {
		return os.WriteFile(filepath.Join(dir, "intent"), b, 0o600)
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// testKilledChild kills a process that loads rules, by SIGKILL before its write 0, 1, 2 and so on.
func testKilledChild(t *testing.T, fs FS) {
	others := rulesOf(t, fs)
	from, _ := killSets(t)
	owned := load(t, fs, from, nil, Options{}).Owned
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 4, 7} {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestKillChild$")
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == fmt.Sprintf("write %d", n) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			} else if strings.HasPrefix(lines.Text(), "write ") {
				fmt.Fprintln(in)
			}
		}
		err = cmd.Wait()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended with %v", err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "intent"))
		if err != nil {
			t.Fatal(err)
		}
		it, err := ParseIntent(b)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := Recover(fs, owned, it)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Rebooted || len(rec.Other) > 0 || rec.Before+rec.After+rec.Between != len(it.Changes) || (n == 0) != (rec.Before == len(it.Changes)) {
			t.Fatalf("killed at write %d: %+v of %d", n, rec, len(it.Changes))
		}
		owned = load(t, fs, from, rec.Owned, Options{}).Owned
		same(t, "gone back", rulesOf(t, fs), union(others, pairs(from)))
	}
	load(t, fs, &smack.Set{}, owned, Options{})
	same(t, "unloaded", rulesOf(t, fs), others)
}
