package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// runFlags are the flags of run.
type runFlags struct {
	sets, env                  []string
	user, group, dir           string
	detach, tty, remove, stdin bool
	verbose                    bool
	logLimit                   uint64
	smackLabel, smackPool      string
}

func newRun(a *app) *cobra.Command {
	o := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run REF [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Start a program under a policy, as a child of policyd",
		Long: "run has policyd start the program, carries its standard streams, and ends with its exit status\n" +
			"(128+n when signal n ended it). Failures before the program runs are 125, or 126 and 127 when it\n" +
			"cannot be executed or does not exist.\n\n" +
			"The environment is a small one, so that no secret of the caller's gets into a sandbox unasked:\n" +
			"PATH, HOME, USER, LOGNAME and SHELL of the user it runs as, and LANG, LC_*, TZ and (with --tty)\n" +
			"TERM of the caller; then --env, then the policy's process.environment. --env NAME alone copies\n" +
			"the caller's. The working directory is the caller's.\n\n" +
			"Standard input is always carried, and closed when it ends here; -i is accepted for habit's sake.\n" +
			"In a loop that reads the same input, give it </dev/null.\n" +
			"With --tty the program gets a terminal of its own, of the size of this one. SIGINT, SIGTERM,\n" +
			"SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM and SIGCONT are handed on to the program. At a terminal\n" +
			"without --tty a second ^C within 3 seconds ends every process of the sandbox, a third leaves at\n" +
			"once. When nobody reads the output any more, the program gets SIGPIPE. When policyctl goes away or\n" +
			"--timeout passes (exit code 124), it gets SIGHUP and is ended soon after.\n\n" +
			"A restart of policyd by systemd does not end the program: run says so, waits up to a minute for the next\n" +
			"policyd and goes on where it was. When no run comes back, output goes into the sandbox's logs from\n" +
			"then on and input ends.\n\n" +
			"--smack-label L gives the program a Smack label instead of the policy's process.smackLabel; --smack-pool\n" +
			"PREFIX the first of PREFIX-1, PREFIX-2, ... that no sandbox alive has, since the kernel never frees a\n" +
			"label. Both take the role operator, or a role whose sandboxLabels name the label.\n\n" +
			"--detach prints the sandbox's id and leaves; see logs, wait and kill.",
		Example: "  policyctl run web -- nginx -g 'daemon off;'\n" +
			"  policyctl run shell --tty --rm -- /bin/bash\n" +
			"  policyctl run web --set state=/srv/web --env DEBUG=1 --detach -- /usr/sbin/nginx\n" +
			"  tar c . | policyctl run archive -- xz > x.tar.xz",
		Args: func(cmd *cobra.Command, args []string) error {
			before, _, err := splitCommand(cmd, args)
			if err != nil {
				return err
			}
			return exactly("REF")(cmd, before)
		},
		Annotations:       map[string]string{exitRuleKey: exitStarts},
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, program, err := splitCommand(cmd, args)
			if err != nil {
				return err
			}
			spec, err := o.spec(args[0], program)
			if err != nil {
				return err
			}
			if o.detach {
				return a.detach(cmd.Context(), spec, o.verbose)
			}
			return a.attach(cmd.Context(), spec, o.tty, o.verbose)
		},
	}
	cmd.SetFlagErrorFunc(flagsOfProgram)
	f := cmd.Flags()
	f.StringArrayVar(&o.sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.StringArrayVarP(&o.env, "env", "e", nil, "environment, NAME=VALUE, or NAME to copy the caller's; may be repeated")
	f.StringVarP(&o.user, "user", "u", "", "user name or uid to run as (default: the caller)")
	f.StringVar(&o.group, "group", "", "group name or gid (default: the user's)")
	f.StringVarP(&o.dir, "dir", "w", "", "working directory (default: this one)")
	f.BoolVarP(&o.detach, "detach", "d", false, "print the sandbox's id and leave; output goes to its logs")
	f.BoolVarP(&o.tty, "tty", "t", false, "give the program a terminal")
	f.BoolVarP(&o.stdin, "interactive", "i", false, "no effect: standard input is always carried")
	verboseFlag(cmd, &o.verbose)
	f.BoolVar(&o.remove, "rm", false, "forget the sandbox and its logs when it ends")
	f.StringVar(&o.smackLabel, "smack-label", "", "Smack label of the program, instead of the policy's")
	f.StringVar(&o.smackPool, "smack-pool", "", "take a free Smack label of PREFIX-1, PREFIX-2 and so on")
	f.Uint64Var(&o.logLimit, "log-limit", 0, "keep at most so many bytes of output (with --detach)")
	return cmd
}

