package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

func newSmackStatus(a *app) *cobra.Command {
	var foreign bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is in force, and whether the kernel still has it",
		Long: "status tells whether Smack can be used, which policy is in force and which is loaded at policyd's start,\n" +
			"how many of the kernel's rules are policyd's, what differs, and how many labels there are: the kernel\n" +
			"frees none.\n\n" +
			"Exit code 0: the kernel holds what is in force (or nothing is loaded), 1: something differs, a change was\n" +
			"cut off since the last load, the assigned policy is not in force, or policyd cannot use Smack, 2: nothing\n" +
			"can be said, 3: policyd is not reachable, 4: not allowed.",
		Example:     "  policyctl smack status\n  policyctl smack status --foreign -o json",
		Args:        none,
		Annotations: map[string]string{exitRuleKey: exitAnswers},
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			s, err := a.hostSmack(cmd, &apiv1.GetSmackRequest{Foreign: foreign})
			if err != nil {
				return err
			}
			if form != cli.Table {
				err = cli.WriteMessage(a.out, form, s)
			} else if !a.quiet {
				err = a.smackHostTable(s, foreign)
			}
			if err == nil && !smackWell(s) {
				return &cli.Exit{Code: cli.ExitRefused}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&foreign, "foreign", false, "list the rules that policyd did not load, at most 10,000")
	return cmd
}

// hostSmack asks policyd about the host's smackfs.
func (a *app) hostSmack(cmd *cobra.Command, req *apiv1.GetSmackRequest) (*apiv1.GetSmackResponse, error) {
	ctx, c, cancel, err := a.call(cmd.Context())
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.Smack.GetSmack(ctx, req)
}

func smackWell(s *apiv1.GetSmackResponse) bool {
	return s.GetState() == apiv1.GetSmackResponse_STATE_AVAILABLE && s.GetFailed() == "" && s.GetInterrupted() == "" &&
		s.GetDriftTotal() == 0 && len(s.GetSettingsDrift()) == 0
}

// smackStates are the states in words.
var smackStates = map[apiv1.GetSmackResponse_State]string{
	apiv1.GetSmackResponse_STATE_AVAILABLE:      "available",
	apiv1.GetSmackResponse_STATE_NOT_BUILT:      "not built into this kernel",
	apiv1.GetSmackResponse_STATE_DISABLED:       "disabled (not in the lsm= list)",
	apiv1.GetSmackResponse_STATE_NOT_MOUNTED:    "smackfs is not mounted",
	apiv1.GetSmackResponse_STATE_NOT_PRIVILEGED: "policyd may not change it (CAP_MAC_ADMIN)",
	apiv1.GetSmackResponse_STATE_ONLYCAP:        "policyd may not change it (its label is not in onlycap)",
}

// smackWords is the state as policyd tells it in detail, or in general.
func smackWords(s apiv1.GetSmackResponse_State, detail string) string {
	if detail != "" {
		return detail
	}
	return smackState(s)
}

func smackState(s apiv1.GetSmackResponse_State) string {
	if text := smackStates[s]; text != "" {
		return text
	}
	return "unknown"
}

func policyVersion(name string, number uint64) string {
	if name == "" {
		return "none"
	}
	return fmt.Sprintf("%s@%d", name, number)
}

func (a *app) smackHostTable(s *apiv1.GetSmackResponse, foreign bool) error {
	p := a.painter(a.out)
	rows := cli.NewRows(a.out)
	rows.Add("smack", smackWords(s.GetState(), s.GetDetail()))
	rows.Add("in force", policyVersion(s.GetPolicy(), s.GetVersion()))
	rows.Add("at start", policyVersion(s.GetAssignedPolicy(), s.GetAssignedVersion()))
	rows.Add("rules", fmt.Sprintf("%d, of them policyd's %d, of others %d", s.GetRules(), s.GetOwn(), s.GetForeign()))
	rows.Add("labels", fmt.Sprintf("%d of a budget of %d", s.GetLabels(), s.GetLabelBudget()))
	if r := s.GetRevoked(); len(r) > 0 {
		rows.Add("revoked", strings.Join(r, ", "))
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	if n := s.GetLabels(); n > s.GetLabelBudget() {
		a.say("%s", p.Paint("more labels than the budget: the kernel frees none before it starts anew", cli.Yellow))
	}
	if f := s.GetFailed(); f != "" {
		a.say("%s", p.Paint("not in force: "+f, cli.Red))
	}
	if i := s.GetInterrupted(); i != "" {
		a.say("%s", p.Paint(i, cli.Yellow))
	}
	if n := s.GetDriftTotal(); n > 0 {
		a.say("%s", p.Paint(fmt.Sprintf("%s of the kernel differ from the policy (see policyctl smack diff)", count(uint64(n), "pair", "pairs")), cli.Yellow))
	}
	for _, d := range s.GetSettingsDrift() {
		a.say("%s", p.Paint(d, cli.Yellow))
	}
	if !foreign {
		return nil
	}
	return a.smackChanges(s.GetForeignRules(), "no rules of others")
}

func newSmackDiff(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff [REF]",
		Short: "Compare the kernel's rules with a policy",
		Long: "diff lists the pairs and settings for which the kernel has something else than the policy: the one in\n" +
			"force, or REF. Rules of others for pairs that the policy does not have are no difference. A load of the\n" +
			"same policy makes the changes listed.\n\n" +
			"Exit code 0: equal, 1: something differs, 2: nothing can be said.",
		Example:           "  policyctl smack diff\n  policyctl smack diff platform@5 -o json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeRefs(policy.KindSmack),
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			req := &apiv1.GetSmackRequest{}
			if len(args) > 0 {
				req.Ref = smackRef(args[0])
			}
			s, err := a.hostSmack(cmd, req)
			if err != nil {
				return err
			}
			if s.GetState() != apiv1.GetSmackResponse_STATE_AVAILABLE && s.GetRules() == 0 && s.GetDetail() != "" {
				return &cli.Exit{Code: cli.ExitUsage, Err: errors.New(smackWords(s.GetState(), s.GetDetail()))}
			}
			if req.GetRef() == "" && s.GetPolicy() == "" {
				return &cli.Exit{Code: cli.ExitUsage, Err: fmt.Errorf("no policy is in force on this host: name one")}
			}
			if form != cli.Table {
				err = cli.WriteMessage(a.out, form, s)
			} else {
				equal := "equal"
				if len(s.GetSettingsDrift()) > 0 {
					equal = ""
				}
				err = a.smackChanges(s.GetDrift(), equal)
				for _, d := range s.GetSettingsDrift() {
					a.say("%s", d)
				}
				if more := int(s.GetDriftTotal()) - len(s.GetDrift()); more > 0 {
					a.note("and %d more pairs", more)
				}
			}
			if err == nil && (s.GetDriftTotal() > 0 || len(s.GetSettingsDrift()) > 0) {
				return &cli.Exit{Code: cli.ExitRefused}
			}
			return err
		},
	}
	return cmd
}
