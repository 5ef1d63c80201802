package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/kv"
)

// rolloutOptions are the flags of fleet rollout and fleet rollback.
type rolloutOptions struct {
	to, prev, stages, maxFailed, minLoaded, message, out, file string
	labels, signWith                                           []string
	soak, valid                                                time.Duration
	seq                                                        uint64
	sticky, replace, watch                                     bool
}

func newFleetRollout(f *fleetApp) *cobra.Command {
	o := &rolloutOptions{}
	cmd := &cobra.Command{
		Use:   "rollout CHANNEL --to DIGEST",
		Short: "Move a channel to a bundle, a share of its nodes after the other",
		Long: "rollout signs a pointer that gives the bundle to the first share of the channel's nodes. Which nodes\n" +
			"those are follows from their names and the rollout, each has one fixed place, so a larger share only\n" +
			"adds nodes. The controller (one of the policyds with controller: true, elected) or a person (fleet\n" +
			"advance) goes to the next share when enough nodes are Loaded, not too many Failed or Degraded, and that\n" +
			"held for the soak time. When too many fail, the rollout is halted.\n\n" +
			"The other nodes keep the bundle that was rolled out to the whole channel last. --labels restricts a\n" +
			"rollout to nodes with these labels, also at 100 %.\n\n" +
			"Where several rollout keys must sign, --out writes the signed pointer to a file, fleet sign adds\n" +
			"signatures, and rollout -f FILE puts it in force.",
		Example: "  policyctl fleet rollout stable --to sha256:0f3c --stages 1,5,25,100 --soak 10m --max-failed 1%\n" +
			"  policyctl fleet rollout stable --to sha256:0f3c --labels zone=eu,tier=edge --watch\n" +
			"  policyctl fleet rollout stable --to sha256:0f3c --out stable.pointer",
		Args:              exactly("CHANNEL"),
		ValidArgsFunction: f.completeChannels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cli.ParseFormat(f.output, cli.Table, cli.JSON, cli.YAML, cli.Name); err != nil {
				return err
			}
			if (o.to == "") == (o.file == "") {
				return cli.Usage(errors.New("say which bundle: --to DIGEST (or -f with a signed pointer)"))
			}
			if err := f.rollout(cmd.Context(), args[0], o); err != nil || !o.watch {
				return err
			}
			return f.watchChannel(cmd.Context(), cli.Table, args[0])
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.to, "to", "", "digest of a published bundle, or its first digits")
	fl.StringVar(&o.stages, "stages", "1,5,25,100", "shares of the nodes in percent, rising, the last is 100")
	fl.DurationVar(&o.soak, "soak", 10*time.Minute, "how long the gate must hold before the next share")
	fl.StringVar(&o.maxFailed, "max-failed", "1%", "share of the nodes reached that may be Failed or Degraded")
	fl.StringVar(&o.minLoaded, "min-loaded", "", "share of the nodes reached that must be Loaded (default what --max-failed leaves)")
	fl.StringSliceVar(&o.labels, "labels", nil, "only nodes with all these labels, NAME=VALUE,...")
	fl.BoolVar(&o.sticky, "sticky", false, "the first nodes are the same in every sticky rollout of the channel")
	fl.BoolVar(&o.replace, "replace", false, "put it in the place of a rollout that has not come to its end; a halt or pause of the channel ends with it")
	fl.BoolVarP(&o.watch, "watch", "w", false, "go on as fleet watch does")
	f.pointerFlags(cmd, o)
	return cmd
}

// pointerFlags are those that rollout and rollback share.
func (f *fleetApp) pointerFlags(cmd *cobra.Command, o *rolloutOptions) {
	fl := cmd.Flags()
	fl.StringVar(&o.prev, "prev", "", "bundle of the nodes that are not reached (default the last one of the whole channel)")
	fl.DurationVar(&o.valid, "valid", 30*24*time.Hour, "for how long nodes take the pointer for fresh; later they say Stale and go on")
	fl.Uint64Var(&o.seq, "seq", 0, "sequence number (default one above all that are known); for an etcd that was restored from a backup")
	fl.StringArrayVar(&o.signWith, "sign-with", nil, "private rollout key, a file or credential:NAME; may be repeated (default those of the settings)")
	fl.StringVarP(&o.message, "message", "m", "", "why, signed with the pointer")
	fl.StringVar(&o.out, "out", "", "write the signed pointer to a file, change nothing")
	fl.StringVarP(&o.file, "file", "f", "", "put the signed pointer of a file in force")
	_ = cmd.RegisterFlagCompletionFunc("to", f.completeBundles)
	_ = cmd.RegisterFlagCompletionFunc("prev", f.completeBundles)
	_ = cmd.MarkFlagFilename("sign-with")
}

