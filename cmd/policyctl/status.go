package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/cli"
)

// waitPause is the time between two looks of status --wait.
const waitPause = 50 * time.Millisecond

func newStatus(a *app) *cobra.Command {
	var wait uint
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, what the kernel can enforce, and the store",
		Long: "status answers with its exit code too, as aa-status does: 0 when policies can be enforced, 1 when\n" +
			"policyd runs but Landlock is not built in, off or blocked, 2 for wrong usage, 3 when policyd is\n" +
			"not reachable, 4 when the caller may not ask.\n\n" +
			"--wait waits until policyd answers and is ready, --wait=N for at most N seconds.",
		Example: "  policyctl status\n  policyctl status --wait=30 -o json\n  policyctl status -q || echo 'no enforcement here'",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			if wait > 0 {
				if err := a.waitReady(cmd.Context(), time.Duration(wait)*time.Second); err != nil {
					return err
				}
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
	cmd.Flags().UintVar(&wait, "wait", 0, "wait so many seconds until policyd answers and is ready")
	cmd.Flags().Lookup("wait").NoOptDefVal = "10"
	return cmd
}

// waitReady waits until policyd says that it serves. The error is that of the
// last look.
func (a *app) waitReady(ctx context.Context, most time.Duration) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(waitPause)
	defer tick.Stop()
	for {
		look := c.Ready(ctx)
		if look == nil {
			return nil
		}
		if err == nil || ctx.Err() == nil {
			err = look // else it only says that the time is over
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v: %w", most, err)
		case <-tick.C:
		}
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
	rows.Add("smack", smackLine(s.GetSmack()))
	rows.Add("containment", s.GetContainment())
	st := s.GetStore()
	rows.Add("store", fmt.Sprintf("%s, schema %d, %s (%s free)", st.GetPath(), st.GetSchema(), size(st.GetSizeBytes()), size(st.GetFreeBytes())))
	rows.Add("stored", fmt.Sprintf("%s, %s, %s", count(st.GetPolicies(), "policy", "policies"), count(st.GetFragments(), "fragment", "fragments"), count(st.GetVersions(), "version", "versions")))
	rows.Add("log", fmt.Sprintf("%s, head %s", count(st.GetLogEntries(), "entry", "entries"), clip(st.GetLogHead(), 17)))
	rows.Add("sandboxes", fmt.Sprintf("%d alive, %d degraded, %d outdated", s.GetSandboxes(), s.GetDegraded(), s.GetOutdated()))
	if c := s.GetConfiguration(); c.GetError() != "" {
		rows.Add("configuration", "NOT READ AGAIN, that of "+age(c.GetRead())+" ago holds: "+strings.Join(strings.Fields(c.GetError()), " "))
	} else if keys := c.GetRestart(); len(keys) > 0 {
		rows.Add("configuration", "waits for a restart of policyd: "+strings.Join(keys, ", "))
	}
	if f := s.GetFleet(); f != nil {
		rows.Add("fleet", fleetLine(f))
		if len(f.GetOverridden()) > 0 {
			rows.Add("overridden", strings.Join(f.GetOverridden(), ", "))
		}
	}
	rows.Add("you are", fmt.Sprintf("%s, roles: %s", s.GetCaller(), strings.Join(s.GetRoles(), ", ")))
	if err := rows.Flush(); err != nil {
		return err
	}
	if l.GetState() != apiv1.LandlockStatus_STATE_AVAILABLE {
		fmt.Fprintln(a.out, p.Paint("no policy can be enforced here", cli.Red))
	}
	return nil
}

// fleetLine is what this host follows, how far it is, and what is in the way.
func fleetLine(f *apiv1.FleetStatus) string {
	channel := f.GetChannel()
	if channel == "" {
		channel = "no channel"
	}
	text := fmt.Sprintf("%s, node %s, %s: %s", f.GetFleet(), f.GetNode(), channel, f.GetState())
	if f.GetLoadedDigest() != "" {
		text += fmt.Sprintf(", %s@%d in force (%s)", clip(f.GetLoadedDigest(), 19), f.GetLoadedSeq(), count(f.GetDocuments(), "document", "documents"))
	}
	if f.GetDesiredDigest() != "" && f.GetDesiredDigest() != f.GetLoadedDigest() {
		text += fmt.Sprintf(", %s@%d wanted", clip(f.GetDesiredDigest(), 19), f.GetDesiredSeq())
	}
	if n := f.GetRunningOlder(); n > 0 {
		text += ", " + count(n, "program runs", "programs run") + " another version"
	}
	if !f.GetConnected() {
		text += "; etcd is not heard: " + f.GetConnection()
	}
	if f.GetReason() != "" {
		text += "; " + strings.Join(strings.Fields(f.GetReason()), " ")
	}
	return text
}

// smackLine is what the host's Smack is, and how much of it is used.
func smackLine(s *apiv1.SmackStatus) string {
	text := smackWords(s.GetState(), s.GetDetail())
	if s.GetPolicy() != "" {
		text += ", " + policyVersion(s.GetPolicy(), s.GetVersion()) + " in force"
	}
	if s.GetLabels() > 0 {
		text += fmt.Sprintf(", %d rules, %d policyd's, %d of %d labels", s.GetRules(), s.GetOwn(), s.GetLabels(), s.GetLabelBudget())
	}
	if s.GetFailed() != "" {
		text += "; not in force: " + s.GetFailed()
	}
	return text
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
