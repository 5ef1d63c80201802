package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/unit"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/journal"
	"policyd.dev/policyd/internal/units"
)

// startTimeout is how long a unit's start waits for policyd.
const startTimeout = 5 * time.Second

// newUnitStart is what policyd-unit@.service runs before an attached unit is started.
func newUnitStart(a *app) *cobra.Command {
	user := false
	cmd := &cobra.Command{
		Use:     "unit-start UNIT",
		Short:   "Bring the profile of an attached unit up to date; run by policyd-unit@.service",
		Example: "  policyctl unit-start nginx.service",
		Args:    exactly("UNIT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			started, err := a.unitStart(cmd.Context(), user, args[0])
			return tellUnit(args[0], started, err)
		},
		Hidden: true,
	}
	cmd.Flags().BoolVar(&user, "user", false, "of the calling user's own systemd")
	return cmd
}

// tellUnit writes into the journal, as of the unit that is about to start, which version it
// starts under, "" when that is not known, and why it is not the newest one.
func tellUnit(name, started string, err error) error {
	if !journal.Connected(os.Stderr) {
		return err
	}
	h, jerr := journal.New(slog.LevelInfo)
	if jerr != nil {
		return errors.Join(err, jerr)
	}
	log := slog.New(h.OfUnit(name)).With("unit", name)
	if started != "" {
		log = log.With("policy", started)
	}
	if err != nil {
		log.Warn(cli.Text(err))
		return &cli.Exit{Code: cli.ExitCode(err)}
	}
	log.Info("the unit is started under the policy")
	return nil
}

// unitStart asks policyd for what the reference leads to now. Whatever fails leaves
// the last profile in force. It gives the version of the one that is there in the end.
func (a *app) unitStart(ctx context.Context, user bool, name string) (started string, err error) {
	_, p, err := unitPlace(user)
	if err != nil {
		return "", err
	}
	d, err := p.Find(name)
	if err == nil && d == nil {
		d, err = p.Find(units.TemplateOf(name))
	}
	switch {
	case err != nil:
		return "", err
	case d == nil:
		return "", fmt.Errorf("%s is not attached: systemctl daemon-reload", name)
	}
	if a.timeout == 0 {
		a.timeout = startTimeout
	}
	have, err := a.upToDate(ctx, p, d)
	if err != nil && have != nil {
		return have.Policy, fmt.Errorf("%s is started under %s, as last time: %w", name, have.Policy, err)
	}
	if now := a.profileOf(p, d); err == nil && now != nil {
		started = now.Policy
	}
	return started, err
}

// upToDate writes the profile when it is another now. It gives the one that was there,
// nil for none.
func (a *app) upToDate(ctx context.Context, p *units.Place, d *units.Present) (have *unit.Record, err error) {
	have = a.profileOf(p, d)
	if d.Changed != nil {
		return have, d.Changed
	}
	c, err := a.fetchFor(ctx, d, true)
	if err != nil {
		return have, err
	}
	release, err := p.Lock()
	if err != nil {
		return have, err
	}
	defer release()
	if err := p.Unchanged(d.Unit, d); err != nil {
		return have, err
	}
	have = a.profileOf(p, d) // another instance may have been quicker
	r := recordOf(d.Unit, c)
	switch {
	case r.SmackLabel != d.Label:
		return have, fmt.Errorf("%s wants the Smack label %q: `policyctl attach %s %s` writes a drop-in for it", r.Policy, r.SmackLabel, d.Unit, d.Policy)
	case have != nil && have.Policy == r.Policy && have.ProfileDigest == r.ProfileDigest:
		return have, nil
	}
	if err := p.WriteProfile(r, d.Runtime); err != nil {
		return have, err
	}
	return have, nil
}

// fetchFor asks the policyd that a unit was attached by.
func (a *app) fetchFor(ctx context.Context, d *units.Present, process bool) (*compiled, error) {
	if d.Socket != "" {
		client, socket := a.client, a.socket
		a.client, a.socket = nil, d.Socket
		defer func() {
			if a.client != nil {
				a.client.Close()
			}
			a.client, a.socket = client, socket
		}()
	}
	return a.fetch(ctx, d.Policy, d.Set, asWritten, process)
}

// profileOf reads the profile that is there; nil when there is none that can be used.
func (a *app) profileOf(p *units.Place, d *units.Present) *unit.Record {
	r, err := unit.Read(p.Profile(d.Unit, d.Runtime))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.note("%v", err)
	}
	return r
}
