package differential_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestInNamespace runs the tests of the host's kernel once more as root of a
// user and a mount namespace, for who could not mount else.
func TestInNamespace(t *testing.T) {
	if os.Geteuid() == 0 {
		return // the tests themselves mount, each thread in a mount namespace of its own
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^(TestRandom|TestScenarios)$/^host$", "-test.v", "-test.timeout=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC):
		t.Logf("user namespaces are not allowed here (%v); the guest mounts as root", err)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	default:
		t.Logf("%s", out)
	}
}