func (o *runFlags) spec(ref string, program []string) (*apiv1.SandboxSpec, error) {
	set, err := pairs("--set", o.sets)
	if err != nil {
		return nil, err
	}
	if o.smackLabel != "" && o.smackPool != "" {
		return nil, cli.Usage(errors.New("--smack-label and --smack-pool: only one of them"))
	}
	if o.detach && o.tty {
		return nil, cli.Usage(errors.New("--detach and --tty: only one of them"))
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	env, err := runEnvironment(o.user, o.tty, o.env)
	if err != nil {
		return nil, err
	}
	if ref, err = landlockRef(ref); err != nil {
		return nil, err
	}
	return &apiv1.SandboxSpec{
		Ref: ref, Parameters: set, Argv: program, Environment: env, Directory: dir,
		User: o.user, Group: o.group, Remove: o.remove, LogLimit: o.logLimit,
		SmackLabel: o.smackLabel, SmackPool: o.smackPool,
	}, nil
}

// detach starts a sandbox and prints its id.
func (a *app) detach(ctx context.Context, spec *apiv1.SandboxSpec, verbose bool) error {
	form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML, cli.Name)
	if err != nil {
		return err
	}
	req := &apiv1.StartRequest{Spec: spec, RequestId: cli.RequestID()}
	ctx, c, cancel, err := a.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	res, err := cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.StartResponse, error) {
		return c.Sandboxes.Start(ctx, req, o...)
	})
	if err != nil {
		return a.startHint(ctx, c, spec.GetRef(), err)
	}
	a.tellRecord(res.GetSandbox(), verbose)
	if form == cli.JSON || form == cli.YAML {
		return cli.WriteMessage(a.out, form, res.GetSandbox())
	}
	fmt.Fprintln(a.out, cli.Clean(res.GetSandbox().GetId()))
	return nil
}

// attach starts a sandbox and carries its streams until it ends.
func (a *app) attach(ctx context.Context, spec *apiv1.SandboxSpec, tty, verbose bool) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	// SIGPIPE is caught, so that a closed reader gives EPIPE and the program is told.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, append(cli.Forwarded(), syscall.SIGWINCH)...)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)

	id := ""
	at := &cli.Attached{
		Client: c, Stdin: a.in, Stdout: a.out, Stderr: a.err,
		Signals: signals, Interactive: !tty && cli.IsTerminal(a.in),
		Started: func(s *apiv1.Sandbox) { id = s.GetId(); a.tellRecord(s, verbose) }, Notice: a.note,
	}
	if tty {
		in, ok := a.in.(*os.File)
		if !ok || !cli.IsTerminal(in) {
			return cli.Usage(errors.New("--tty: standard input is not a terminal"))
		}
		spec.Terminal = cli.Size(in)
		raw, err := cli.MakeRaw(in)
		if err != nil {
			return fmt.Errorf("--tty: %w", err)
		}
		defer raw.Restore() // also when a panic passes
		a.raw = true
		at.Terminal = raw
		at.Window = func() *apiv1.Terminal { return cli.Size(in) }
		at.Stderr = io.Discard // a terminal has one output
	}
	exit, err := at.Run(ctx, &apiv1.StartRequest{Spec: spec, RequestId: cli.RequestID()})
	if at.Terminal != nil {
		at.Terminal.Restore()
		a.raw = false
	}
	// policyd has the deadline too, and may end the call a moment before the clock here does.
	passed := errors.Is(ctx.Err(), context.DeadlineExceeded) || a.timeout > 0 && status.Code(err) == codes.DeadlineExceeded
	if err != nil && id != "" && passed && at.Away() {
		return &cli.Exit{Code: cli.ExitTimedOut, Err: fmt.Errorf("gave up after %v, while policyd restarts: sandbox %s goes on, end it with `policyctl kill %s`", a.timeout, id, id)}
	}
	if err != nil && id != "" && passed {
		return &cli.Exit{Code: cli.ExitTimedOut, Err: fmt.Errorf("gave up after %v: sandbox %s gets SIGHUP and is ended soon after", a.timeout, id)}
	}
	if err != nil {
		return a.startHint(ctx, c, spec.GetRef(), err)
	}
	return exitOf(exit)
}

// startHint says what a reference may have meant that there is no policy of.
func (a *app) startHint(ctx context.Context, c *cli.Client, ref string, err error) error {
	if code := status.Code(err); code != codes.NotFound && code != codes.InvalidArgument {
		return err
	}
	return fileHint(ref, "run takes policies of policyd alone, exec -f "+ref+" needs none", otherKind(ctx, c, ref, err))
}

// exitOf makes a program's status policyctl's own.
func exitOf(s *apiv1.ExitStatus) error {
	switch {
	case s.GetUnknown():
		return errors.New("the sandbox has ended, but nobody saw its exit status")
	case s.GetCode() == 0:
		return nil
	}
	return &cli.Exit{Code: int(s.GetCode())}
}

func missingText(m *apiv1.MissingRight) string {
	if m.GetKind() == "smack" {
		return fmt.Sprintf("Smack label %s (this kernel has no Smack)", m.GetRight())
	}
	return strings.TrimSpace(fmt.Sprintf("layer %s: %s %s (needs ABI %d)", m.GetLayer(), m.GetKind(), m.GetRight(), m.GetNeedsAbi()))
}
