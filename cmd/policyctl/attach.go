package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/unit"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/paths"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/units"
)

// attachFlags are those of attach.
type attachFlags struct {
	sets                                                 []string
	runtime, dryRun, restart, user, all, force, fromList bool
}

func newAttach(a *app) *cobra.Command {
	o := &attachFlags{}
	cmd := &cobra.Command{
		Use:   "attach UNIT REF | attach --restart-changed",
		Short: "Put a service of systemd under a policy",
		Long: "attach writes a drop-in, so that every ExecStart= line of a service runs under the policy, and the\n" +
			"compiled profile, so that it starts without policyd too. Type=, notification, sockets, user, credentials\n" +
			"and restarts are as they were: the launcher becomes the program and keeps its pid. A running service\n" +
			"is confined from its next start on: --restart. Each start takes the version that REF leads to then, or\n" +
			"the last one when policyd does not answer; without any profile the unit fails, it is never started\n" +
			"unconfined. A template (foo@.service) stands for its instances.\n\n" +
			"The other commands of the unit (ExecStartPre=, ExecReload=, ExecStop= ...) are not confined, unless\n" +
			"--all-commands is given. A drop-in that was changed by hand is not replaced: --force does that.\n\n" +
			"--restart-changed restarts the attached services that run an older version than they would get now,\n" +
			"and no other.",
		Example: "  policyctl attach nginx.service web@stable --restart\n" +
			"  policyctl attach backup@.service backup --set dest=/srv/backup\n" +
			"  policyctl attach --user syncthing.service sync --dry-run\n" +
			"  policyctl attach --restart-changed",
		Args: func(cmd *cobra.Command, args []string) error {
			if o.fromList {
				return none(cmd, args)
			}
			return exactly("UNIT", "REF")(cmd, args)
		},
		ValidArgsFunction: a.completeUnitAndRef(&o.user),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.user = o.user || a.user
			if o.fromList {
				return a.restartChanged(cmd.Context(), o)
			}
			return a.attachUnit(cmd.Context(), o, args[0], args[1])
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.BoolVar(&o.runtime, "runtime", false, "until the next reboot only")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the drop-in, or with --restart-changed the units, and change nothing")
	f.BoolVar(&o.restart, "restart", false, "restart the service if it is active")
	f.BoolVar(&o.user, "user", false, "a service of the calling user's own systemd")
	f.BoolVar(&o.all, "all-commands", false, "confine all commands of the unit, not only ExecStart=")
	f.BoolVar(&o.force, "force", false, "replace a drop-in that is of another policy, or was changed by hand")
	f.BoolVar(&o.fromList, "restart-changed", false, "restart the attached services that would get a newer version")
	return cmd
}

// mayChange refuses who cannot write units.
func mayChange(user bool, what string) error {
	if !user && os.Geteuid() != 0 {
		return fmt.Errorf("%s a unit of the host: %w: be root, or give --user for one of your own", what, errs.ErrNotAllowed)
	}
	return nil
}

// unitPlace gives the folders of units and profiles, and systemd.
func unitPlace(user bool) (*units.Manager, *units.Place, error) {
	p, err := units.PlaceOf(user)
	return &units.Manager{User: user}, p, err
}

func (a *app) attachUnit(ctx context.Context, o *attachFlags, name, ref string) error {
	if err := mayChange(o.user, "attaching"); err != nil && !o.dryRun {
		return err
	}
	set, err := pairs("--set", o.sets)
	if err != nil {
		return err
	}
	plan, notes, err := a.planAttach(ctx, o, name, ref, set)
	if err != nil {
		return err
	}
	for _, n := range notes {
		a.note("%s", n)
	}
	if o.dryRun {
		_, err := fmt.Fprint(a.out, plan.Text)
		return err
	}
	m, p, err := unitPlace(o.user)
	if err != nil {
		return err
	}
	if err := m.Attach(ctx, p, plan); err != nil {
		return fmt.Errorf("%s is not attached: %w", plan.Service.Name, err)
	}
	a.say("%s is attached to %s (now %s)", plan.Service.Name, ref, plan.Record.Policy)
	return a.afterAttach(ctx, o, m, plan.Service)
}

// afterAttach restarts what is active, when that was asked for.
func (a *app) afterAttach(ctx context.Context, o *attachFlags, m *units.Manager, s *units.Service) error {
	names := []string{s.Name}
	if units.IsTemplate(s.Name) {
		var err error
		if names, err = m.Instances(ctx, s.Name); err != nil {
			return err
		}
	}
	var failed []error
	for _, name := range names {
		u, err := m.Show(ctx, name)
		if err != nil {
			return err
		}
		switch {
		case !u.Active():
		case !o.restart:
			a.note("%s runs on as it was started: `systemctl restart %s` (or --restart) puts it under the policy", name, name)
		default:
			if err := m.Restart(ctx, name); err != nil {
				failed = append(failed, err)
				continue
			}
			a.say("%s restarted", name)
		}
	}
	return errors.Join(failed...)
}

// planAttach makes the drop-in and the profile.
func (a *app) planAttach(ctx context.Context, o *attachFlags, name, ref string, set map[string]string) (*units.Plan, []string, error) {
	name, err := units.ServiceName(name)
	if err != nil {
		return nil, nil, err
	}
	m, p, err := unitPlace(o.user)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.Load(ctx, name)
	if err == nil && s.Is("NeedDaemonReload") && !o.dryRun {
		// What its files say now is not what systemd says of it.
		if err = m.Reload(ctx); err == nil {
			s, err = m.Load(ctx, name)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	var notes []string
	if s.Name != name {
		notes = append(notes, fmt.Sprintf("%s is an alias of %s", name, s.Name))
	}
	over, err := mayReplace(p, o, s.Name, ref, set)
	if err != nil {
		return nil, nil, err
	}
	if err := m.SameCommands(ctx, p, s, o.all, o.runtime); err != nil {
		return nil, nil, err
	}
	c, err := a.fetch(ctx, ref, set, asWritten, true)
	if err != nil {
		return nil, nil, err
	}
	lost, err := onThisKernel(c)
	if err != nil {
		return nil, nil, err
	}
	notes = append(notes, lost...)
	plan := &units.Plan{Service: s, Record: recordOf(s.Name, c), Runtime: o.runtime, Over: over}
	f := units.Files{Profile: p.Profile(s.Name, o.runtime)}
	if f.Launcher, err = units.Program("policyd-launch"); err != nil {
		return nil, nil, err
	}
	updater, err := m.Show(ctx, strings.Replace(units.Updater, "@", "@"+s.Name, 1))
	if err != nil {
		return nil, nil, err
	}
	if state := updater.Get("LoadState"); state != "loaded" {
		return nil, nil, fmt.Errorf("%s, which brings profiles up to date, is %s: install policyd's units", units.Updater, state)
	}
	attachment := units.Attachment{Unit: s.Name, Policy: ref, Set: set, All: o.all, Socket: a.ownSocket(), Label: plan.Record.SmackLabel}
	text, more, err := units.Text(attachment, s, f, o.runtime, o.user)
	plan.Text = text
	return plan, append(notes, more...), err
}

// ownSocket is policyd's when it is not where the service would look for it.
func (a *app) ownSocket() string {
	if at := a.target(); at != "" {
		return at
	}
	return os.Getenv(paths.SocketEnv)
}

// mayReplace refuses to write over what somebody else has made, and gives the drop-in that
// is replaced; nil for none.
func mayReplace(p *units.Place, o *attachFlags, name, ref string, set map[string]string) (*units.Present, error) {
	d, err := p.Find(name)
	switch {
	case err != nil || d == nil:
		return nil, err
	case d.Runtime != o.runtime:
		return nil, fmt.Errorf("%s: %w: %s (policyctl detach %s)", name, errs.ErrExists, d.Path, name)
	case o.force:
	case d.Changed != nil:
		return nil, changedByHand(d)
	case d.Policy != ref || labelText(d.Set) != labelText(set):
		return nil, fmt.Errorf("%s is attached to %s: %w (--force replaces it)", name, strings.TrimSpace(d.Policy+" "+labelText(d.Set)), errs.ErrExists)
	}
	return d, nil
}

func changedByHand(d *units.Present) error {
	if d.Diff == "" {
		return fmt.Errorf("%w; --force takes no heed", d.Changed)
	}
	return fmt.Errorf("%w:\n%s--force takes no heed", d.Changed, d.Diff)
}

// recordOf is what the launcher reads.
func recordOf(name string, c *compiled) *unit.Record {
	return &unit.Record{
		Unit: name, Policy: c.name, ProfileDigest: c.digest, Profile: c.encoded, Written: time.Now().UTC(),
		SmackLabel: c.process.GetSmackLabel(), Umask: c.process.GetUmask(), Limits: c.process.GetLimits(), Environment: c.process.GetEnvironment(),
	}
}

// onThisKernel refuses a policy that this kernel does not enforce, and tells what
// one that degrades loses. Its paths are looked at when the service starts.
func onThisKernel(c *compiled) (notes []string, err error) {
	sup := landlock.Probe()
	if sup.State != landlock.Available && !c.profile.Degrade {
		return nil, fmt.Errorf("%s: %w", c.name, sup.Err)
	}
	_, lost := c.profile.Reduce(sup.ABI)
	var refused []string
	for _, n := range lost {
		if n.Confines() && !c.profile.Degrade {
			refused = append(refused, n.String())
			continue
		}
		notes = append(notes, fmt.Sprintf("not enforced on this kernel: %v", n))
	}
	if len(refused) > 0 {
		return nil, unsupported(sup.ABI, refused)
	}
	return notes, nil
}

// completeUnitAndRef offers services, then policies.
func (a *app) completeUnitAndRef(user *bool) completer {
	refs := a.completeRefs(policy.KindPolicy)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return refs(cmd, nil, typed)
		}
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := (&units.Manager{User: *user}).Services(cmd.Context(), typed)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// restartChanged restarts exactly the units that get units says need it.
func (a *app) restartChanged(ctx context.Context, o *attachFlags) error {
	if err := mayChange(o.user, "restarting"); err != nil && !o.dryRun {
		return err
	}
	m, p, err := unitPlace(o.user)
	if err != nil {
		return err
	}
	list, err := a.listUnits(ctx, o.user)
	if err != nil {
		return err
	}
	var failed []error
	count := 0
	for _, u := range list {
		switch {
		case u.Newest == "":
			failed = append(failed, fmt.Errorf("%s: it is not known whether it must be restarted: %s", u.Unit, u.Problem))
			continue
		case !u.NeedsRestart:
			continue
		}
		count++
		if o.dryRun {
			a.say("%s would be restarted: %s becomes %s", u.Unit, versionOrDash(u.Running), u.Newest)
			continue
		}
		if err := a.restartUnit(ctx, m, p, u); err != nil {
			failed = append(failed, err)
			continue
		}
		a.say("%s restarted: %s became %s", u.Unit, versionOrDash(u.Running), u.Newest)
	}
	if count == 0 && len(failed) == 0 {
		a.note("no unit has to be restarted")
	}
	if len(failed) > 0 {
		return &cli.Exit{Code: cli.ExitRefused, Err: errors.Join(failed...)}
	}
	return nil
}

// restartUnit restarts a unit under the newest version, and not under another.
func (a *app) restartUnit(ctx context.Context, m *units.Manager, p *units.Place, u attachedUnit) error {
	d, err := p.Find(u.attached)
	if err != nil || d == nil {
		return errors.Join(fmt.Errorf("%s is not attached any more", u.Unit), err)
	}
	if _, err := a.upToDate(ctx, p, d); err != nil {
		return fmt.Errorf("%s is not restarted: %w", u.Unit, err)
	}
	return m.Restart(ctx, u.Unit)
}

func versionOrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
