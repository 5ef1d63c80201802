package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/units"
)

func newDetach(a *app) *cobra.Command {
	var user, restart, force bool
	cmd := &cobra.Command{
		Use:   "detach UNIT",
		Short: "Take a service out of its policy",
		Long: "detach removes what attach has written. A running service stays confined until it is restarted:\n" +
			"what a process has given up it does not get back. A drop-in that was changed by hand is kept, and the\n" +
			"change shown, unless --force is given.",
		Example:           "  policyctl detach nginx.service --restart",
		Args:              exactly("UNIT"),
		ValidArgsFunction: a.completeAttached(&user),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.detachUnit(cmd.Context(), args[0], user || a.user, restart, force)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&user, "user", false, "a service of the calling user's own systemd")
	f.BoolVar(&restart, "restart", false, "restart the service if it is active")
	f.BoolVar(&force, "force", false, "remove a drop-in that was changed by hand, too")
	return cmd
}

func (a *app) detachUnit(ctx context.Context, name string, user, restart, force bool) error {
	if err := mayChange(user, "detaching"); err != nil {
		return err
	}
	name, err := units.ServiceName(name)
	if err != nil {
		return err
	}
	m, p, err := unitPlace(user)
	if err != nil {
		return err
	}
	d, err := p.Find(name)
	if err == nil && d == nil && !units.IsTemplate(name) {
		// By an alias; a unit that is gone is found by its name alone.
		if u, serr := m.Show(ctx, name); serr == nil && u.ID != name {
			name = u.ID
			d, err = p.Find(name)
		}
	}
	switch {
	case err != nil:
		return err
	case d == nil:
		return fmt.Errorf("%s: %w: it is not attached (policyctl get units)", name, errs.ErrNotFound)
	case d.Changed != nil && !force:
		return changedByHand(d)
	}
	if err := m.Detach(ctx, p, d); err != nil {
		return fmt.Errorf("%s is still attached: %w", name, err)
	}
	a.say("%s is detached", name)
	return a.afterDetach(ctx, m, name, restart)
}

func (a *app) afterDetach(ctx context.Context, m *units.Manager, name string, restart bool) error {
	names := []string{name}
	if units.IsTemplate(name) {
		var err error
		if names, err = m.Instances(ctx, name); err != nil {
			return err
		}
	}
	for _, n := range names {
		u, err := m.Show(ctx, n)
		switch {
		case err != nil:
			return err
		case !u.Active():
		case !restart:
			a.note("%s stays confined until it is restarted: systemctl restart %s", n, n)
		default:
			if err := m.Restart(ctx, n); err != nil {
				return err
			}
			a.say("%s restarted", n)
		}
	}
	return nil
}

// completeAttached offers the units that are attached.
func (a *app) completeAttached(user *bool) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		_, p, err := unitPlace(*user)
		if len(args) > 0 || err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, _ := p.All()
		var names []string
		for _, d := range all {
			names = append(names, d.Unit)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
