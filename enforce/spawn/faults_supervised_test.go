package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// faultEnv tells a supervisor what shall fail in it: "step:NAME", or "call:NUMBER"
// for a system call of the thread that starts the program.
const faultEnv = "POLICYD_SPAWN_TEST_FAULT"

func faultOf(spec string) func(step string) error {
	kind, what, _ := strings.Cut(spec, ":")
	switch kind {
	case "step":
		return func(step string) error {
			if step == what {
				return fmt.Errorf("%s: %w", step, errInjected)
			}
			return nil
		}
	case "call":
		nr, err := strconv.ParseUint(what, 10, 32)
		return func(step string) error {
			if step != stepUnshareFS { // the first on the thread of the start
				return err
			}
			return errors.Join(err, refuseCall(uint32(nr)))
		}
	}
	return nil
}

// faultyGroup is a group whose supervisor meets that fault.
func faultyGroup(t *testing.T, spec string) Group {
	t.Helper()
	launcher := filepath.Join(t.TempDir(), "launcher")
	script := fmt.Sprintf("#!/bin/sh\n%s='%s' exec '%s' %s\n", faultEnv, spec, buildLauncher(t), launchArg)
	if err := os.WriteFile(launcher, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	g, err := (&supervisors{launcher: launcher}).NewGroup("faulty")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// supervisedFaultCommand is a faultCommand that leaves descendants when it runs.
func supervisedFaultCommand(t *testing.T, g Group) (cmd *Command, ran func() bool, tag string) {
	t.Helper()
	cmd, ran = faultCommand(t)
	tag = newTag()
	cmd.Argv[2] += "; (setsid sleep 1000 " + tag + " &); exec sleep 1000 " + tag
	cmd.Group = g
	return cmd, ran, tag
}

// startsNothing starts the command and sees that it fails in the right way and
// that nothing is left of it.
func startsNothing(t *testing.T, s *Spawner, cmd *Command, tag string, mayRun bool, ran func() bool) error {
	t.Helper()
	rs := faultPolicy(t)
	before := fds(t)
	c, err := s.Start(cmd, rs)
	if err == nil {
		_ = cmd.Group.KillAll()
		wait(t, c)
		t.Fatal("it started")
	}
	if ran() && !mayRun {
		t.Error("the program ran")
	}
	if n := tagged(tag); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if n := ownChildren(t); n != 0 {
		t.Errorf("%d children are left", n)
	}
	if path := cmd.Group.Path(); path != "" {
		t.Errorf("the group has a path: %s", path)
	}
	eventually(t, "no descriptor is left", func() bool { return len(fds(t)) <= len(before) })
	return err
}

// TestSupervisedFaultTable makes every step of a supervised start fail in turn, in
// policyd and in the supervisor: nothing is left, not even of a program that ran.
func TestSupervisedFaultTable(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		s := newTestSpawner(t, 0)
		var way []string
		withFault(t, func(step string) error { way = append(way, step); return nil })
		g := faultyGroup(t, "")
		cmd, ran, _ := supervisedFaultCommand(t, g)
		c, err := s.Start(cmd, faultPolicy(t))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it runs", ran)
		if err := g.KillAll(); err != nil {
			t.Fatal(err)
		}
		if st := wait(t, c); st.Signal != int(unix.SIGKILL) {
			t.Errorf("%+v", st)
		}
		if !slices.Equal(way, launchSteps) {
			t.Errorf("steps %v, in the table %v", way, launchSteps)
		}
		for i, name := range launchSteps {
			t.Run(fmt.Sprintf("policyd/%d-%s", i, name), func(t *testing.T) {
				n := 0
				withFault(t, func(step string) error {
					if n++; n == i+1 {
						return fmt.Errorf("%s: %w", step, errInjected)
					}
					return nil
				})
				cmd, ran, tag := supervisedFaultCommand(t, faultyGroup(t, ""))
				mayRun := i > slices.Index(launchSteps, stepSend)
				if err := startsNothing(t, s, cmd, tag, mayRun, ran); !errors.Is(err, errInjected) || !errors.Is(err, errs.ErrStart) {
					t.Errorf("error %v", err)
				}
			})
		}
		for _, name := range supervisorSteps {
			t.Run("supervisor/"+name, func(t *testing.T) {
				withFault(t, nil)
				cmd, ran, tag := supervisedFaultCommand(t, faultyGroup(t, "step:"+name))
				if strings.HasPrefix(name, "smack") {
					cmd.SmackLabel, cmd.SmackRelabel = "_", []string{"_"}
					if _, err := os.Stat(smackCurrent); err != nil && name != stepSmackOpen {
						t.Skip("the kernel has no Smack: the step before fails by itself, see TestNoSmack")
					}
				}
				mayRun := name == stepPoll || name == stepAnswer
				err := startsNothing(t, s, cmd, tag, mayRun, ran)
				// A supervisor that could not answer is known by its silence.
				if !errors.Is(err, errs.ErrStart) || name != stepAnswer && !strings.Contains(err.Error(), name+": "+errInjected.Error()) {
					t.Errorf("error %v", err)
				}
			})
		}
	})
}

// TestSupervisedBrokenSystemCalls has the kernel refuse each system call on the
// supervisor's way to exec.
func TestSupervisedBrokenSystemCalls(t *testing.T) {
	s := newTestSpawner(t, 0)
	for _, call := range childCalls {
		t.Run(call.name, func(t *testing.T) {
			if call.name == "clone3" {
				t.Skip("it is for cgroups, which a supervisor stands in for")
			}
			cmd, ran, tag := supervisedFaultCommand(t, faultyGroup(t, fmt.Sprintf("call:%d", call.nr)))
			if call.root {
				testkernel.RequireRoot(t)
				cmd.Credential, cmd.Dir = &Credential{UID: 65534, GID: 65534, Groups: []uint32{65534}}, "/"
			}
			if call.tty {
				cmd.Stdin, cmd.TTY = terminal(t), true
			}
			if err := startsNothing(t, s, cmd, tag, false, ran); !errors.Is(err, errs.ErrStart) && !errors.Is(err, errs.ErrProgramRefused) {
				t.Errorf("error %v", err)
			}
		})
	}
}
