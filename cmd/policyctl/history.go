package main

import (
	"strings"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newHistory(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "history NAME",
		Short:             "List the versions of a document, newest first",
		Example:           "  policyctl history web\n  policyctl history fragment/site/base -o json\n  policyctl history smackpolicy/platform",
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			kind, name, err := plainName(args[0])
			if err != nil {
				return err
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			var all []*apiv1.VersionInfo
			for token := ""; ; {
				res, err := c.Policies.ListVersions(ctx, &apiv1.ListVersionsRequest{Kind: kind, Name: name, PageToken: token})
				if err != nil {
					return otherKind(ctx, c, args[0], err)
				}
				all = append(all, res.GetVersions()...)
				if token = res.GetNextPageToken(); token == "" {
					break
				}
			}
			if form == cli.Table {
				return a.historyTable(all)
			}
			return a.versions(form, all)
		},
	}
}

func (a *app) historyTable(list []*apiv1.VersionInfo) error {
	rows := cli.NewRows(a.out, "VERSION", "TAGS", "AUTHOR", "CREATED", "DIGEST", "MESSAGE")
	for _, v := range list {
		message := v.GetMessage()
		if v.GetDeleted() {
			message = strings.TrimSpace("(deleted) " + message)
		}
		rows.Add(title(v)[len(words[v.GetKind()])+1:], strings.Join(v.GetTags(), ","), v.GetAuthor(), stamp(v.GetCreated()), shortDigest(v.GetDigest()), message)
	}
	return rows.Flush()
}
