package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/unit"
	"policyd.dev/policyd/internal/units"
)

// startTimeout is how long a unit's start waits for policyd.
const startTimeout = 5 * time.Second

// newUnitStart is what the drop-in of an attached unit runs before the launcher.
func newUnitStart(a *app) *cobra.Command {
	user := false
	cmd := &cobra.Command{
		Use:   "unit-start UNIT INSTANCE",
		Short: "Bring the profile of an attached unit up to date; run by its drop-in",
		Args:  exactly("UNIT", "INSTANCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.unitStart(cmd.Context(), user, args[0], args[1])
		},
		Hidden: true,
	}
	cmd.Flags().BoolVar(&user, "user", false, "of the calling user's own systemd")
	return cmd
}

// unitStart asks policyd for what the reference leads to now, and notes what the
// unit is started with. Whatever fails leaves the last profile in force.
func (a *app) unitStart(ctx context.Context, user bool, name, instance string) error {
	_, p, err := unitPlace(user)
	if err != nil {
		return err
	}
	d, err := p.Find(name)
	switch {
	case err != nil:
		return err
	case d == nil:
		return fmt.Errorf("%s is not attached: systemctl daemon-reload", name)
	}
	file := p.Profile(name, d.Runtime)
	have, err := unit.Read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.note("%v", err)
	}
	now, err := a.upToDate(ctx, p, d, have)
	if err != nil && have != nil {
		err = fmt.Errorf("%s is started under %s, as last time: %w", instance, have.Policy, err)
	}
	if now == nil {
		return err
	}
	return errors.Join(err, p.WriteStarted(instance, units.Started{Invocation: os.Getenv("INVOCATION_ID"), Policy: now.Policy, ProfileDigest: now.ProfileDigest}))
}

// upToDate writes the profile when it is another now, and gives the one in force.
func (a *app) upToDate(ctx context.Context, p *units.Place, d *units.Present, have *unit.Record) (*unit.Record, error) {
	if d.Changed != nil {
		return have, d.Changed
	}
	if a.timeout == 0 {
		a.timeout = startTimeout
	}
	c, err := a.fetch(ctx, d.Policy, d.Set, asWritten, true)
	if err != nil {
		return have, err
	}
	r := recordOf(d.Unit, c)
	if have != nil && have.Policy == r.Policy && have.ProfileDigest == r.ProfileDigest {
		return have, nil
	}
	if have != nil && have.SmackLabel != r.SmackLabel {
		return have, fmt.Errorf("%s wants the Smack label %q: `policyctl attach %s %s` writes a drop-in for it", r.Policy, r.SmackLabel, d.Unit, d.Policy)
	}
	if err := p.WriteProfile(r, d.Runtime); err != nil {
		return have, err
	}
	return r, nil
}
