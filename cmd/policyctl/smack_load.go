package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

// orders are the words of --order.
var orders = map[string]apiv1.SmackOrder{
	"grants-first":  apiv1.SmackOrder_SMACK_ORDER_GRANTS_FIRST,
	"revokes-first": apiv1.SmackOrder_SMACK_ORDER_REVOKES_FIRST,
}

func newSmackLoad(a *app) *cobra.Command {
	req := &apiv1.LoadRequest{}
	var order string
	cmd := &cobra.Command{
		Use:   "load REF",
		Short: "Put a Smack policy into this host's kernel",
		Long: "load has policyd make the kernel's rules and settings those of the policy, by difference, and load the\n" +
			"policy again whenever it starts (not with --once). Rules that policyd did not load stay what they are;\n" +
			"one for a pair of the policy with another access is an error, unless --adopt takes such rules over.\n" +
			"What is refused in the middle, or cut off by a crash, is undone. Going back to an earlier version is\n" +
			"another load.\n\n" +
			"--order grants-first (the default) never denies what both the old and the new policy allow;\n" +
			"--order revokes-first never allows what neither of them does. --dry-run writes nothing and lists the\n" +
			"changes.",
		Example: "  policyctl smack load platform@4 --dry-run\n" +
			"  policyctl smack load platform@4 -m 'camera may write logs'\n" +
			"  policyctl smack load platform --adopt",
		Args:              exactly("REF"),
		ValidArgsFunction: a.completeRefs(policy.KindSmack),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			var known bool
			if req.Order, known = orders[order]; !known {
				return cli.Usage(fmt.Errorf("--order %s: want grants-first or revokes-first", order))
			}
			req.Ref = smackRef(args[0])
			if req.RequestId == "" {
				req.RequestId = cli.RequestID()
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			defer a.patience("loading " + req.GetRef())()
			res, err := change(a, ctx, req.RequestId, func(ctx context.Context) (*apiv1.LoadResponse, error) {
				return cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.LoadResponse, error) {
					return c.Smack.Load(ctx, req, o...)
				})
			})
			if err != nil {
				return err
			}
			for _, w := range res.GetWarnings() {
				a.note("warning: %s", w)
			}
			switch form {
			case cli.JSON, cli.YAML:
				return cli.WriteMessage(a.out, form, res)
			case cli.Name:
				a.say("%s/%s@%d", words[policy.KindSmack], res.GetPolicy(), res.GetVersion())
				return nil
			}
			return a.loadTable(res, req.GetDryRun())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&req.DryRun, "dry-run", false, "write nothing, list what would change")
	f.StringVar(&order, "order", "grants-first", "what is written first: grants-first or revokes-first")
	f.BoolVar(&req.Adopt, "adopt", false, "take over rules and settings that somebody else loaded for the policy's pairs")
	f.BoolVar(&req.Once, "once", false, "do not load it again when policyd starts")
	f.StringVarP(&req.Message, "message", "m", "", "why, for the log")
	f.StringVar(&req.RequestId, "request-id", "", "id of an earlier, equal request to learn the result of")
	_ = cmd.RegisterFlagCompletionFunc("order", cobra.FixedCompletions([]string{"grants-first", "revokes-first"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// patience tells the person every few seconds that something is still going on; call what it returns at the end.
func (a *app) patience(what string) func() {
	done := make(chan struct{})
	start := time.Now()
	go func() {
		tick := time.NewTicker(3 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				a.note("still %s, %v so far", what, time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() { close(done) }
}

func (a *app) loadTable(res *apiv1.LoadResponse, dry bool) error {
	if dry {
		if err := a.smackChanges(res.GetChanges(), ""); err != nil {
			return err
		}
		for _, s := range res.GetSettings() {
			a.say("%s", s)
		}
		if total := max(res.GetGranted(), res.GetRevoked()); int(total) > len(res.GetChanges()) {
			a.note("only the first %d changes are listed", len(res.GetChanges()))
		}
	}
	word := "loaded"
	if dry {
		word = "would be loaded"
	}
	a.say("%s@%d %s: %s with more access, %d with less, %d unchanged", res.GetPolicy(), res.GetVersion(), word,
		count(uint64(res.GetGranted()), "pair", "pairs"), res.GetRevoked(), res.GetUnchanged())
	var more []string
	if n := len(res.GetSettings()); n > 0 {
		more = append(more, count(uint64(n), "setting", "settings")+" changed")
	}
	if n := res.GetForeign(); n > 0 {
		more = append(more, count(uint64(n), "rule", "rules")+" of others left alone")
	}
	more = append(more, fmt.Sprintf("%s known to the kernel, %d new", count(uint64(res.GetLabels()), "label", "labels"), res.GetNewLabels()))
	if !dry {
		more = append(more, fmt.Sprintf("%s, %s", count(uint64(res.GetWrites()), "write", "writes"), size(res.GetBytes())))
	}
	a.say("%s", strings.Join(more, "; "))
	return nil
}

// smackChanges prints pairs with what the kernel has and the policy says; equal is said when there is none.
func (a *app) smackChanges(list []*apiv1.SmackRuleState, equal string) error {
	if len(list) == 0 {
		if equal != "" {
			a.say("%s", equal)
		}
		return nil
	}
	rows := cli.NewRows(a.out, "SUBJECT", "OBJECT", "KERNEL", "POLICY")
	for _, c := range list {
		policy := c.GetPolicy()
		if policy == "" {
			policy = "(no rule)"
		}
		rows.Add(c.GetSubject(), c.GetObject(), c.GetKernel(), policy)
	}
	return rows.Flush()
}

func newSmackUnload(a *app) *cobra.Command {
	req := &apiv1.UnloadRequest{}
	cmd := &cobra.Command{
		Use:   "unload",
		Short: "Take what policyd loaded out of the kernel",
		Long: "unload revokes the rules that policyd has loaded or adopted, and ends that a policy is loaded at its\n" +
			"start. Rules of others stay. Settings stay too where the kernel has nothing to go back to; they are told.",
		Example: "  policyctl smack unload -m 'back to accesses.d'",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			if req.RequestId == "" {
				req.RequestId = cli.RequestID()
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			defer a.patience("unloading")()
			res, err := change(a, ctx, req.RequestId, func(ctx context.Context) (*apiv1.UnloadResponse, error) {
				return cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.UnloadResponse, error) {
					return c.Smack.Unload(ctx, req, o...)
				})
			})
			if err != nil {
				return err
			}
			for _, w := range res.GetWarnings() {
				a.note("warning: %s", w)
			}
			if form != cli.Table {
				return cli.WriteMessage(a.out, form, res)
			}
			a.say("%s changed or revoked; no policy is loaded", count(uint64(res.GetRevoked()), "rule", "rules"))
			return nil
		},
	}
	cmd.Flags().StringVarP(&req.Message, "message", "m", "", "why, for the log")
	cmd.Flags().StringVar(&req.RequestId, "request-id", "", "id of an earlier, equal request to learn the result of")
	return cmd
}

func newSmackRevoke(a *app) *cobra.Command {
	req := &apiv1.RevokeRequest{}
	cmd := &cobra.Command{
		Use:   "revoke LABEL",
		Short: "Take every rule of a subject away at once",
		Long: "revoke takes all rules with the label as subject out of the kernel, whoever loaded them, with one write.\n" +
			"They stay out until the next load, also when policyd or the machine starts again. Processes with the\n" +
			"label go on; what they have open stays open. Rules with the label as object stay.",
		Example: "  policyctl smack revoke App:org.example.camera -m 'incident 42'",
		Args:    exactly("LABEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			req.Subject = args[0]
			if req.RequestId == "" {
				req.RequestId = cli.RequestID()
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			res, err := change(a, ctx, req.RequestId, func(ctx context.Context) (*apiv1.RevokeResponse, error) {
				return cli.Retry(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (*apiv1.RevokeResponse, error) {
					return c.Smack.Revoke(ctx, req, o...)
				})
			})
			switch {
			case err != nil:
				return err
			case form != cli.Table:
				return cli.WriteMessage(a.out, form, res)
			case res.GetRevoked() == 0:
				a.say("%s had no rules", req.GetSubject())
			default:
				a.say("%s of %s revoked until the next load", count(uint64(res.GetRevoked()), "rule", "rules"), req.GetSubject())
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&req.Message, "message", "m", "", "why, for the log")
	cmd.Flags().StringVar(&req.RequestId, "request-id", "", "id of an earlier, equal request to learn the result of")
	return cmd
}
