package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// newFleetHold is pause or halt.
func newFleetHold(f *fleetApp, kind fleet.HoldKind) *cobra.Command {
	var all bool
	var why string
	cmd := &cobra.Command{
		Use:   "pause CHANNEL|--all",
		Short: "Keep a rollout from its next share",
		Long: "pause keeps the controller, and everybody else, from moving the channel. Nodes that the rollout has\n" +
			"reached go on to load it. No key is needed: what can be written here can only keep things as they are.",
		Example:           "  policyctl fleet pause stable -m 'looking at the logs first'",
		ValidArgsFunction: f.completeChannels,
	}
	done := "paused"
	if kind == fleet.HaltedAll {
		done = "halted"
		cmd.Use = "halt CHANNEL|--all"
		cmd.Short = "Stop a rollout: no node activates anything new"
		cmd.Long = "halt keeps the channel as it is: no next share, and nodes that have not activated the bundle yet keep\n" +
			"what they have and say Halted. Only a person lets it go on (fleet resume, fleet rollback); the\n" +
			"controller never does. No key is needed: what can be written here can only keep things as they are."
		cmd.Example = "  policyctl fleet halt stable -m 'web does not start on zone eu'\n  policyctl fleet halt --all"
	}
	cmd.Args = atMost("CHANNEL")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		channel, err := f.held(args, all)
		if err != nil {
			return err
		}
		ctx, cancel, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer cancel()
		if kind == fleet.Paused && channel != "" {
			c, err := f.stored.Channel(ctx, channel)
			if err != nil {
				return err
			}
			if c.Hold != nil && c.Hold.Kind == fleet.HaltedAll {
				return fmt.Errorf("channel %s: %w by %s, which keeps more than a pause does", channel, errs.ErrHalted, c.Hold.By)
			}
		}
		h := &fleet.Hold{Kind: kind, By: whoAmI(), Why: why, At: time.Now().UTC().Truncate(time.Second)}
		if err := f.stored.PutHold(ctx, channel, h); err != nil {
			return err
		}
		f.say("%s %s", heldName(channel), done)
		return nil
	}
	cmd.Flags().BoolVar(&all, "all", false, "the whole fleet")
	cmd.Flags().StringVarP(&why, "message", "m", "", "why, for those who look at it")
	return cmd
}

// heldInfo is a hold as JSON; Channel is "" for one of the whole fleet.
type heldInfo struct {
	Channel string `json:"channel"`
	fleet.Hold
}

// String is the hold in words.
func (h heldInfo) String() string {
	kind := "paused"
	if h.Kind == fleet.HaltedAll {
		kind = "halted"
	}
	text := fmt.Sprintf("%s %s by %s", heldName(h.Channel), kind, h.By)
	if h.Why != "" {
		text += ": " + h.Why
	}
	return text
}

// holds are those of the whole fleet and of its channels, or of one of them.
func (f *fleetApp) holds(ctx context.Context, channel string) ([]heldInfo, error) {
	names := []string{channel}
	if channel == "" {
		var err error
		if names, err = f.stored.Channels(ctx); err != nil {
			return nil, err
		}
	}
	var all []heldInfo
	for i, name := range names {
		c, err := f.stored.Channel(ctx, name)
		if err != nil {
			return nil, err
		}
		if c.FleetHold != nil && i == 0 {
			all = append(all, heldInfo{"", *c.FleetHold})
		}
		if c.Hold != nil {
			all = append(all, heldInfo{name, *c.Hold})
		}
	}
	return all, nil
}

// held is the channel to hold, "" for the whole fleet.
func (f *fleetApp) held(args []string, all bool) (string, error) {
	if _, err := cli.ParseFormat(f.output, cli.Table); err != nil {
		return "", err
	}
	if all == (len(args) == 1) {
		return "", cli.Usage(errors.New("name a channel, or give --all"))
	}
	if all {
		return "", nil
	}
	return f.channelArg(args)
}

func heldName(channel string) string {
	if channel == "" {
		return "the whole fleet is"
	}
	return "channel " + channel + " is"
}

func newFleetResume(f *fleetApp) *cobra.Command {
	var all bool
	var why string
	cmd := &cobra.Command{
		Use:   "resume CHANNEL|--all",
		Short: "Let a paused or halted rollout go on",
		Long: "resume takes the pause or halt away, a person's or that of a breached gate. When too many nodes are\n" +
			"still failing, the gate halts it again at the next look. fleet watch tells who let it go on, and why.",
		Example:           "  policyctl fleet resume stable -m 'the logs are fine'\n  policyctl fleet resume --all",
		Args:              atMost("CHANNEL"),
		ValidArgsFunction: f.completeChannels,
		RunE: func(cmd *cobra.Command, args []string) error {
			channel, err := f.held(args, all)
			if err != nil {
				return err
			}
			ctx, cancel, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			if err := f.stored.Resume(ctx, channel, &fleet.Resumed{By: whoAmI(), Why: why, At: time.Now().UTC().Truncate(time.Second)}); err != nil {
				return err
			}
			f.say("%s no longer held", heldName(channel))
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "the whole fleet")
	cmd.Flags().StringVarP(&why, "message", "m", "", "why, for those who look at it")
	return cmd
}

func newFleetAdvance(f *fleetApp) *cobra.Command {
	var force bool
	var signWith []string
	cmd := &cobra.Command{
		Use:   "advance CHANNEL",
		Short: "Go to a rollout's next share by hand",
		Long: "advance does once what the controller does: when enough of the nodes reached are Loaded, not too many\n" +
			"Failed, and the soak time is over since the share began, it signs the pointer of the next share.\n" +
			"Otherwise it says what holds the rollout back, and ends with 1. --force goes on all the same, but never\n" +
			"past a pause or halt.",
		Example:           "  policyctl fleet advance stable\n  policyctl fleet advance stable --force",
		Args:              exactly("CHANNEL"),
		ValidArgsFunction: f.completeChannels,
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(f.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
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
			if len(signWith) > 0 {
				f.RolloutKeys.SignWith = signWith
			}
			m, err := f.member()
			if err != nil {
				return err
			}
			d, p, err := m.Advance(ctx, channel, force)
			if err != nil {
				f.holding(f.err, d.Holding)
				return err
			}
			if form != cli.Table {
				return cli.WriteValue(f.out, form, d)
			}
			if p == nil {
				f.say("channel %s: %s", channel, d.Why)
				return nil
			}
			f.say("channel %s: %s for %s of the nodes (sequence %d): %s", channel, bundleName(p.Digest), fleet.PercentText(p.Rollout.Percent), p.Seq, d.Why)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "do not ask the gate")
	cmd.Flags().StringArrayVar(&signWith, "sign-with", nil, "private rollout key, a file or credential:NAME; may be repeated (default those of the settings)")
	_ = cmd.MarkFlagFilename("sign-with")
	return cmd
}
