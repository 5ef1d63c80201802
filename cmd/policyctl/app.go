package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"google.golang.org/protobuf/proto"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/paths"
)

// unaryTimeout bounds a call that answers at once, unless --timeout says otherwise.
const unaryTimeout = 30 * time.Second

// app is one run of policyctl: its standard streams and global flags.
type app struct {
	args     []string // of the command line; cobra does not tell where -- stands when it completes
	in       io.Reader
	out, err io.Writer

	socket, output, color string
	user, system          bool // which policyd, of the calling user or the system; given before the command
	timeout               time.Duration
	quiet                 bool

	raw     bool // the terminal is in raw mode: lines need a carriage return
	running bool // a command's own code has begun: errors are no longer of usage
	client  *cli.Client
}

// run runs policyctl with arguments and returns its exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) (code int) {
	a := &app{args: args, in: in, out: out, err: errOut}
	defer func() {
		// People get a line, not a trace; developers ask for one.
		if r := recover(); r != nil {
			if os.Getenv("GOTRACEBACK") != "" {
				panic(r)
			}
			fmt.Fprintf(errOut, "policyctl: internal error, please report it: %v (GOTRACEBACK=all shows where)\n", r)
			code = cli.ExitFailed
		}
	}()
	args = a.takePolicyd(args)
	root := newRoot(a)
	root.SetArgs(args)
	defer func() {
		if a.client != nil {
			a.client.Close()
		}
	}()
	cmd, err := root.ExecuteC()
	if err == nil {
		return cli.ExitOK
	}
	if !a.running {
		err = cli.Usage(fmt.Errorf("%w\nsee `%s --help`", err, cmd.CommandPath()))
	}
	cli.Report(a.err, a.painter(a.err), err)
	return exitRule(cmd)(err)
}

// Rules for the exit code of a command (key of cobra's annotations).
const (
	exitRuleKey = "exit"
	exitStarts  = "starts" // its status is that of a program
	exitAnswers = "answer" // 1 is an answer, so failures that would be 1 are 2
)

func exitRule(cmd *cobra.Command) func(error) int {
	switch cmd.Annotations[exitRuleKey] {
	case exitStarts:
		return cli.StartExitCode
	case exitAnswers:
		return func(err error) int {
			exit, ok := errors.AsType[*cli.Exit](err)
			if code := cli.ExitCode(err); code != cli.ExitRefused || ok && exit.Err == nil {
				return code
			}
			return cli.ExitUsage
		}
	}
	return cli.ExitCode
}

// takePolicyd takes --user or --system from before the command, where systemctl has them too: behind some commands --user is
// the user to run a program as.
func (a *app) takePolicyd(args []string) []string {
	for len(args) > 0 {
		switch args[0] {
		case "--user":
			a.user, a.system = true, false
		case "--system":
			a.user, a.system = false, true
		default:
			return args
		}
		args = args[1:]
	}
	return args
}

// target is the address of the policyd that is meant; "" for the default.
func (a *app) target() string {
	switch {
	case a.socket != "":
		return a.socket
	case a.user:
		return paths.User().Socket()
	case a.system:
		return paths.System().Socket()
	}
	return ""
}

// dial returns the connection to policyd.
func (a *app) dial() (*cli.Client, error) {
	if a.client == nil {
		c, err := cli.Dial(a.target())
		if err != nil {
			return nil, err
		}
		a.client = c
	}
	return a.client, nil
}

