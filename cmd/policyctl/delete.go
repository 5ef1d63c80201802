package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

func newDelete(a *app) *cobra.Command {
	req := &apiv1.DeleteRequest{}
	var expect string
	var force bool
	cmd := &cobra.Command{
		Use:   "delete NAME --expect N",
		Short: "Delete a policy, fragment or Smack policy",
		Long: "delete is refused while something refers to the document, and says what: a policy that includes\n" +
			"the fragment, a sandbox that runs under the policy, a service of this host that is attached to it\n" +
			"(get units). With --force such a service is no reason: each start goes on under the profile of the\n" +
			"last one. A document's history is kept, and rollback brings it back, unless --purge removes that too,\n" +
			"at once or later: the history of what was deleted is removed with the number it ends with.",
		Example:           "  policyctl delete web --expect 4\n  policyctl delete fragment/site/base --expect 2 --purge",
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("expect") {
				return cli.Usage(fmt.Errorf("--expect N is missing: the number of the newest version, the first that `policyctl history %s` lists", args[0]))
			}
			var err error
			if req.Kind, req.Name, err = plainName(args[0]); err != nil {
				return err
			}
			if req.Expect, err = expectation(expect); err != nil {
				return err
			}
			if req.RequestId == "" {
				req.RequestId = cli.RequestID()
			}
			if req.Kind == policy.KindPolicy && !force {
				if err := a.notAttached(req.Name); err != nil {
					return err
				}
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			_, err = change(a, ctx, req.RequestId, func(ctx context.Context) (*apiv1.DeleteResponse, error) {
				return cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.DeleteResponse, error) {
					return c.Policies.Delete(ctx, req, o...)
				})
			})
			if err != nil {
				return otherKind(ctx, c, args[0], err)
			}
			kept := "its history is kept"
			if req.Purge {
				kept = "with its history"
			}
			a.say("%s/%s deleted, %s", words[req.Kind], req.Name, kept)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&expect, "expect", "", "number of the version that must be the newest one")
	f.BoolVar(&force, "force", false, "also a policy that services are attached to")
	f.BoolVar(&req.Purge, "purge", false, "remove its history too")
	f.StringVar(&req.RequestId, "request-id", "", "id of an earlier, equal request to learn the result of")
	return cmd
}
