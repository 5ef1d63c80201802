package main

import (
	"errors"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/policytest"
)

func newValidate(a *app) *cobra.Command {
	var files []string
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate -f FILE|FOLDER|-",
		Short: "Check files without a daemon",
		Long: "validate checks documents as apply does, and that policies compile. Fragments are found in the\n" +
			"files given and among the shipped ones (std/...); those stored in policyd are not looked at.\n" +
			"Parameters without a default get a value they may have.",
		Example: "  policyctl validate -f web.yaml --strict\n  cat web.yaml | policyctl validate -f - -o json",
		Args:    none,
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
			for _, d := range p.docs {
				found, err := checkDocument(d, p.fragments)
				if err != nil {
					return err
				}
				res.Findings = append(res.Findings, found...)
			}
			bad := 0
			for _, f := range res.Findings {
				if strict {
					f.Severity = apiv1.Finding_SEVERITY_ERROR
				}
				if f.GetSeverity() == apiv1.Finding_SEVERITY_ERROR {
					bad++
				}
			}
			if form != cli.Table {
				if err := cli.WriteMessage(a.out, form, res); err != nil {
					return err
				}
			} else {
				cli.Findings(a.err, a.painter(a.err), res.Findings)
			}
			if bad > 0 {
				return &cli.Exit{Code: cli.ExitRefused}
			}
			if form == cli.Table {
				remarks := ""
				if n := len(res.Findings); n > 0 {
					remarks = ", with " + count(n, "warning", "warnings")
				}
				a.say("%s well%s", count(len(p.docs), "document is", "documents are"), remarks)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file, folder (all *.yaml, *.yml beneath it) or - for standard input; may be repeated")
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings are errors")
	return cmd
}

// checkDocument looks for what Parse cannot see: includes, the compilation and
// what is worth a warning.
func checkDocument(d *policy.Document, fragments given) ([]*apiv1.Finding, error) {
	if d.Kind == policy.KindTest {
		return policytest.Check(d), nil
	}
	_, _, err := policy.Pin(d, fragments)
	if p := d.Resource.GetLandlockPolicy(); err == nil && p != nil {
		_, err = policy.Compile(p, policy.CompileOptions{Parameters: policy.ExampleParameters(p), Fragments: fragments, Document: d})
	}
	if found, ok := errors.AsType[*policy.Errors](err); ok {
		return found.Findings(), nil
	}
	if err != nil {
		return nil, err
	}
	return policy.Lint(d, fragments), nil
}
