package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Tests that need a process of their own (to be killed, to run out of space, to have system calls fail) run this test
// binary again with the child's name in the environment.
const childVariable = "POLICYD_STORE_TEST_CHILD"

var children = map[string]func(args []string) error{
	"apply-forever":   childApplyForever,
	"hold":            childHold,
	"disk-full":       childDiskFull,
	"file-limit":      childFileLimit,
	"read-only":       childReadOnly,
	"inject":          childInject,
	"power-loss":      childPowerLoss,
	"activate-killed": childActivateKilled,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child makes the command of a child; isolated: in user (unless root) and mount namespaces of its own.
func child(name string, isolated bool, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if isolated {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
		}
	}
	return cmd
}

// runChild runs a child to its end and fails the test with what it wrote when it fails.
func runChild(t *testing.T, name string, isolated bool, args ...string) string {
	t.Helper()
	cmd := child(name, isolated, args...)
	var errText strings.Builder
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child %s: %v\n%s", name, err, errText.String())
	}
	return string(out)
}

// startChild starts a child whose standard output the test reads line by line. It is killed when the test ends.
func startChild(t *testing.T, name string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := child(name, false, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}