// call gives the context of a call that answers at once, and a.dial's client.
func (a *app) call(ctx context.Context) (context.Context, *cli.Client, context.CancelFunc, error) {
	c, err := a.dial()
	if err != nil {
		return nil, nil, nil, err
	}
	d := a.timeout
	if d == 0 {
		d = unaryTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, c, cancel, nil
}

// streaming gives the context of a call that goes on: it ends with --timeout
// when one is given, and with SIGINT or SIGTERM.
func (a *app) streaming(ctx context.Context) (context.Context, *cli.Client, context.CancelFunc, error) {
	c, err := a.dial()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if a.timeout == 0 {
		return ctx, c, stop, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	return ctx, c, func() { cancel(); stop() }, nil
}

// ended is the error of something that goes on until it is left: leaving it
// with ^C is no failure to talk about.
func (a *app) ended(ctx context.Context, err error) error {
	switch ctx.Err() {
	case nil:
		return err
	case context.Canceled:
		return &cli.Exit{Code: cli.ExitInterrupted}
	}
	return &cli.Exit{Code: cli.ExitTimedOut, Err: fmt.Errorf("gave up after %v", a.timeout)}
}

// line prints a message as one line of JSON.
func (a *app) line(m proto.Message) error {
	b, err := cli.CompactJSON(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s\n", b)
	return err
}

// painter never fails: the value of --color was checked before commands run.
func (a *app) painter(w io.Writer) cli.Painter {
	p, _ := cli.NewPainter(a.color, w)
	return p
}

// note tells the person something on standard error, unless -q.
func (a *app) note(format string, args ...any) {
	if a.quiet {
		return
	}
	end := "\n"
	if a.raw {
		end = "\r\n"
	}
	fmt.Fprint(a.err, "policyctl: "+cli.Clean(fmt.Sprintf(format, args...))+end)
}

// say prints a line of a command's result, unless -q.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintln(a.out, cli.Clean(fmt.Sprintf(format, args...)))
	}
}

// change makes a change that must not be given up half-way: the first SIGINT or
// SIGTERM waits for policyd's answer, the second leaves and says how to find
// out what became of it.
func change[T any](a *app, ctx context.Context, requestID string, f func(context.Context) (T, error)) (T, error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := f(ctx)
		done <- answer{v, err}
	}()
	interrupted := false
	for {
		select {
		case got := <-done:
			return got.value, got.err
		case <-signals:
			if interrupted {
				var zero T
				return zero, &cli.Exit{Code: cli.ExitInterrupted, Err: fmt.Errorf("left without an answer: it is not known whether the change was stored; the same command with --request-id %s tells, and changes nothing twice", requestID)}
			}
			interrupted = true
			a.note("interrupted: waiting for policyd to say whether the change was stored (again to leave)")
		}
	}
}

// exactly, atLeast and none check the number of arguments and name them.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing", strings.Join(names[len(args):], " and "))
		}
		if len(args) > len(names) {
			if cmd.Flags().Lookup("file") != nil {
				return fmt.Errorf("argument %q is one too many; files are given by -f", args[len(names)])
			}
			return fmt.Errorf("argument %q is one too many", args[len(names)])
		}
		return nil
	}
}

func none(cmd *cobra.Command, args []string) error { return exactly()(cmd, args) }

// flagsOfProgram is the error of a flag of a command that takes a program: most
// often it is the program's, and the -- before it was forgotten.
func flagsOfProgram(_ *cobra.Command, err error) error {
	return fmt.Errorf("%w; the program and its arguments stand after --", err)
}

// splitCommand cuts arguments at "--": what stands before, and the program with
// its arguments.
func splitCommand(cmd *cobra.Command, args []string) (before, program []string, err error) {
	n := cmd.ArgsLenAtDash()
	if n < 0 {
		return nil, nil, fmt.Errorf("the program is missing: put it after --")
	}
	if n == len(args) {
		return nil, nil, fmt.Errorf("the program is missing after --")
	}
	return args[:n], args[n:], nil
}

// pairs parses NAME=VALUE flags (--set, -l).
func pairs(flag string, values []string) (map[string]string, error) {
	m := make(map[string]string, len(values))
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, cli.Usage(fmt.Errorf("%s %q: want NAME=VALUE", flag, v))
		}
		if old, twice := m[name]; twice && old != value {
			return nil, cli.Usage(fmt.Errorf("%s %s is given twice", flag, name))
		}
		m[name] = value
	}
	return m, nil
}

// labelText is labels as NAME=VALUE,... in order of their names.
func labelText(m map[string]string) string {
	var s []string
	for k, v := range m {
		s = append(s, k+"="+v)
	}
	slices.Sort(s)
	return strings.Join(s, ",")
}
