package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/controller"
)

// channelInfo is a channel as JSON.
type channelInfo struct {
	Fleet   string               `json:"fleet"`
	Channel string               `json:"channel"`
	Pointer pointerInfo          `json:"pointer"`
	Holds   []fleet.Hold         `json:"holds"`
	Action  controller.Action    `json:"action"` // what the next step would be
	Why     string               `json:"why"`
	Counts  controller.Counts    `json:"counts"`
	Holding []controller.Holding `json:"holding"`
	Resumed []fleet.Resumed      `json:"resumed"` // who took holds away since the pointer was signed

	alone string // what a person should know when nothing leads the rollout on; "" for nothing
}

// pointerInfo is a pointer as JSON.
type pointerInfo struct {
	Seq      uint64            `json:"seq"`
	Digest   string            `json:"digest"`
	Prev     string            `json:"prev"`
	Rollout  string            `json:"rollout"`
	Percent  float64           `json:"percent"`
	Stages   []float64         `json:"stages"`
	Labels   map[string]string `json:"labels"`
	Issued   time.Time         `json:"issued"`
	NotAfter time.Time         `json:"notAfter"`
	By       string            `json:"by"`
	Message  string            `json:"message"`
}

func pointerOf(p *fleet.Pointer) pointerInfo {
	info := pointerInfo{p.Seq, p.Digest, p.Prev, p.Rollout.ID, float64(p.Rollout.Percent) / 100, []float64{}, p.Rollout.Labels, p.Issued, p.NotAfter, p.By, p.Message}
	for _, s := range p.Rollout.Stages {
		info.Stages = append(info.Stages, float64(s)/100)
	}
	if info.Labels == nil {
		info.Labels = map[string]string{}
	}
	return info
}

func newFleetWatch(f *fleetApp) *cobra.Command {
	return &cobra.Command{
		Use:   "watch CHANNEL",
		Short: "Follow a rollout until it has come to its end",
		Long: "watch shows how far a rollout is, which nodes hold it back and why: redrawn with a bar on a terminal, a\n" +
			"line for every change elsewhere, an object a line with -o json. It ends with 0 when all shares are\n" +
			"behind, and with 1 when the rollout is halted.",
		Example:           "  policyctl fleet watch stable\n  policyctl fleet watch stable -o json",
		Args:              exactly("CHANNEL"),
		ValidArgsFunction: f.completeChannels,
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(f.output, cli.Table, cli.JSON)
			if err != nil {
				return err
			}
			return f.watchChannel(cmd.Context(), form, args[0])
		},
	}
}

// look reads a channel and says what a controller would.
func (f *fleetApp) look(ctx context.Context, channel string) (channelInfo, error) {
	t, err := f.trust()
	if err != nil {
		return channelInfo{}, err
	}
	c, err := f.stored.Channel(ctx, channel)
	if err != nil {
		return channelInfo{}, err
	}
	if c.Signed == nil {
		_, _, err := f.current(ctx, channel) // which says so
		return channelInfo{}, err
	}
	p, err := fleet.OpenPointer(c.Signed, t, f.Name, channel)
	if err != nil {
		return channelInfo{}, fmt.Errorf("channel %s: %w", channel, err)
	}
	nodes, err := f.stored.Nodes(ctx, channel)
	if err != nil {
		return channelInfo{}, err
	}
	record, _ := controller.ParseRecord(c.Event) // unsigned: for people only
	d, _ := controller.Step(time.Now(), controller.View{Pointer: p, Holds: c.Holds(), Nodes: nodes}, record.Progress)
	info := channelInfo{f.Name, channel, pointerOf(p), c.Holds(), d.Action, d.Why, d.Counts, d.Holding, []fleet.Resumed{}, ""}
	resumed, _ := f.stored.Resumed(ctx, channel) // for people only, who may not be allowed to read it
	for _, r := range resumed {
		if !r.At.Before(p.Issued) {
			info.Resumed = append(info.Resumed, r)
		}
	}
	if d.Action != controller.Done && d.Action != controller.Refresh {
		info.alone = f.alone(ctx, channel)
	}
	if info.Holds == nil {
		info.Holds = []fleet.Hold{}
	}
	if info.Holding == nil {
		info.Holding = []controller.Holding{}
	}
	return info, nil
}

// mostHolding is how many nodes that hold a rollout back are named to people.
const mostHolding = 10

// holding names nodes that hold a rollout back.
func (f *fleetApp) holding(w io.Writer, list []controller.Holding) {
	for i, h := range list {
		if i == mostHolding {
			fmt.Fprintf(w, "  and %d more (policyctl fleet status --bad)\n", len(list)-i)
			return
		}
		fmt.Fprintf(w, "  %s\n", cli.Clean(fmt.Sprintf("%s %s: %s", h.Node, h.State, h.Why)))
	}
}

