package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"policyd.dev/policyd/internal/buildinfo"
)

func newMan(*app) *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write the manual pages",
		Long:    "man writes policyctl(1) and a page for every command into a folder, for packages. The date in them is\nthat of $SOURCE_DATE_EPOCH, where it is set.",
		Example: "  policyctl man /usr/local/share/man/man1",
		Args:    exactly("FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			header := &doc.GenManHeader{Title: "POLICYCTL", Section: "1", Source: "policyd " + buildinfo.Version, Manual: "policyd"}
			if os.Getenv("SOURCE_DATE_EPOCH") == "" {
				now := time.Now()
				header.Date = &now
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, header, args[0])
		},
	}
}
