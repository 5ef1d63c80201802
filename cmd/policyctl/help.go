package main

import (
	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
)

// newHelp is cobra's help command, but for a topic that does not exist it fails.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Help about a command",
		Example: "  policyctl help run",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var out []string
			if c, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range c.Commands() {
					if sub.IsAvailableCommand() {
						out = append(out, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(c, rest)
			}
			if err != nil {
				return cli.Usage(err)
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}
