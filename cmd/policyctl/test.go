package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policytest"
)

// performCommand is the hidden command that performs operations under a policy.
const performCommand = "test-perform"

func newTest(a *app) *cobra.Command {
	var enforce, verbose bool
	var junit string
	var least float64
	cmd := &cobra.Command{
		Use:   "test FILE|FOLDER|-... [flags]",
		Short: "Run tests of policies: documents of kind PolicyTest",
		Long: "test asks a policy what the tests expect of it: operations with their verdict, errno and layer. It needs\n" +
			"no daemon unless a test names a policy of policyd. Folders stand for all *.yaml and *.yml in them.\n\n" +
			"With --enforce every operation is besides performed, by a process that this kernel confines, in a fresh\n" +
			"scratch tree; the kernel's answer must be the expected and the decided one. Nothing outside of the tree\n" +
			"is changed. What cannot be performed here is skipped by name.\n\n" +
			"Rules that no expectation touched are listed. Rules of shipped fragments (std/...) are not counted.\n\n" +
			"Exit codes: 0 all is as expected, 1 something is not, 2 a file is wrong and nothing was run.",
		Example: "  policyctl test web.test.yaml\n" +
			"  policyctl test tests/ --enforce --junit report.xml --coverage-min 80\n" +
			"  cat web.yaml web.test.yaml | policyctl test - -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("FILE is missing: a file with tests, a folder, or - for standard input")
			}
			return nil
		},
		Annotations: map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			if least < 0 || least > 100 || least > 0 && least < 1 {
				return cli.Usage(fmt.Errorf("--coverage-min %g: want a percentage, 0 or 1 to 100 (80 is four of five rules)", least))
			}
			report, err := a.runTests(cmd.Context(), args, enforce)
			if err != nil {
				return err
			}
			if junit != "" {
				if err := a.writeJUnit(junit, report); err != nil {
					return err
				}
			}
			return a.tellReport(form, report, least, verbose, junit == cli.Stdin)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&enforce, "enforce", false, "perform the operations under the kernel's own enforcement, and compare")
	f.StringVar(&junit, "junit", "", "write JUnit XML to this file; - is standard output, instead of the report")
	f.Float64Var(&least, "coverage-min", 0, "fail unless the tests of every policy touch this percentage of its rules")
	f.BoolVarP(&verbose, "verbose", "v", false, "a line for every expectation")
	return cmd
}

// newTestPerform is the process that performs for test --enforce. What it does
// to itself cannot be undone, so it is never policyctl's own.
func newTestPerform(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         performCommand,
		Short:       "Perform operations for test --enforce (not for people)",
		Example:     "  policyctl test web.test.yaml --enforce",
		Hidden:      true,
		Args:        none,
		Annotations: map[string]string{exitRuleKey: exitAnswers},
		RunE:        func(*cobra.Command, []string) error { return policytest.Perform(a.in, a.out) },
	}
}

// runTests loads and runs all tests of files.
func (a *app) runTests(ctx context.Context, files []string, enforce bool) (*policytest.Report, error) {
	sources, err := cli.ReadSources(files, a.in)
	if err != nil {
		return nil, err
	}
	tests, err := policytest.Load(sources)
	if bad, ok := errors.AsType[*policytest.BadFiles](err); ok {
		cli.Findings(a.err, a.painter(a.err), bad.Findings)
		return nil, &cli.Exit{Code: cli.ExitUsage}
	}
	if err != nil {
		return nil, err
	}
	r := &policytest.Runner{Fetch: func(ctx context.Context, ref string, set map[string]string) (*policytest.Compiled, error) {
		c, err := a.fetch(ctx, ref, set, asWritten, false)
		if err != nil {
			return nil, errors.New(cli.Text(err)) // the report shows its text
		}
		return &policytest.Compiled{Name: c.name, Profile: c.profile, Origins: c.origins, Layers: c.layers}, nil
	}}
	if enforce {
		r.Performer, r.Support = []string{os.Args[0], performCommand}, landlock.Probe()
		if err := r.Support.Err; err != nil { // else a gate would prove nothing, and pass
			return nil, fmt.Errorf("--enforce: this kernel enforces nothing (without it, operations are decided): %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	began := time.Now()
	var results []*policytest.Result
	for _, t := range tests {
		res, err := r.Run(ctx, t)
		if err != nil {
			return nil, a.ended(ctx, err)
		}
		results = append(results, res)
	}
	return policytest.NewReport(results, time.Since(began)), nil
}

func (a *app) writeJUnit(name string, report *policytest.Report) error {
	if name == cli.Stdin {
		return policytest.WriteJUnit(a.out, report)
	}
	return cli.WriteAtomically(name, 0o644, func(w io.Writer) error { return policytest.WriteJUnit(w, report) })
}

// tellReport prints the report and makes the exit code of it.
func (a *app) tellReport(form cli.Format, report *policytest.Report, least float64, verbose, printed bool) error {
	switch {
	case printed:
	case form != cli.Table:
		if err := cli.WriteValue(a.out, form, report); err != nil {
			return err
		}
	case a.quiet && report.Good():
	default:
		p := a.painter(a.out)
		styles := map[policytest.Status]cli.Style{policytest.Passed: cli.Green, policytest.Failed: cli.Red, policytest.Skipped: cli.Yellow}
		paint := func(s string, status policytest.Status) string { return p.Paint(s, styles[status]) }
		if err := policytest.WriteText(a.out, report, verbose, paint); err != nil {
			return err
		}
	}
	good := report.Good()
	for i := range report.Coverage {
		if c := &report.Coverage[i]; c.Percent < least {
			fmt.Fprintf(a.err, "policyctl: tests touch %.1f%% of the rules of %s, less than %g%%\n", c.Percent, cli.Clean(c.Policy), least)
			good = false
		}
	}
	if !good {
		return &cli.Exit{Code: cli.ExitRefused}
	}
	return nil
}
