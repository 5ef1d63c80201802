package main

import (
	"errors"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func newRm(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID...",
		Short:   "Forget ended sandboxes and remove their logs",
		Example: "  policyctl rm 3f9a\n  policyctl rm $(policyctl ps -a -o name)",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("ID")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: a.completeSandboxes(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			var failed []error
			for _, id := range args {
				if _, err := c.Sandboxes.Remove(ctx, &apiv1.RemoveRequest{Id: id}); err != nil {
					failed = append(failed, err)
					continue
				}
				a.say("%s", id)
			}
			if len(failed) == 1 {
				return failed[0]
			}
			return errors.Join(failed...)
		},
	}
}
