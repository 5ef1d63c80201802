package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

func newLogs(a *app) *cobra.Command {
	req := &apiv1.LogsRequest{}
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show the kept output of a detached sandbox",
		Long: "logs writes what the sandbox wrote to its standard output and error to those of policyctl, byte\n" +
			"for byte. ID may be a unique beginning of one. When older output was dropped, it says how much.\n" +
			"An attached sandbox has logs once its client did not come back after a restart of policyd.",
		Example:           "  policyctl logs 3f9a -f\n  policyctl logs 3f9a --tail 20",
		Args:              exactly("ID"),
		ValidArgsFunction: a.completeSandboxes(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = args[0]
			ctx, c, cancel, err := a.streaming(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			stream, err := c.Sandboxes.Logs(ctx, req)
			if err != nil {
				return a.ended(ctx, err)
			}
			for {
				m, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return a.ended(ctx, notOfContainers(ctx, c, "logs", args[0], err))
				}
				switch d := m.GetData().(type) {
				case *apiv1.LogsResponse_Dropped:
					a.note("%s of older output were dropped", size(d.Dropped))
				case *apiv1.LogsResponse_Stdout:
					_, err = a.out.Write(d.Stdout)
				case *apiv1.LogsResponse_Stderr:
					_, err = a.err.Write(d.Stderr)
				}
				if err != nil {
					return err
				}
			}
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "go on as output comes, until the sandbox ends")
	cmd.Flags().Uint32Var(&req.Tail, "tail", 0, "only the last lines (0: all that is kept)")
	return cmd
}
