package main

import (
	"fmt"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newWait(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a sandbox has ended, and end as it did",
		Long: "wait prints the exit status of the sandbox's program and exits with it, as a shell's wait does\n" +
			"(128+n when signal n ended it). When it cannot be told, or policyctl fails, the exit code is 125.\n" +
			"--timeout gives up with 124; the sandbox goes on.",
		Example:           "  policyctl wait 3f9a\n  policyctl wait 3f9a --timeout 1m -o json",
		Args:              exactly("ID"),
		Annotations:       map[string]string{exitRuleKey: exitStarts},
		ValidArgsFunction: a.completeSandboxes(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			ctx, c, cancel, err := a.streaming(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			res, err := c.Sandboxes.Wait(ctx, &apiv1.WaitRequest{Id: args[0]})
			if err != nil {
				return a.ended(ctx, notOfContainers(ctx, c, "wait", args[0], err))
			}
			if form != cli.Table {
				if err := cli.WriteMessage(a.out, form, res.GetExit()); err != nil {
					return err
				}
			} else if !a.quiet && !res.GetExit().GetUnknown() {
				fmt.Fprintln(a.out, res.GetExit().GetCode())
			}
			return exitOf(res.GetExit())
		},
	}
}
