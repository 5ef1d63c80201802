package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/testkernel"
)

// programsEnv names a folder with programs that are built already, installed ones
// say: they are tested instead.
const programsEnv = "POLICYD_TEST_PROGRAMS"

// daemons is the folder with the programs that tests start, built once.
var daemons string

func TestMain(m *testing.M) {
	testscript.Main(withDaemons{m}, map[string]func(){"policyctl": main})
}

// withDaemons builds policyd, policyd-launch and policyctl before the tests run.
type withDaemons struct{ m *testing.M }

func (w withDaemons) Run() int {
	if daemons = os.Getenv(programsEnv); daemons != "" {
		return w.m.Run()
	}
	dir, err := os.MkdirTemp("", "policyctl-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	build := exec.Command("go", "build", "-o", dir+"/", "../policyd", "../policyd-launch", ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build of policyd:", err)
		return 1
	}
	daemons = dir
	return w.m.Run()
}

func TestScripts(t *testing.T) { scripts(t, "testdata/script") }

// These need two users.
func TestRootScripts(t *testing.T) {
	testkernel.RequireRoot(t)
	testkernel.RequireTool(t, "setpriv", "apt-get install util-linux")
	scripts(t, "testdata/rootscript")
}

func scripts(t *testing.T, dir string) {
	if sup := landlock.Probe(); sup.Err != nil {
		testkernel.Skip(t, "Landlock", sup.Err.Error())
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("POLICYD_SOCKET", "unix://"+filepath.Join(env.WorkDir, "state/run/policyd.sock"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("NO_COLOR", "")
			env.Setenv("TZ", "UTC")
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "smack":
				_, err := os.Stat("/sys/fs/smackfs/load2")
				return err == nil, nil
			case "newest-abi":
				return landlock.Probe().ABI >= profile.MaxABI, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"policyd":   scriptDaemon,
			"fleetkeys": scriptFleetKeys,
			"status":    scriptStatus,
			"equal":     scriptEqual,
		},
	})
}

// running are the daemons of scripts; a script has one at most.
var running sync.Map // *testscript.TestScript -> *daemon

type daemon struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(20 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

// scriptDaemon is `policyd start` and `policyd stop`, with a state folder in $WORK.
func scriptDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: policyd start|stop")
	}
	if old, ok := running.LoadAndDelete(ts); ok {
		old.(*daemon).stop()
	}
	if args[0] == "stop" {
		return
	}
	log, err := os.OpenFile(ts.MkAbs("policyd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	defer log.Close()
	cmd := exec.Command(filepath.Join(daemons, "policyd"), "--state-dir", ts.MkAbs("state"))
	cmd.Stdout, cmd.Stderr = log, log
	ts.Check(cmd.Start())
	d := &daemon{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(d.ended)
	}()
	running.Store(ts, d)
	ts.Defer(func() {
		if running.CompareAndDelete(ts, d) {
			endSandboxes(ts)
			d.stop()
		}
	})
	if err := ts.Exec("policyctl", "status", "--wait=20", "-q"); err != nil {
		b, _ := os.ReadFile(ts.MkAbs("policyd.log"))
		ts.Fatalf("policyd is not ready: %v\n%s", err, b)
	}
}

// endSandboxes leaves nothing running: sandboxes outlive policyd.
func endSandboxes(ts *testscript.TestScript) {
	c, err := cli.Dial(ts.Getenv("POLICYD_SOCKET"))
	if err != nil {
		return
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	list, err := listSandboxes(ctx, c, false, "")
	if err != nil {
		ts.Logf("sandboxes are not listed: %v", err)
	}
	for _, s := range list {
		_, _ = c.Sandboxes.Signal(ctx, &apiv1.SignalRequest{Id: s.GetId(), Signal: int32(syscall.SIGKILL), All: true})
	}
}

// scriptStatus is `status N program arguments...`: it must exit with N.
func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N program arguments...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scriptEqual is cmp for files of any bytes.
func scriptEqual(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: equal file file")
	}
	a, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	b, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	if !bytes.Equal(a, b) {
		ts.Fatalf("%s (%d bytes) and %s (%d bytes) differ", args[0], len(a), args[1], len(b))
	}
}