// stagesOf reads 1,5,25,100 as basis points.
func stagesOf(text string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		bp, err := fleet.ParsePercent(strings.TrimSpace(part))
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--stages: %w", err))
		}
		if bp == 0 || len(out) > 0 && bp <= out[len(out)-1] {
			return nil, cli.Usage(fmt.Errorf("--stages %s: want shares that rise from above 0", text))
		}
		out = append(out, bp)
	}
	if out[len(out)-1] != fleet.Full {
		return nil, cli.Usage(fmt.Errorf("--stages %s: the last one must be 100", text))
	}
	return out, nil
}

// gate is the rollout that the flags describe.
func (o *rolloutOptions) gate() (fleet.Rollout, error) {
	var r fleet.Rollout
	var err error
	if r.Stages, err = stagesOf(o.stages); err != nil {
		return r, err
	}
	if r.MaxFailed, err = fleet.ParsePercent(o.maxFailed); err != nil {
		return r, cli.Usage(fmt.Errorf("--max-failed: %w", err))
	}
	r.MinLoaded = fleet.Full - r.MaxFailed
	if o.minLoaded != "" {
		if r.MinLoaded, err = fleet.ParsePercent(o.minLoaded); err != nil {
			return r, cli.Usage(fmt.Errorf("--min-loaded: %w", err))
		}
	}
	if r.Labels, err = pairs("--labels", o.labels); err != nil {
		return r, err
	}
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	r.Soak, r.Sticky, r.Percent = o.soak, o.sticky, r.Stages[0]
	return r, nil
}

func (f *fleetApp) rollout(ctx context.Context, channel string, o *rolloutOptions) error {
	r := fleet.Rollout{}
	if o.file == "" {
		var err error
		if r, err = o.gate(); err != nil {
			return err
		}
	}
	ctx, cancel, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if channel, err = f.channelArg([]string{channel}); err != nil {
		return err
	}
	now, rev, err := f.current(ctx, channel)
	if err != nil && !notFound(err) {
		return err
	}
	if o.file != "" {
		return f.putSigned(ctx, channel, o.file, now, rev, o.replace)
	}
	p := f.newPointer(channel, o)
	p.Rollout = r
	if p.Digest, err = f.findDigest(ctx, o.to); err != nil {
		return err
	}
	if err := f.deliverable(ctx, p.Digest); err != nil { // what nodes would refuse is not rolled out
		return err
	}
	if now != nil {
		whole := now.Rollout.Percent == fleet.Full && len(now.Rollout.Labels) == 0
		if now.Rollout.Percent < fleet.Full && !o.replace {
			return fmt.Errorf("%w: rollout %s of %s is at %s: let it end, roll it back, or give --replace", errs.ErrExists, now.Rollout.ID, bundleName(now.Digest), fleet.PercentText(now.Rollout.Percent))
		}
		if whole && now.Digest == p.Digest && len(r.Labels) == 0 {
			return fmt.Errorf("%w: channel %s runs %s already", errs.ErrExists, channel, bundleName(p.Digest))
		}
		p.Prev = now.Prev
		if whole {
			p.Prev = now.Digest
		}
	}
	if o.prev != "" {
		if p.Prev, err = f.findDigest(ctx, o.prev); err != nil {
			return err
		}
	}
	if p.Seq, err = f.nextSeq(ctx, channel, now, o.seq); err != nil {
		return err
	}
	p.Rollout.ID = fmt.Sprintf("r%d-%s", p.Seq, p.Issued.Format("20060102T150405"))
	return f.signAndPut(ctx, p, o, rev, o.replace)
}

// newPointer is a pointer with what the command line and the clock say.
func (f *fleetApp) newPointer(channel string, o *rolloutOptions) *fleet.Pointer {
	issued := time.Now().UTC().Truncate(time.Second)
	return &fleet.Pointer{Fleet: f.Name, Channel: channel, Issued: issued, NotAfter: issued.Add(o.valid), By: whoAmI(), Message: o.message}
}

// mostToldSeq bounds what is believed of nodes: one that lies must not use up the numbers.
const mostToldSeq = 1 << 62