// bar is a bar of a share of width characters, and where the stages to come end.
func bar(share float64, stages []float64, width int) string {
	cells := []rune(strings.Repeat("-", width))
	for i := range int(share / 100 * float64(width)) {
		cells[i] = '#'
	}
	for _, s := range stages {
		if i := int(s / 100 * float64(width)); s > share && s < 100 && i < width {
			cells[i] = '|'
		}
	}
	return "[" + string(cells) + "]"
}

// line is a rollout in one line.
func (i channelInfo) line() string {
	c := i.Counts
	return fmt.Sprintf("%s %s: %v%% of %d nodes, %d reached, %d loaded, %d failed, %d waiting, %d lost, %d away; %s: %s%s",
		i.Channel, bundleName(i.Pointer.Digest), i.Pointer.Percent, c.Nodes, c.Reached, c.Loaded, c.Failed, c.Waiting, c.Lost, c.Away, i.Action, i.Why, i.resumed())
}

// alone says that no controller leads a rollout on, and what does; "" where one does, or where that is not to be known.
func (f *fleetApp) alone(ctx context.Context, channel string) string {
	if name, err := f.stored.Leader(ctx); err != nil || name != "" {
		return ""
	}
	return fmt.Sprintf("no controller is elected, so nothing goes to the next share by itself: `policyctl fleet advance %s` does, or a policyd with fleet.controller: true", channel)
}

// tellAlone says so, once.
func (f *fleetApp) tellAlone(text string) {
	if text != "" && !f.alerted {
		f.alerted = true
		f.note("%s", text)
	}
}

// resumed is who let it go on, in words.
func (i channelInfo) resumed() (text string) {
	for _, r := range i.Resumed {
		text += "; let go on by " + r.By
		if r.Why != "" {
			text += ": " + r.Why
		}
	}
	return text
}

func (f *fleetApp) watchChannel(ctx context.Context, form cli.Format, channel string) error {
	ctx, cancel, err := f.openStreaming(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	live := form == cli.Table && cli.IsTerminal(f.out)
	last, heldSince := "", time.Time{}
	for {
		info, err := f.look(ctx, channel)
		if err != nil {
			return f.ended(ctx, err)
		}
		if err := f.show(form, live, info, &last); err != nil {
			return err
		}
		if !live && !halted(info.Holds) {
			f.tellAlone(info.alone)
		}
		switch {
		case info.Action == controller.Held && halted(info.Holds):
			return fmt.Errorf("channel %s: %s", channel, info.Why)
		case info.Action == controller.Done, info.Action == controller.Refresh:
			return nil
		case info.Action == controller.Halt: // the controller has not seen it yet, or there is none
			if heldSince.IsZero() {
				heldSince = time.Now()
			}
			if time.Since(heldSince) > 30*time.Second {
				return fmt.Errorf("channel %s: the gate is breached and no controller halts it: %s", channel, info.Why)
			}
		default:
			heldSince = time.Time{}
		}
		select {
		case <-ctx.Done():
			return f.ended(ctx, ctx.Err())
		case <-tick.C:
		}
	}
}

func halted(holds []fleet.Hold) bool {
	for _, h := range holds {
		if h.Kind == fleet.HaltedAll {
			return true
		}
	}
	return false
}

// show prints a look: the whole on a terminal, what changed elsewhere.
func (f *fleetApp) show(form cli.Format, live bool, info channelInfo, last *string) error {
	now := info.line()
	for _, h := range info.Holding {
		now += h.Node + string(h.State) + h.Why
	}
	if form == cli.JSON {
		if now != *last {
			*last = now
			return writeLine(f.out, info)
		}
		return nil
	}
	if live {
		var b strings.Builder
		b.WriteString(screenHome)
		fmt.Fprintf(&b, "%s  %s  %v%%\n\n%s\n\n", info.Channel, bundleName(info.Pointer.Digest), info.Pointer.Percent, bar(info.Pointer.Percent, info.Pointer.Stages, 60))
		fmt.Fprintln(&b, cli.Clean(info.line()))
		f.holding(&b, info.Holding)
		if info.alone != "" && !halted(info.Holds) {
			fmt.Fprintln(&b, cli.Clean(info.alone))
		}
		_, err := io.WriteString(f.out, b.String())
		return err
	}
	// The soak counts up every second: that is no change.
	quiet := strings.Contains(info.Why, "the gate holds") && strings.HasPrefix(*last, string(info.Action)+fmt.Sprint(info.Pointer.Seq, info.Counts))
	if now == *last || quiet {
		return nil
	}
	*last = now
	if strings.Contains(info.Why, "the gate holds") {
		*last = string(info.Action) + fmt.Sprint(info.Pointer.Seq, info.Counts)
	}
	if _, err := fmt.Fprintln(f.out, cli.Clean(info.line())); err != nil {
		return err
	}
	f.holding(f.out, info.Holding)
	return nil
}
