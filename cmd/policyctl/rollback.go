package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newRollback(a *app) *cobra.Command {
	req := &apiv1.RollbackRequest{}
	var expect string
	cmd := &cobra.Command{
		Use:   "rollback NAME --to N",
		Short: "Make the content of an earlier version the newest version",
		Long: "rollback stores a new version with the content, and the fragments, that version N had.\n" +
			"Nothing is removed from the history, so a rollback can be rolled back.",
		Example:           "  policyctl rollback web --to 2 --message 'port 8080 was not meant'",
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("to") {
				return cli.Usage(fmt.Errorf("--to N is missing: the number of a version that `policyctl history %s` lists", args[0]))
			}
			if req.Kind, req.Name, err = plainName(args[0]); err != nil {
				return err
			}
			if req.Expect, err = expectation(expect); err != nil {
				return err
			}
			if req.RequestId == "" {
				req.RequestId = cli.RequestID()
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			res, err := change(a, ctx, req.RequestId, func(ctx context.Context) (*apiv1.RollbackResponse, error) {
				return cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.RollbackResponse, error) {
					return c.Policies.Rollback(ctx, req, o...)
				})
			})
			if err != nil {
				return otherKind(ctx, c, args[0], err)
			}
			if form == cli.JSON || form == cli.YAML {
				return cli.WriteMessage(a.out, form, res)
			}
			if form == cli.Name {
				a.say("%s", title(res.GetVersion()))
				return nil
			}
			older := ""
			if n := res.GetRunningOlder(); n > 0 {
				older = "; " + count(n, "sandbox runs", "sandboxes run") + " under an older version until they end"
			}
			a.say("%s has the content of version %d%s", title(res.GetVersion()), req.To, older)
			return nil
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&req.To, "to", 0, "number of the version to go back to")
	_ = cmd.RegisterFlagCompletionFunc("to", a.completeVersions)
	f.StringVarP(&req.Message, "message", "m", "", "why, kept with the version")
	f.StringVar(&expect, "expect", "", "number of the version that must be the newest one")
	f.StringVar(&req.RequestId, "request-id", "", "id of an earlier, equal request to learn the result of")
	return cmd
}