// nextSeq is above the pointer's number and above all that nodes have had: an
// etcd restored from a backup knows an older pointer than they do.
func (f *fleetApp) nextSeq(ctx context.Context, channel string, now *fleet.Pointer, given uint64) (uint64, error) {
	highest := uint64(0)
	if now != nil {
		highest = now.Seq
	}
	nodes, err := f.stored.Nodes(ctx, "")
	if err != nil {
		return 0, err
	}
	for i := range nodes {
		if st := nodes[i].Status; st != nil && st.Channel == channel && st.DesiredSeq < mostToldSeq {
			highest = max(highest, st.DesiredSeq)
		}
	}
	if given == 0 {
		return highest + 1, nil
	}
	if given <= highest {
		return 0, fmt.Errorf("%w: --seq %d: nodes have had %d", errs.ErrOlderSequence, given, highest)
	}
	return given, nil
}

// signAndPut signs a pointer and puts it in force, or into a file.
func (f *fleetApp) signAndPut(ctx context.Context, p *fleet.Pointer, o *rolloutOptions, rev int64, pastHold bool) error {
	places := o.signWith
	if len(places) == 0 {
		places = f.RolloutKeys.SignWith
	}
	signers, err := signersOf(places, "rollout", f.path())
	if err != nil {
		return err
	}
	signed, err := fleet.SignPointer(p, signers...)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := writeFile(o.out, signed, 0o644); err != nil {
			return err
		}
		f.say("pointer %d of %s written to %s, not in force; signed by %s", p.Seq, p.Channel, o.out, listText(fleet.SignedBy(signed)))
		return nil
	}
	return f.put(ctx, p, signed, rev, pastHold)
}

// putSigned puts a pointer of a file in force, which must follow the present one.
func (f *fleetApp) putSigned(ctx context.Context, channel, file string, now *fleet.Pointer, rev int64, pastHold bool) error {
	signed, err := readSmall(file)
	if err != nil {
		return err
	}
	t, err := f.trust()
	if err != nil {
		return err
	}
	p, err := fleet.OpenPointer(signed, t, f.Name, channel)
	if err != nil {
		return err
	}
	if now != nil && p.Seq <= now.Seq {
		return fmt.Errorf("%w: sequence %d, the channel has %d", errs.ErrOlderSequence, p.Seq, now.Seq)
	}
	if err := p.Expired(time.Now()); err != nil {
		return err
	}
	if err := f.deliverable(ctx, p.Digest); err != nil {
		return err
	}
	return f.put(ctx, p, signed, rev, pastHold)
}

// put writes a signed pointer.
func (f *fleetApp) put(ctx context.Context, p *fleet.Pointer, signed []byte, rev int64, pastHold bool) error {
	t, err := f.trust()
	if err != nil {
		return err
	}
	if _, err := fleet.OpenPointer(signed, t, p.Fleet, p.Channel); err != nil {
		return fmt.Errorf("%w; --out FILE and fleet sign let others sign first", err)
	}
	if err := f.stored.PutPointer(ctx, kv.Move{Channel: p.Channel, Signed: signed, After: rev, PastHold: pastHold}); err != nil {
		if errors.Is(err, errs.ErrHalted) {
			if c, failed := f.stored.Channel(ctx, p.Channel); failed == nil && c.FleetHold != nil {
				return fmt.Errorf("%w; policyctl fleet resume --all lets it go on", err)
			}
			return fmt.Errorf("%w; policyctl fleet resume lets it go on, rollout --replace and rollback take its place", err)
		}
		return err
	}
	if p.Rollout.Percent < fleet.Full {
		defer func() { f.tellAlone(f.alone(ctx, p.Channel)) }()
	}
	switch form := cli.Format(f.output); form {
	case cli.JSON, cli.YAML:
		return cli.WriteValue(f.out, form, pointerOf(p))
	case cli.Name:
		fmt.Fprintln(f.out, p.Rollout.ID)
		return nil
	}
	f.say("channel %s: %s for %s of the nodes%s (sequence %d)", p.Channel, bundleName(p.Digest), fleet.PercentText(p.Rollout.Percent), withLabels(p), p.Seq)
	return nil
}

func withLabels(p *fleet.Pointer) string {
	if len(p.Rollout.Labels) == 0 {
		return ""
	}
	return " with " + labelText(p.Rollout.Labels)
}
