package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// minInterval keeps top from being a load itself.
const minInterval = 100 * time.Millisecond

func newTop(a *app) *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what sandboxes use now",
		Long: "top shows processes, memory, CPU and kept output of every sandbox that runs, the busiest first,\n" +
			"again and again until ^C. When the output is no terminal, it prints once.",
		Example: "  policyctl top\n  policyctl top -o json",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			if interval < minInterval {
				return cli.Usage(fmt.Errorf("--interval %v: want at least %v", interval, minInterval))
			}
			if form == cli.Table && cli.IsTerminal(a.out) {
				return a.live(cmd.Context(), interval)
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			res, err := c.Sandboxes.Usage(ctx, &apiv1.UsageRequest{})
			if err != nil {
				return err
			}
			if form != cli.Table {
				return cli.WriteMessage(a.out, form, res)
			}
			return usageTable(a.out, res.GetUsages(), nil)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two looks")
	return cmd
}

// The terminal's other screen, without a cursor, and back (xterm's ctlseqs).
const (
	screenOn   = "\x1b[?1049h\x1b[?25l"
	screenOff  = "\x1b[?25h\x1b[?1049l"
	screenHome = "\x1b[H\x1b[J"
)

// live redraws until it is interrupted.
func (a *app) live(ctx context.Context, interval time.Duration) error {
	ctx, c, cancel, err := a.streaming(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	before := map[string]uint64{}
	last := time.Time{}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	on := false
	defer func() {
		if on {
			_, _ = io.WriteString(a.out, screenOff)
		}
	}()
	for {
		res, err := c.Sandboxes.Usage(ctx, &apiv1.UsageRequest{})
		if err != nil {
			return a.ended(ctx, err)
		}
		now := time.Now()
		share := map[string]float64{}
		for _, u := range res.GetUsages() {
			id := u.GetSandbox().GetId()
			if old, seen := before[id]; seen && u.GetCpuUsec() >= old {
				share[id] = 100 * float64(u.GetCpuUsec()-old) / float64(now.Sub(last).Microseconds())
			}
			before[id] = u.GetCpuUsec()
		}
		last = now
		if !on {
			on = true
			_, _ = io.WriteString(a.out, screenOn)
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "policyd: %s, %s (^C ends)\n\n", count(len(res.GetUsages()), "sandbox", "sandboxes"), now.Format(time.TimeOnly))
		if err := usageTable(&b, res.GetUsages(), share); err != nil {
			return err
		}
		if err := a.draw(b.String()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return a.ended(ctx, ctx.Err())
		case <-tick.C:
		}
	}
}

// draw writes as many lines, and as much of each, as the terminal has.
func (a *app) draw(text string) error {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if f, ok := a.out.(*os.File); ok {
		if s := cli.Size(f); s != nil && s.GetRows() > 1 && s.GetColumns() > 1 {
			lines = lines[:min(len(lines), int(s.GetRows())-1)]
			for i := range lines {
				lines[i] = clip(lines[i], int(s.GetColumns()))
			}
		}
	}
	_, err := io.WriteString(a.out, screenHome+strings.Join(lines, "\n")+"\n")
	return err
}

// usageTable prints usages, the busiest first; share is CPU in percent of one
// processor by sandbox, nil where it is not known yet.
func usageTable(w io.Writer, usages []*apiv1.UsageResponse_Usage, share map[string]float64) error {
	slices.SortStableFunc(usages, func(x, y *apiv1.UsageResponse_Usage) int {
		sx, sy := share[x.GetSandbox().GetId()], share[y.GetSandbox().GetId()]
		switch {
		case sx > sy || sx == sy && x.GetCpuUsec() > y.GetCpuUsec():
			return -1
		case sx < sy || x.GetCpuUsec() < y.GetCpuUsec():
			return 1
		}
		return 0
	})
	rows := cli.NewRows(w, "ID", "POLICY", "PROCS", "MEMORY", "CPU%", "CPU TIME", "LOGS", "NOTES", "COMMAND")
	for _, u := range usages {
		s := u.GetSandbox()
		percent := ""
		if p, ok := share[s.GetId()]; ok {
			percent = fmt.Sprintf("%.1f", p)
		}
		cpu := (time.Duration(u.GetCpuUsec()) * time.Microsecond).Round(10 * time.Millisecond)
		rows.Add(s.GetId(), sandboxPolicy(s), fmt.Sprint(u.GetProcesses()), size(u.GetMemory()), percent, cpu.String(),
			size(u.GetLogBytes()), strings.Join(warnings(s, false), ", "), clip(strings.Join(s.GetArgv(), " "), 60))
	}
	return rows.Flush()
}
