package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/fleet"
)

// nodeInfo is a node as JSON: what admins say, and what it says itself.
type nodeInfo struct {
	Node    string            `json:"node"`
	Channel string            `json:"channel"`
	Labels  map[string]string `json:"labels"`
	State   fleet.State       `json:"state"` // as others see it: Stale when it is not heard of
	Alive   bool              `json:"alive"`
	Status  *fleet.Status     `json:"status"`
}

// fleetInfo is the whole as JSON.
type fleetInfo struct {
	Fleet  string              `json:"fleet"`
	State  fleet.State         `json:"state"` // the worst of all nodes
	Counts map[fleet.State]int `json:"counts"`
	Nodes  []nodeInfo          `json:"nodes"`
	Holds  []heldInfo          `json:"holds,omitempty"`
}

func newFleetNodes(f *fleetApp) *cobra.Command {
	var channel string
	var labels []string
	cmd := &cobra.Command{
		Use:     "nodes",
		Short:   "List enrolled nodes, their channels and labels",
		Example: "  policyctl fleet nodes\n  policyctl fleet nodes -l zone=eu -o wide\n  policyctl fleet nodes --channel stable -o name",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(f.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			want, err := pairs("-l", labels)
			if err != nil {
				return err
			}
			ctx, cancel, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			nodes, err := f.stored.Nodes(ctx, channel)
			if err != nil {
				return err
			}
			nodes = slices.DeleteFunc(nodes, func(n fleet.Node) bool {
				for k, v := range want {
					if got, ok := n.Spec.Labels[k]; !ok || got != v {
						return true
					}
				}
				return false
			})
			if form != cli.Table && form != cli.Wide {
				return f.nodesAs(form, nodes)
			}
			if len(nodes) == 0 {
				f.note("no nodes")
				return nil
			}
			titles := []string{"NODE", "CHANNEL", "LABELS", "STATE", "SEEN", "VERSION"}
			if form == cli.Wide {
				titles = append(titles, "KERNEL", "LANDLOCK", "SMACK", "ENROLLED", "BY")
			}
			rows := cli.NewRows(f.out, titles...)
			for i := range nodes {
				n := &nodes[i]
				st := statusOrNone(n)
				cells := []string{n.Name, n.Spec.Channel, labelText(n.Spec.Labels), string(n.State()), seen(n), st.Version}
				if form == cli.Wide {
					cells = append(cells, st.Kernel, abiText(n), smackText(n), ageOf(n.Spec.Enrolled), n.Spec.By)
				}
				rows.Add(cells...)
			}
			return rows.Flush()
		},
	}
	cmd.Flags().StringVar(&channel, "channel", "", "only nodes of this channel")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "only those with this label, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("channel", f.completeChannelFlag)
	return cmd
}

func statusOrNone(n *fleet.Node) fleet.Status {
	if n.Status == nil {
		return fleet.Status{}
	}
	return *n.Status
}

func abiText(n *fleet.Node) string {
	if n.Status == nil {
		return ""
	}
	return fmt.Sprint(n.Status.Landlock)
}

func smackText(n *fleet.Node) string {
	switch {
	case n.Status == nil:
		return ""
	case n.Status.Smack:
		return "yes"
	}
	return "no"
}

// seen is when a node was heard of last; one that is alive is heard of now.
func seen(n *fleet.Node) string {
	switch {
	case n.Status == nil:
		return "never"
	case n.Alive:
		return "now"
	}
	return ageOf(n.Status.Reported) + " ago"
}

func (f *fleetApp) info(nodes []fleet.Node) fleetInfo {
	info := fleetInfo{Fleet: f.Name, State: fleet.Summary(nodes), Counts: map[fleet.State]int{}, Nodes: []nodeInfo{}}
	for i := range nodes {
		n := &nodes[i]
		info.Counts[n.State()]++
		labels := n.Spec.Labels
		if labels == nil {
			labels = map[string]string{}
		}
		info.Nodes = append(info.Nodes, nodeInfo{n.Name, n.Spec.Channel, labels, n.State(), n.Alive, n.Status})
	}
	return info
}

func (f *fleetApp) nodesAs(form cli.Format, nodes []fleet.Node) error {
	if form != cli.Name {
		return cli.WriteValue(f.out, form, f.info(nodes))
	}
	for i := range nodes {
		fmt.Fprintln(f.out, nodes[i].Name)
	}
	return nil
}

func newFleetStatus(f *fleetApp) *cobra.Command {
	var channel string
	var watch, bad bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what every node runs, and in one line how the fleet is",
		Long: "status shows for every node its state, the bundle in force and the one it should have, and why it is not\n" +
			"Loaded. The last line is the fleet's: its state is that of its worst node, and\n" +
			"what a person or a gate has paused or halted.\n\n" +
			"States: Failed (a bundle did not become active, the one before is), Degraded (active, and not all of it\n" +
			"is enforced), Stale (the pointer has expired, or the node is silent), Halted, Pending, Compiling, Loaded,\n" +
			"Skipped (the rollout has not reached it). None of them takes away policies that are in force.",
		Example: "  policyctl fleet status\n  policyctl fleet status --watch\n  policyctl fleet status --bad -o json",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(f.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			look := func(nodes []fleet.Node) []fleet.Node {
				if !bad {
					return nodes
				}
				return slices.DeleteFunc(slices.Clone(nodes), func(n fleet.Node) bool { s := n.State(); return s == fleet.Loaded || s == fleet.Skipped })
			}
			if !watch {
				ctx, cancel, err := f.open(cmd.Context())
				if err != nil {
					return err
				}
				defer cancel()
				nodes, err := f.stored.Nodes(ctx, channel)
				if err != nil {
					return err
				}
				holds, err := f.holds(ctx, channel)
				if err != nil {
					return err
				}
				return f.statusTable(f.out, form, nodes, look(nodes), holds)
			}
			return f.watchStatus(cmd, form, channel, look)
		},
	}
	cmd.Flags().StringVar(&channel, "channel", "", "only nodes of this channel")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on: redraw on a terminal, print what changes elsewhere")
	cmd.Flags().BoolVar(&bad, "bad", false, "only nodes that are neither Loaded nor Skipped")
	_ = cmd.RegisterFlagCompletionFunc("channel", f.completeChannelFlag)
	return cmd
}

