package main

import (
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newKill(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "kill ID [SIGNAL]",
		Short: "Send a signal to a sandbox, or end all of its processes",
		Long: "kill sends SIGNAL (a name or number, default TERM) to the sandbox's first process; of a\n" +
			"sandbox with a terminal, to the foreground group of it. With --all\n" +
			"every process of the sandbox is ended with SIGKILL, whatever it did to get away.",
		Example: "  policyctl kill 3f9a\n  policyctl kill 3f9a HUP\n  policyctl kill 3f9a --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return exactly("ID")(cmd, args)
		},
		ValidArgsFunction: a.completeSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			sig := syscall.SIGTERM
			if all {
				sig = syscall.SIGKILL
			}
			if len(args) == 2 {
				s, err := cli.ParseSignal(args[1])
				if err != nil {
					return err
				}
				if all && s != syscall.SIGKILL {
					return cli.Usage(fmt.Errorf("--all ends processes with SIGKILL; leave %s out", args[1]))
				}
				sig = s
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			_, err = c.Sandboxes.Signal(ctx, &apiv1.SignalRequest{Id: args[0], Signal: int32(sig), All: all})
			return notOfContainers(ctx, c, "kill", args[0], err)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end every process of the sandbox")
	return cmd
}
