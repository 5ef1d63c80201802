package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newTag(a *app) *cobra.Command {
	req := &apiv1.SetTagRequest{}
	var expect string
	cmd := &cobra.Command{
		Use:   "tag NAME@N TAG",
		Short: "Point a tag at a version, or remove one",
		Long: "tag points TAG at a version; the tag may have pointed at another before. With --remove the\n" +
			"first argument is the name alone. With --expect N it is refused unless the tag points at version N now\n" +
			"(0: there is no such tag), so that of two who move a tag one learns of the other.",
		Example:           "  policyctl tag web@3 stable\n  policyctl tag web@4 stable --expect 3\n  policyctl tag web stable --remove",
		Args:              exactly("NAME@N", "TAG"),
		ValidArgsFunction: a.completeAnyRefs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			if req.Expect, err = expectation(expect); err != nil {
				return err
			}
			if req.Remove {
				if req.Kind, req.Ref, err = plainName(args[0]); err != nil {
					return err
				}
			}
			req.Kind, req.Ref = splitKind(args[0])
			req.Tag = args[1]
			if req.RequestId == "" {
				req.RequestId = cli.RequestID()
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			res, err := change(a, ctx, req.RequestId, func(ctx context.Context) (*apiv1.SetTagResponse, error) {
				return cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.SetTagResponse, error) {
					return c.Policies.SetTag(ctx, req, o...)
				})
			})
			if err != nil {
				return otherKind(ctx, c, args[0], err)
			}
			switch {
			case form == cli.JSON || form == cli.YAML:
				return cli.WriteMessage(a.out, form, res)
			case form == cli.Name:
				a.say("%s", title(res.GetVersion()))
			case req.Remove:
				a.say("tag %s removed from %s", req.Tag, req.Ref)
			default:
				a.say("%s is %s", req.Tag, title(res.GetVersion()))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&req.Remove, "remove", false, "remove the tag")
	cmd.Flags().StringVar(&expect, "expect", "", "number of the version the tag must point at now (0: none yet)")
	cmd.Flags().StringVar(&req.RequestId, "request-id", "", "id of an earlier, equal request to learn the result of")
	return cmd
}
