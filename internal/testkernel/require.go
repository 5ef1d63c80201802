package testkernel

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// Skip skips the test for want of something of the machine, saying how to get it. With CI=true in the environment it
// fails the test instead: an automatic run must not pass by leaving things out.
func Skip(t testing.TB, what, howto string) {
	t.Helper()
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
		t.Fatalf("NEEDED IN CI: %s; to get it: %s", what, howto)
	}
	t.Skipf("SKIPPED, NOT TESTED: %s; to get it: %s", what, howto)
}

// RequireRoot skips the test, or fails it in CI, unless it runs as root. Guests always run tests as their own root.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "root", "run go test as root")
	}
}

// RequireTool returns the path of a program, or skips the test, or fails it in CI, when $PATH does not have it.
func RequireTool(t testing.TB, name, howto string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, "program "+name, howto)
	}
	return path
}
