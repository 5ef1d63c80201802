package main

import (
	"fmt"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/store"
)

func newDB(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "db check|compact",
		Short:   "Verify or compact the store",
		Example: "  policyctl db check\n  policyctl db compact --state-dir /var/lib/policyd",
		Args:    unknownCommand,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usage(fmt.Errorf("say what to do: check or compact"))
		},
	}
	cmd.AddCommand(newDBCheck(a), newDBCompact(a))
	return cmd
}

func newDBCheck(a *app) *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify the store's pages, records and log",
		Long: "check has policyd verify its store while it is in use. With --state-dir it verifies the file itself,\n" +
			"with the pages of bbolt, which no policyd may hold then.",
		Example: "  policyctl db check\n  policyctl db check --state-dir /var/lib/policyd",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			ctx, c, cancel, err := a.streaming(cmd.Context()) // large stores take their time
			if err != nil {
				return err
			}
			defer cancel()
			var res *apiv1.CheckStoreResponse
			if stateDir != "" {
				res = &apiv1.CheckStoreResponse{}
				res.Problems, res.LogEntries, res.LogHead, err = store.CheckFile(ctx, storePath(stateDir))
				err = offline(err)
			} else {
				res, err = c.Admin.CheckStore(ctx, &apiv1.CheckStoreRequest{})
			}
			if err != nil {
				return a.ended(ctx, err)
			}
			if form != cli.Table {
				err = cli.WriteMessage(a.out, form, res)
			} else {
				a.storeProblems(res)
			}
			if err == nil && len(res.GetProblems()) > 0 {
				return &cli.Exit{Code: cli.ExitRefused}
			}
			return err
		},
	}
	stateFlag(cmd, &stateDir)
	return cmd
}

func (a *app) storeProblems(res *apiv1.CheckStoreResponse) {
	p := a.painter(a.out)
	for _, s := range res.GetProblems() {
		fmt.Fprintln(a.out, p.Paint("problem: ", cli.Red)+cli.Clean(s))
	}
	cli.Findings(a.out, p, res.GetFindings())
	if len(res.GetProblems()) == 0 {
		a.say("the store is well: %s, head %s", count(res.GetLogEntries(), "log entry", "log entries"), res.GetLogHead())
		return
	}
	a.note("the store is damaged; restore a backup (policyctl restore)")
}

func newDBCompact(a *app) *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use:     "compact",
		Short:   "Write the store anew without its free pages (while policyd is stopped)",
		Example: "  policyctl db compact",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			path := storePath(stateDir)
			before, after, err := store.Compact(path)
			if err != nil {
				return offline(err)
			}
			a.say("%s: %s before, %s after", path, size(uint64(before)), size(uint64(after)))
			return nil
		},
	}
	stateFlag(cmd, &stateDir)
	return cmd
}
