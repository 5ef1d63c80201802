package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

func newPs(a *app) *cobra.Command {
	var all bool
	var policyName string
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List sandboxes, and what is not enforced for them",
		Long: "ps lists the sandboxes that run; with -a those that ended too. NOTES says when this kernel does\n" +
			"not enforce all of the policy (-o wide: what), and when the policy has a newer version. -o wide\n" +
			"also says where symbolic links led rules of the policy; -o json which rules lie on files and\n" +
			"do without rights that only folders have.",
		Example: "  policyctl ps\n  policyctl ps -a --policy web -o wide",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			list, err := listSandboxes(ctx, c, all, policyName)
			if err != nil {
				return err
			}
			switch form {
			case cli.JSON, cli.YAML:
				return cli.WriteMessage(a.out, form, &apiv1.ListSandboxesResponse{Sandboxes: list})
			case cli.Name:
				for _, s := range list {
					fmt.Fprintln(a.out, cli.Clean(s.GetId()))
				}
				return nil
			}
			return a.sandboxTable(list, form == cli.Wide)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "ended ones too")
	cmd.Flags().StringVar(&policyName, "policy", "", "only those under this policy")
	return cmd
}

func listSandboxes(ctx context.Context, c *cli.Client, all bool, policyName string) ([]*apiv1.Sandbox, error) {
	var list []*apiv1.Sandbox
	for token := ""; ; {
		res, err := c.Sandboxes.ListSandboxes(ctx, &apiv1.ListSandboxesRequest{All: all, Policy: policyName, PageToken: token})
		if err != nil {
			return nil, err
		}
		list = append(list, res.GetSandboxes()...)
		if token = res.GetNextPageToken(); token == "" {
			return list, nil
		}
	}
}

func (a *app) sandboxTable(list []*apiv1.Sandbox, wide bool) error {
	titles := []string{"ID", "POLICY", "STATE", "PID", "UID", "AGE", "NOTES", "COMMAND"}
	if wide {
		titles = []string{"ID", "POLICY", "STATE", "PID", "UID", "AGE", "OWNER", "DIRECTORY", "CGROUP", "COMMAND", "NOTES"}
	}
	rows := cli.NewRows(a.out, titles...)
	for _, s := range list {
		pid := ""
		if s.GetPid() != 0 {
			pid = fmt.Sprint(s.GetPid())
		}
		cells := []string{s.GetId(), sandboxPolicy(s), stateText(s), pid, fmt.Sprint(s.GetUid()), age(s.GetCreated())}
		command := strings.Join(s.GetArgv(), " ")
		if wide {
			// Notes name every path, so they come last: no column waits for them.
			cells = append(cells, s.GetOwner(), s.GetDirectory(), s.GetCgroup(), command, notes(s, wide))
		} else {
			cells = append(cells, notes(s, wide), clip(command, 60))
		}
		rows.Add(cells...)
	}
	return rows.Flush()
}

func sandboxPolicy(s *apiv1.Sandbox) string {
	return fmt.Sprintf("%s@%d", s.GetPolicy(), s.GetVersion())
}

// stateText is the state, for an ended sandbox with its status.
func stateText(s *apiv1.Sandbox) string {
	switch s.GetState() {
	case apiv1.SandboxState_SANDBOX_STATE_STARTING:
		return "starting"
	case apiv1.SandboxState_SANDBOX_STATE_RUNNING:
		return "running"
	case apiv1.SandboxState_SANDBOX_STATE_EXITED:
		if s.GetExit().GetUnknown() {
			return "ended (?)"
		}
		return fmt.Sprintf("ended (%d)", s.GetExit().GetCode())
	case apiv1.SandboxState_SANDBOX_STATE_UNKNOWN:
		return "ended (?)"
	}
	return "?"
}

// warnings says what of its policy a sandbox goes without.
func warnings(s *apiv1.Sandbox, wide bool) []string {
	var out []string
	if n := len(s.GetMissing()); n > 0 {
		if wide {
			for _, m := range s.GetMissing() {
				out = append(out, "not enforced: "+missingText(m))
			}
		} else {
			out = append(out, fmt.Sprintf("%d not enforced", n))
		}
	}
	if s.GetOutdated() {
		out = append(out, "outdated")
	}
	if s.GetFlattened() {
		out = append(out, "flattened")
	}
	for _, l := range s.GetLogLost() {
		out = append(out, "not logged as asked: "+l)
	}
	return out
}

// skippedShown is how many of the skipped paths stand in a row.
const skippedShown = 2

// notes says what a person should know of a sandbox. Skipped paths are for wide
// alone: nearly every policy has some, from fragments that name the files of many
// distributions, and what stands in every row is read in none.
func notes(s *apiv1.Sandbox, wide bool) string {
	out := warnings(s, wide)
	if l := s.GetSmackLabel(); l != "" {
		out = append(out, "label "+l)
	}
	if wide {
		if all := s.GetSkipped(); len(all) > 0 {
			text := "skipped " + strings.Join(all[:min(len(all), skippedShown)], " ")
			if n := len(all) - skippedShown; n > 0 {
				text += fmt.Sprintf(" and %d more (-o json)", n)
			}
			out = append(out, text)
		}
		for _, l := range s.GetLinks() {
			out = append(out, l.GetPath()+" -> "+l.GetTarget())
		}
		if n := s.GetLinksMore(); n > 0 {
			out = append(out, count(n, "more link", "more links"))
		}
		if n := uint32(len(s.GetMasked())) + s.GetMaskedMore(); n > 0 {
			out = append(out, count(n, "rule on files", "rules on files")+" without rights of folders")
		}
	}
	return strings.Join(out, ", ")
}

// clip cuts text for a column.
func clip(s string, runes int) string {
	if r := []rune(s); len(r) > runes {
		return string(r[:runes-1]) + "…"
	}
	return s
}
