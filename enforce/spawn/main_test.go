package spawn

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// launchEnv has the test binary act as policyd-launch, so that guests without a
// Go toolchain have one.
const launchArg = "supervise"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == launchArg {
		fault = faultOf(os.Getenv(faultEnv))
		os.Exit(Supervise())
	}
	if op := os.Getenv(opEnv); op != "" {
		os.Exit(runOp(op))
	}
	os.Exit(m.Run())
}

// buildLauncher gives a program that supervises: policyd-launch as it is
// shipped in benchmarks, the test binary itself in tests.
func buildLauncher(t testing.TB) string {
	t.Helper()
	if _, ok := t.(*testing.B); !ok {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return exe
	}
	path, err := staticLauncher()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var staticLauncher = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "policyd-launch")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "policyd-launch")
	cmd := exec.Command("go", "build", "-o", path, "policyd.dev/policyd/cmd/policyd-launch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return path, err
})
