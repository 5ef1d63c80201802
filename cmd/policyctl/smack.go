package main

import (
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/policy"
)

func newSmack(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "smack COMMAND",
		Short: "Rules for Smack: import, load, check and export them",
		Long: "A SmackPolicy holds the rules and settings of a host's smackfs. It is stored with apply, and listed\n" +
			"with get smackpolicies, as every document. The commands here take its name without a word in front:\n" +
			"platform, platform@3, platform@stable.",
		Example: "  policyctl smack import /etc/smack --name platform > platform.yaml\n" +
			"  policyctl smack lint -f platform.yaml\n" +
			"  policyctl apply -f platform.yaml\n" +
			"  policyctl smack load platform\n" +
			"  policyctl smack status",
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSmackImport(a), newSmackExport(a), newSmackLint(a), newSmackLoad(a), newSmackUnload(a), newSmackStatus(a),
		newSmackDiff(a), newSmackCheck(a), newSmackRevoke(a), newSmackLabels(a))
	return cmd
}

// smackRef is a reference to a SmackPolicy, with the word in front or without.
func smackRef(ref string) string { return strings.TrimPrefix(ref, words[policy.KindSmack]+"/") }
