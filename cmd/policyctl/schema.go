package main

import (
	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/policy"
)

func newSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of policy documents, for editors",
		Example: "  policyctl schema > policyd.schema.json\n  # first line of web.yaml:\n  # yaml-language-server: $schema=policyd.schema.json",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(policy.JSONSchema())
			return err
		},
	}
}
