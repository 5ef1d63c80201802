package fleettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// childEnv makes this test binary one of the helper processes.
const childEnv = "POLICYD_FLEET_TEST_CHILD"

var children = map[string]func(args []string) error{
	"activate": childActivate,
	"etcd":     childEtcd,
	"agents":   childAgents,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// programs gives the folder with policyd, policyd-launch and policyctl of this tree.
func programs(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it is all tests'
		if built.dir, built.err = os.MkdirTemp("", "policyd-fleet-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", built.dir+"/", "./cmd/policyd", "./cmd/policyd-launch", "./cmd/policyctl")
		cmd.Dir = filepath.Join("..", "..")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}
