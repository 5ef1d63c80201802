package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newEvents(a *app) *cobra.Command {
	req := &apiv1.EventsRequest{}
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Show the log of changes and starts",
		Long:    "events shows every change of the store and every start and end of a sandbox, oldest first.\n-o wide adds attributes and hashes, -o json gives one message a line.",
		Example: "  policyctl events --tail 20\n  policyctl events -f -o json",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON)
			if err != nil {
				return err
			}
			ctx, c, cancel, err := a.streaming(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			stream, err := c.Admin.Events(ctx, req)
			if err != nil {
				return a.ended(ctx, err)
			}
			for {
				m, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return a.ended(ctx, err)
				}
				if form == cli.JSON {
					err = a.line(m.GetEvent())
				} else {
					err = a.event(m.GetEvent(), form == cli.Wide)
				}
				if err != nil {
					return err
				}
			}
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Follow, "follow", "f", false, "go on as entries come")
	f.Uint32Var(&req.Tail, "tail", 0, "only the last entries (0: all)")
	f.Uint64Var(&req.From, "from", 0, "number of the first entry")
	return cmd
}

// event prints an entry on a line; columns have room for what is usual, since
// entries come one by one.
func (a *app) event(e *apiv1.Event, wide bool) error {
	message := e.GetMessage()
	if message == "" && !wide { // say which tag, which number
		few := maps.Clone(e.GetAttributes())
		delete(few, "digest")
		message = labelText(few)
	}
	line := fmt.Sprintf("%6d  %s  %-8s  %-10s  %-24s  %s", e.GetSeq(), stamp(e.GetTime()), e.GetType(), e.GetActor(), e.GetSubject(), message)
	if wide {
		line += fmt.Sprintf("  [%s] request=%s hash=%x", labelText(e.GetAttributes()), e.GetRequestId(), e.GetHash())
	}
	_, err := fmt.Fprintln(a.out, cli.Clean(strings.TrimRight(line, " ")))
	return err
}