// watchStatus looks again and again.
func (f *fleetApp) watchStatus(cmd *cobra.Command, form cli.Format, channel string, look func([]fleet.Node) []fleet.Node) error {
	ctx, cancel, err := f.openStreaming(cmd.Context())
	if err != nil {
		return err
	}
	defer cancel()
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	live := form == cli.Table && cli.IsTerminal(f.out)
	before := map[string]string{}
	last := ""
	for {
		nodes, err := f.stored.Nodes(ctx, channel)
		if err != nil {
			return f.ended(ctx, err)
		}
		holds, err := f.holds(ctx, channel)
		if err != nil {
			return f.ended(ctx, err)
		}
		shown := look(nodes)
		if live {
			var b strings.Builder
			if err := f.statusTable(&b, form, nodes, shown, holds); err != nil {
				return err
			}
			fmt.Fprint(f.out, screenHome+b.String())
		} else {
			changed := slices.DeleteFunc(slices.Clone(shown), func(n fleet.Node) bool {
				st := statusOrNone(&n)
				now := fmt.Sprint(n.State(), st.LoadedDigest, st.DesiredSeq, st.Code, st.Message, n.Spec)
				same := before[n.Name] == now
				before[n.Name] = now
				return same
			})
			if line := f.summary(nodes, holds); len(changed) > 0 || line != last {
				last = line
				if err := f.statusTable(f.out, form, nodes, changed, holds); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return f.ended(ctx, ctx.Err())
		case <-tick.C:
		}
	}
}

// summary is the fleet in one line, holds included: with all nodes Loaded nothing else shows one.
func (f *fleetApp) summary(nodes []fleet.Node, holds []heldInfo) string {
	info := f.info(nodes)
	var parts []string
	for _, s := range fleet.States {
		if n := info.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	text := f.Name + ": no nodes"
	if len(nodes) > 0 {
		text = fmt.Sprintf("%s: %s (%s: %s)", f.Name, info.State, count(len(nodes), "node", "nodes"), strings.Join(parts, ", "))
	}
	for _, h := range holds {
		text += "; " + h.String()
	}
	return text
}

// statusTable prints the nodes shown and the summary of all.
func (f *fleetApp) statusTable(w io.Writer, form cli.Format, all, shown []fleet.Node, holds []heldInfo) error {
	switch form {
	case cli.JSON, cli.YAML:
		info := f.info(all)
		info.Nodes, info.Holds = f.info(shown).Nodes, holds
		return cli.WriteValue(w, form, info)
	case cli.Name:
		return f.nodesAs(form, shown)
	}
	if len(shown) > 0 {
		titles := []string{"NODE", "STATE", "SINCE", "BUNDLE", "WANTED", "SEQ", "RUNNING", "WHY"}
		if form == cli.Wide {
			titles = slices.Insert(titles, 1, "CHANNEL", "LABELS", "SEEN")
		}
		rows := cli.NewRows(w, titles...)
		for i := range shown {
			n := &shown[i]
			st := statusOrNone(n)
			wanted := bundleName(st.DesiredDigest)
			if st.DesiredDigest == st.LoadedDigest && wanted != "-" {
				wanted = "the same"
			}
			cells := []string{n.Name, string(n.State()), ageOf(st.Since), bundleName(st.LoadedDigest), wanted, fmt.Sprint(st.DesiredSeq), runningText(&st), whyText(n)}
			if form == cli.Wide {
				cells = slices.Insert(cells, 1, n.Spec.Channel, labelText(n.Spec.Labels), seen(n))
			}
			rows.Add(cells...)
		}
		if err := rows.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, cli.Clean(f.summary(all, holds)))
	return err
}

// runningText counts running programs, and those of another bundle than the one in force.
func runningText(st *fleet.Status) string {
	total, other := 0, 0
	for digest, n := range st.Running {
		total += n
		if digest != st.LoadedDigest {
			other += n
		}
	}
	if other > 0 {
		return fmt.Sprintf("%d, %d older", total, other)
	}
	return fmt.Sprint(total)
}

func whyText(n *fleet.Node) string {
	st := statusOrNone(n)
	var parts []string
	switch {
	case n.Status == nil:
		return "was never heard of"
	case !n.Alive:
		parts = append(parts, "last heard of "+ageOf(st.Reported)+" ago")
	}
	if st.Code != "" {
		parts = append(parts, st.Code)
	}
	if st.Message != "" {
		parts = append(parts, st.Message)
	}
	if len(st.Overrides) > 0 {
		parts = append(parts, "overridden on the node: "+strings.Join(st.Overrides, ", "))
	}
	return strings.Join(parts, ": ")
}
