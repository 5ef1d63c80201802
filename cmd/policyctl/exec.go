package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

func newExec(a *app) *cobra.Command {
	var files, sets []string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "exec REF|-f FILE [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Confine this process in place, then execute a program in it",
		Long: "exec is for the ExecStart of a unit or a job of CI: the program takes the place of policyctl and\n" +
			"keeps its pid, standard streams, cgroup, terminal, umask, environment and working directory. policyd\n" +
			"does not know of it and does not list it. The profile comes from policyd, or with -f from a file,\n" +
			"without any daemon.\n\n" +
			"What the policy sets of the process holds too: umask, limits, environment, Smack label. What cannot\n" +
			"be done is refused, never left out. Files that are open already stay usable: Landlock is about\n" +
			"opening. The program is looked up in PATH before the confinement.\n\n" +
			"Exit codes: the program's own; 125 when nothing was started, 126 when the program cannot be\n" +
			"executed, 127 when it does not exist.",
		Example: "  policyctl exec web -- /usr/sbin/nginx -g 'daemon off;'\n" +
			"  policyctl exec -f ci.yaml --set src=$PWD -- make test",
		Args: func(cmd *cobra.Command, args []string) error {
			before, _, err := splitCommand(cmd, args)
			if err != nil {
				return err
			}
			return refOrFiles(&files)(cmd, before)
		},
		Annotations:       map[string]string{exitRuleKey: exitStarts},
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, program, err := splitCommand(cmd, args)
			if err != nil {
				return err
			}
			set, err := pairs("--set", sets)
			if err != nil {
				return err
			}
			return a.confine(cmd.Context(), strings.Join(before, ""), files, set, program, verbose)
		},
	}
	cmd.SetFlagErrorFunc(flagsOfProgram)
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "take the policy of this file; may be repeated for its fragments")
	f.StringArrayVar(&sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	verboseFlag(cmd, &verbose)
	return cmd
}

// confine returns only when nothing was executed.
func (a *app) confine(ctx context.Context, ref string, files []string, set map[string]string, program []string, verbose bool) error {
	c, err := a.load(ctx, ref, files, set, true)
	if err != nil {
		return err
	}
	env := os.Environ()
	for name, value := range c.process.GetEnvironment() {
		env = setEnv(env, name, value)
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	path, err := spawn.LookPath(program[0], env, dir)
	if err != nil {
		return err
	}
	limits, err := parseLimits(c.process.GetLimits())
	if err != nil {
		return err
	}
	umask, err := parseUmask(c.process.GetUmask())
	if err != nil {
		return err
	}
	sup := landlock.Probe()
	if sup.Err != nil && !c.profile.Degrade {
		return fmt.Errorf("%s: %w", c.name, sup.Err)
	}
	rs, err := landlock.Build(c.profile, sup)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, policy.PlacePaths(err, c.profile, c.origins))
	}
	a.tellRulesets(rs, verbose)
	if a.client != nil {
		a.client.Close()
		a.client = nil
	}
	// From here on the thread is changed for good; execve makes it the process.
	runtime.LockOSThread()
	if label := c.process.GetSmackLabel(); label != "" {
		if err := cli.SetSmackLabel(label); err != nil {
			return err
		}
	}
	if umask != keepUmask {
		syscall.Umask(umask)
	}
	for _, l := range limits {
		if err := syscall.Setrlimit(l.Resource, &syscall.Rlimit{Cur: l.Soft, Max: l.Hard}); err != nil {
			return fmt.Errorf("limit %s: %w", l.Name, err)
		}
	}
	if err := rs.RestrictThread(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	err = syscall.Exec(path, program, env)
	return a.explainExec(c, path, err)
}

// explainExec says why execve failed. The process is confined by now, so what
// can be looked at is what the program could have looked at.
func (a *app) explainExec(c *compiled, path string, err error) error {
	kind := errs.ErrProgramRefused
	if err == syscall.ENOENT {
		// The program was there: it is its interpreter that is not.
		return fmt.Errorf("%s: %w: %w (is its interpreter there?)", path, errs.ErrProgramNotFound, err)
	}
	if why := spawn.ExplainExec(c.profile, path); why != "" && err == syscall.EACCES {
		return fmt.Errorf("%s: %w: %w: %s", path, kind, err, why)
	}
	return fmt.Errorf("%s: %w: %w", path, kind, err)
}

// setEnv sets a variable in an environment.
func setEnv(env []string, name, value string) []string {
	out := env[:0:0]
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return append(out, name+"="+value)
}
