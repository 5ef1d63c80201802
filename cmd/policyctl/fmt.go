package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

func newFmt(a *app) *cobra.Command {
	var files []string
	var write, check bool
	cmd := &cobra.Command{
		Use:   "fmt -f FILE|FOLDER|-",
		Short: "Format files; comments stay",
		Long: "fmt prints the files in their one layout. -w writes them back, --check only says which are not\n" +
			"formatted. Formatting twice changes nothing more.\n\n" +
			"Exit code of --check: 0: all are formatted, 1: some are not, 2: some cannot be read. All are looked at.",
		Example: "  policyctl fmt -f web.yaml -w\n  policyctl fmt -f policies/ --check",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			if write && check {
				return cli.Usage(errors.New("-w and --check: only one of them"))
			}
			sources, err := cli.ReadSources(files, a.in)
			if err != nil {
				return err
			}
			unformatted, broken := false, false
			for i, s := range sources {
				text, err := policy.Format(s.GetContent())
				if found, ok := errors.AsType[*policy.Errors](err); ok {
					for _, f := range found.Findings() {
						f.File = s.GetName()
					}
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", s.GetName(), err)
					if !check {
						return err
					}
					broken = true
					cli.Report(a.err, a.painter(a.err), err)
					continue
				}
				same := bytes.Equal(text, s.GetContent())
				switch {
				case check:
					if !same {
						unformatted = true
						fmt.Fprintln(a.out, cli.Clean(s.GetName()))
					}
				case write && s.GetName() != "<stdin>":
					if same {
						continue
					}
					if err := rewrite(s.GetName(), text); err != nil {
						return err
					}
					a.say("%s", s.GetName())
				default:
					if i > 0 {
						fmt.Fprintln(a.out, "---")
					}
					if _, err := a.out.Write(text); err != nil {
						return err
					}
				}
			}
			if broken {
				return &cli.Exit{Code: cli.ExitUsage}
			}
			if unformatted {
				return &cli.Exit{Code: cli.ExitRefused}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "file, folder or - for standard input; may be repeated")
	f.BoolVarP(&write, "write", "w", false, "write the files back")
	f.BoolVar(&check, "check", false, "only name the files that are not formatted")
	return cmd
}

// rewrite replaces a file, keeping its mode; of a symbolic link the target.
func rewrite(name string, text []byte) error {
	real, err := realFile(name)
	if err != nil {
		return err
	}
	st, err := os.Stat(real)
	if err != nil {
		return err
	}
	return cli.WriteAtomically(real, st.Mode().Perm(), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
