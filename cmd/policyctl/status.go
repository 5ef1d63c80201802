package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/cli"
)

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, what the kernel can enforce, and the store",
		Long: "status answers with its exit code too, as aa-status does: 0 when policies can be enforced, 1 when\n" +
			"policyd runs but Landlock is not built in, off or blocked, 2 for wrong usage, 3 when policyd is\n" +
			"not reachable, 4 when the caller may not ask.",
		Example: "  policyctl status\n  policyctl status -q || echo 'no enforcement here'",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			s, err := c.Admin.Status(ctx, &apiv1.StatusRequest{})
			if err != nil {
				return err
			}
			switch {
			case form != cli.Table:
				err = cli.WriteMessage(a.out, form, s)
			case !a.quiet:
				err = a.statusTable(s)
			}
			if err == nil && s.GetLandlock().GetState() != apiv1.LandlockStatus_STATE_AVAILABLE {
				return &cli.Exit{Code: cli.ExitRefused}
			}
			return err
		},
	}
}

func (a *app) statusTable(s *apiv1.StatusResponse) error {
	p := a.painter(a.out)
	rows := cli.NewRows(a.out)
	rows.Add("policyd", fmt.Sprintf("%s, up %s (policyctl %s)", s.GetVersion(), age(s.GetStarted()), buildinfo.Version))
	rows.Add("kernel", s.GetKernel())
	l := s.GetLandlock()
	text := landlockState(l.GetState())
	if l.GetState() == apiv1.LandlockStatus_STATE_AVAILABLE {
		text += fmt.Sprintf(", ABI %d", l.GetAbi())
		if n := l.GetErrata(); len(n) > 0 {
			text += ", errata fixed: " + strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ", "), "[]")
		}
	}
	if d := l.GetDetail(); d != "" {
		text += " (" + d + ")"
	}
	rows.Add("landlock", text)
	smack := "not available"
	if s.GetSmack().GetAvailable() {
		smack = "available"
	}
	if d := s.GetSmack().GetDetail(); d != "" {
		smack += " (" + d + ")"
	}
	rows.Add("smack", smack)
	rows.Add("containment", s.GetContainment())
	st := s.GetStore()
	rows.Add("store", fmt.Sprintf("%s, schema %d, %s (%s free)", st.GetPath(), st.GetSchema(), size(st.GetSizeBytes()), size(st.GetFreeBytes())))
	rows.Add("", fmt.Sprintf("%s, %s, %s", count(st.GetPolicies(), "policy", "policies"), count(st.GetFragments(), "fragment", "fragments"), count(st.GetVersions(), "version", "versions")))
	rows.Add("log", fmt.Sprintf("%s, head %s", count(st.GetLogEntries(), "entry", "entries"), clip(st.GetLogHead(), 17)))
	rows.Add("sandboxes", fmt.Sprintf("%d alive, %d degraded, %d outdated", s.GetSandboxes(), s.GetDegraded(), s.GetOutdated()))
	rows.Add("you are", fmt.Sprintf("%s, roles: %s", s.GetCaller(), strings.Join(s.GetRoles(), ", ")))
	if err := rows.Flush(); err != nil {
		return err
	}
	if l.GetState() != apiv1.LandlockStatus_STATE_AVAILABLE {
		fmt.Fprintln(a.out, p.Paint("no policy can be enforced here", cli.Red))
	}
	return nil
}

func landlockState(s apiv1.LandlockStatus_State) string {
	switch s {
	case apiv1.LandlockStatus_STATE_AVAILABLE:
		return "available"
	case apiv1.LandlockStatus_STATE_NOT_BUILT:
		return "not built into this kernel"
	case apiv1.LandlockStatus_STATE_DISABLED:
		return "disabled (not in the lsm= list)"
	case apiv1.LandlockStatus_STATE_BLOCKED:
		return "blocked by a seccomp filter"
	}
	return "unknown"
}
