package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// progressPause is the time between two lines of progress.
const progressPause = 200 * time.Millisecond

// eraseLine goes to the beginning of the line and clears it (ECMA-48 EL).
const eraseLine = "\r\x1b[K"

func newBackup(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the store while it is in use",
		Long: "backup writes a consistent copy of the store. FILE gets its name only when all of it is on the\n" +
			"disk; on any failure what was there before stays. It may be read by its owner only.",
		Example: "  policyctl backup /var/backups/policyd-$(date +%F).db",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, cancel, err := a.streaming(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			stream, err := c.Admin.Backup(ctx, &apiv1.BackupRequest{})
			if err != nil {
				return a.ended(ctx, err)
			}
			var done, total uint64
			err = cli.WriteAtomically(args[0], 0o600, func(w io.Writer) error {
				show := !a.quiet && cli.IsTerminal(a.err)
				var last time.Time
				defer func() {
					if !last.IsZero() {
						fmt.Fprint(a.err, eraseLine)
					}
				}()
				for {
					m, err := stream.Recv()
					if errors.Is(err, io.EOF) {
						if total != done {
							return fmt.Errorf("the copy ended early: %d of %d bytes", done, total)
						}
						return nil
					}
					if err != nil {
						return err
					}
					total = max(total, m.GetTotalBytes())
					if _, err := w.Write(m.GetData()); err != nil {
						return err
					}
					done += uint64(len(m.GetData()))
					if show && time.Since(last) >= progressPause {
						last = time.Now()
						fmt.Fprintf(a.err, "%s%s of %s", eraseLine, size(done), size(total))
					}
				}
			})
			if err != nil {
				if ctx.Err() != nil {
					return a.ended(ctx, err)
				}
				return err
			}
			a.say("%s: %s", args[0], size(done))
			return nil
		},
	}
}
