package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

func newSmackLint(a *app) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "lint -f FILE|FOLDER|-",
		Short: "Look for errors and for what is odd in Smack policies",
		Long: "lint checks the Smack policies of files without a daemon: what validate refuses, rules that have no\n" +
			"effect or are there twice, rules on labels that the kernel gives a meaning, labels that look like\n" +
			"typing errors, and too many labels or objects. Exit code 0: nothing, 1: warnings, 2: errors.",
		Example:     "  policyctl smack lint -f platform.yaml\n  policyctl smack lint -f policies/ -o json",
		Args:        none,
		Annotations: map[string]string{exitRuleKey: exitAnswers},
		RunE: func(*cobra.Command, []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			p, err := a.parse(files)
			if err != nil {
				return err
			}
			res := &apiv1.ValidateResponse{Findings: p.findings}
			n, bad := 0, len(p.findings) > 0
			for _, d := range p.docs {
				if d.Kind == policy.KindSmack {
					n++
					res.Findings = append(res.Findings, policy.Lint(d, nil)...)
				}
			}
			if n == 0 && !bad {
				return &cli.Exit{Code: cli.ExitUsage, Err: fmt.Errorf("no document of kind %s in the files", policy.KindSmack)}
			}
			if form != cli.Table {
				err = cli.WriteMessage(a.out, form, res)
			} else {
				cli.Findings(a.out, a.painter(a.out), res.Findings)
			}
			switch {
			case err != nil:
				return err
			case bad:
				return &cli.Exit{Code: cli.ExitUsage}
			case len(res.Findings) > 0:
				return &cli.Exit{Code: cli.ExitRefused}
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file, folder (all *.yaml, *.yml beneath it) or - for standard input; may be repeated")
	return cmd
}

// compileSmackFile compiles the only SmackPolicy of files.
func (a *app) compileSmackFile(files []string) (*policy.CompiledSmack, error) {
	p, err := a.parse(files)
	if err != nil {
		return nil, err
	}
	if len(p.findings) > 0 {
		cli.Findings(a.err, a.painter(a.err), p.findings)
		return nil, &cli.Exit{Code: cli.ExitRefused}
	}
	var found *policy.Document
	for _, d := range p.docs {
		if d.Kind != policy.KindSmack {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("several Smack policies in the files (%s, %s): want one", found.Name, d.Name)
		}
		found = d
	}
	if found == nil {
		return nil, errors.New("no Smack policy in the files: want one document of kind " + policy.KindSmack)
	}
	return policy.CompileSmack(found.Resource.GetSmackPolicy(), found)
}
