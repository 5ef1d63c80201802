package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

func newFleetRollback(f *fleetApp) *cobra.Command {
	o := &rolloutOptions{}
	cmd := &cobra.Command{
		Use:   "rollback CHANNEL",
		Short: "Give all nodes of a channel an earlier bundle, at once",
		Long: "rollback signs a new pointer to an earlier bundle, for all nodes and without stages: by default to the\n" +
			"one that the rollout began from. A halt or pause of the channel ends with it; one of the whole fleet\n" +
			"(halt --all) does not.",
		Example:           "  policyctl fleet rollback stable -m 'web does not start'\n  policyctl fleet rollback stable --to sha256:77aa",
		Args:              exactly("CHANNEL"),
		ValidArgsFunction: f.completeChannels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cli.ParseFormat(f.output, cli.Table, cli.JSON, cli.YAML, cli.Name); err != nil {
				return err
			}
			ctx, cancel, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			channel, err := f.channelArg(args)
			if err != nil {
				return err
			}
			now, rev, err := f.current(ctx, channel)
			if err != nil {
				return err
			}
			if o.file != "" {
				return f.putSigned(ctx, channel, o.file, now, rev, true)
			}
			p := f.newPointer(channel, o)
			p.Digest = now.Prev
			if o.to != "" {
				if p.Digest, err = f.findDigest(ctx, o.to); err != nil {
					return err
				}
			}
			if p.Digest == "" {
				return fmt.Errorf("channel %s: %w: no bundle before this one; --to names one", channel, errs.ErrNotFound)
			}
			if err := f.deliverable(ctx, p.Digest); err != nil {
				return err
			}
			p.Prev = p.Digest
			if p.Seq, err = f.nextSeq(ctx, channel, now, o.seq); err != nil {
				return err
			}
			p.Rollout = fleet.Rollout{
				ID:      fmt.Sprintf("back%d-%s", p.Seq, p.Issued.Format("20060102T150405")),
				Percent: fleet.Full, Stages: []int{fleet.Full},
				MaxFailed: fleet.Full, MinLoaded: fleet.Full - 100, // it is never halted, and over when nearly all have it
			}
			return f.signAndPut(ctx, p, o, rev, true)
		},
	}
	cmd.Flags().StringVar(&o.to, "to", "", "digest of a published bundle, or its first digits (default the one before)")
	f.pointerFlags(cmd, o)
	_ = cmd.Flags().MarkHidden("prev")
	return cmd
}
