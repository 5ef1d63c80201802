package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

// listing is what ps is asked for.
type listing struct {
	all, outdated         bool
	sandboxes, containers bool
	policy                string
}

// found is what ps has found.
type found struct {
	sandboxes  []*apiv1.Sandbox
	containers *apiv1.ListContainersResponse
}

func newPs(a *app) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List sandboxes and containers, and what is not enforced for them",
		Long: "ps lists the sandboxes that run, and the containers that were started under a policy; with -a those\n" +
			"that ended too. NOTES says when this kernel does not enforce all of the policy (-o wide: what), and\n" +
			"when it is outdated: what was started keeps its version, and started now it would get another. Of\n" +
			"containers it names that one. -o wide also says where symbolic links led rules of the policy; -o json\n" +
			"which rules lie on files and do without rights that only folders have. -o name gives ids of sandboxes,\n" +
			"and with --containers those of containers as container/ID.",
		Example: "  policyctl ps\n  policyctl ps -a --policy web -o wide\n  policyctl ps --containers --outdated",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			if !l.sandboxes && !l.containers {
				// A list of names is handed to kill and rm, which know sandboxes.
				l.sandboxes, l.containers = true, form != cli.Name
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			r, err := l.find(ctx, c)
			if err != nil {
				return err
			}
			return a.writeRunning(form, r)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&l.all, "all", "a", false, "ended ones too")
	f.StringVar(&l.policy, "policy", "", "only those under this policy")
	f.BoolVar(&l.outdated, "outdated", false, "only those that would get something else now")
	f.BoolVar(&l.sandboxes, "sandboxes", false, "sandboxes alone")
	f.BoolVar(&l.containers, "containers", false, "containers alone")
	_ = cmd.RegisterFlagCompletionFunc("policy", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.refs(cmd.Context(), policy.KindPolicy, "", typed), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// find asks for what is wanted.
func (l *listing) find(ctx context.Context, c *cli.Client) (*found, error) {
	r := &found{containers: &apiv1.ListContainersResponse{}}
	if l.sandboxes {
		list, err := listSandboxes(ctx, c, l.all, l.policy)
		if err != nil {
			return nil, err
		}
		r.sandboxes = slices.DeleteFunc(list, func(s *apiv1.Sandbox) bool { return l.outdated && !s.GetOutdated() })
	}
	if l.containers {
		res, err := c.Containers.ListContainers(ctx, &apiv1.ListContainersRequest{Policy: l.policy, Outdated: l.outdated})
		if status.Code(err) == codes.Unimplemented && l.sandboxes {
			return r, nil // an older policyd
		}
		if err != nil {
			return nil, err
		}
		res.Containers = slices.DeleteFunc(res.GetContainers(), func(k *apiv1.Container) bool {
			return !l.all && k.GetState() == apiv1.ContainerState_CONTAINER_STATE_STOPPED
		})
		r.containers = res
	}
	return r, nil
}

func (a *app) writeRunning(form cli.Format, r *found) error {
	for _, text := range r.containers.GetUnreadable() {
		a.note("a record of a container could not be read: %s", text)
	}
	switch form {
	case cli.JSON, cli.YAML:
		return r.write(a.out, form)
	case cli.Name:
		for _, s := range r.sandboxes {
			fmt.Fprintln(a.out, cli.Clean(s.GetId()))
		}
		for _, k := range r.containers.GetContainers() {
			fmt.Fprintln(a.out, "container/"+cli.Clean(k.GetId()))
		}
		return nil
	}
	return a.runningTable(r, form == cli.Wide)
}

// write gives the fields of both answers of the API as one object.
func (r *found) write(out io.Writer, form cli.Format) error {
	all := map[string]json.RawMessage{}
	for _, m := range []proto.Message{&apiv1.ListSandboxesResponse{Sandboxes: r.sandboxes}, r.containers} {
		b, err := cli.CompactJSON(m)
		if err == nil {
			err = json.Unmarshal(b, &all)
		}
		if err != nil {
			return err
		}
	}
	return cli.WriteValue(out, form, all)
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

func (a *app) runningTable(r *found, wide bool) error {
	titles := []string{"KIND", "ID", "POLICY", "STATE", "PID", "UID", "AGE", "NOTES", "COMMAND"}
	if wide {
		titles = []string{"KIND", "ID", "POLICY", "STATE", "PID", "UID", "AGE", "OWNER", "DIRECTORY", "CGROUP", "COMMAND", "NOTES"}
	}
	rows := cli.NewRows(a.out, titles...)
	for _, s := range r.sandboxes {
		cells := []string{"sandbox", s.GetId(), sandboxPolicy(s), stateText(s), number(s.GetPid()), fmt.Sprint(s.GetUid()), age(s.GetCreated())}
		command := strings.Join(s.GetArgv(), " ")
		if wide {
			// Notes name every path, so they come last: no column waits for them.
			cells = append(cells, s.GetOwner(), s.GetDirectory(), s.GetCgroup(), command, notes(s, wide))
		} else {
			cells = append(cells, notes(s, wide), clip(command, 60))
		}
		rows.Add(cells...)
	}
	for _, k := range r.containers.GetContainers() {
		rows.Add(containerCells(k, wide)...)
	}
	return rows.Flush()
}

// number is that of a process, "" when there is none.
func number(pid int32) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprint(pid)
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
