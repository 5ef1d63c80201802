package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of policyctl",
		Long:    "version shows what this policyctl is; that of the daemon is in status.",
		Example: "  policyctl version -o json",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			if form == cli.Table {
				_, err := fmt.Fprintf(a.out, "policyctl %s (%s, compiler %d, Landlock ABI 1 to %d)\n", buildinfo.Version, runtime.Version(), policy.CompilerVersion, profile.MaxABI)
				return err
			}
			return cli.WriteValue(a.out, form, struct {
				Version         string `json:"version"`
				Go              string `json:"go"`
				CompilerVersion int    `json:"compilerVersion"`
				MaxABI          int    `json:"maxAbi"`
			}{buildinfo.Version, runtime.Version(), policy.CompilerVersion, profile.MaxABI})
		},
	}
}
