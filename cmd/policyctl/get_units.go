package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/unit"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/units"
)

// attachedUnit is a row of get units; its names in JSON are an interface.
type attachedUnit struct {
	Unit   string            `json:"unit"`
	Policy string            `json:"policy"` // the reference it is attached to
	Set    map[string]string `json:"set"`
	// Running is the version the running processes were started under; "" when nothing runs, or
	// when it was started before it was attached.
	Running string `json:"running"`
	// Next is the version of the profile that is there, what a start without policyd takes.
	Next         string `json:"next"`
	Newest       string `json:"newest"` // what the reference leads to now; "" when that is not known
	NeedsRestart bool   `json:"needsRestart"`
	State        string `json:"state"` // systemd's ActiveState
	// Problem says what is wrong with the attachment; "" for nothing.
	Problem string `json:"problem"`
	DropIn  string `json:"dropIn"`

	attached string // the name that the drop-in is of: a template's for an instance
}

func newGetUnits(a *app) *cobra.Command {
	user := false
	cmd := &cobra.Command{
		Use:     "units",
		Short:   "List the services that are attached to a policy",
		Aliases: []string{"unit"},
		Long: "List the services that are attached to a policy, the version that each one runs under, and the\n" +
			"version that it would get if it were started now. RESTART is yes where they differ.",
		Example: "  policyctl get units\n  policyctl get units -o json --user",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			list, err := a.listUnits(cmd.Context(), user || a.user)
			if err != nil {
				return err
			}
			return a.tellUnits(form, list)
		},
	}
	cmd.Flags().BoolVar(&user, "user", false, "those of the calling user's own systemd")
	return cmd
}

func (a *app) tellUnits(form cli.Format, list []attachedUnit) error {
	switch form {
	case cli.JSON, cli.YAML:
		return cli.WriteValue(a.out, form, struct {
			Units []attachedUnit `json:"units"`
		}{list})
	case cli.Name:
		for _, u := range list {
			fmt.Fprintln(a.out, cli.Clean(u.Unit))
		}
		return nil
	}
	if len(list) == 0 {
		a.note("no units")
		return nil
	}
	titles := []string{"UNIT", "POLICY", "RUNNING", "NEWEST", "RESTART", "STATE"}
	if form == cli.Wide {
		titles = append(titles, "NEXT", "SET", "DROP-IN")
	}
	rows := cli.NewRows(a.out, titles...)
	for _, u := range list {
		restart := "no"
		if u.NeedsRestart {
			restart = "yes"
		}
		state := u.State
		if u.Problem != "" {
			state = strings.Trim(state+", "+u.Problem, ", ")
		}
		cells := []string{u.Unit, u.Policy, u.Running, u.Newest, restart, state}
		if form == cli.Wide {
			cells = append(cells, u.Next, labelText(u.Set), u.DropIn)
		}
		rows.Add(cells...)
	}
	return rows.Flush()
}

// listUnits looks at every attached unit.
func (a *app) listUnits(ctx context.Context, user bool) ([]attachedUnit, error) {
	m, p, err := unitPlace(user)
	if err != nil {
		return nil, err
	}
	all, err := p.All()
	if err != nil {
		return nil, err
	}
	list := []attachedUnit{}
	for _, d := range all {
		names := []string{d.Unit}
		if units.IsTemplate(d.Unit) {
			instances, err := m.Instances(ctx, d.Unit)
			if err != nil {
				return nil, err
			}
			names = nil
			for _, name := range instances {
				if own, err := p.Find(name); err != nil || own == nil { // an instance may have its own
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				names = []string{d.Unit}
			}
		}
		newest, err := a.newest(ctx, d)
		for _, name := range names {
			list = append(list, *lookAt(ctx, m, p, d, name, newest, err))
		}
	}
	return list, nil
}

// newest is the version that the reference leads to, and its profile.
func (a *app) newest(ctx context.Context, d *units.Present) (*compiled, error) {
	if d.Changed != nil {
		return nil, units.ErrChangedByHand
	}
	c, err := a.fetchFor(ctx, d, false)
	if err != nil && cli.ExitCode(err) == cli.ExitUnreachable {
		return nil, errors.New("policyd does not answer")
	}
	return c, err
}

// lookAt makes the row of a unit, or of an instance of it. err is why it is not known
// what is newest.
func lookAt(ctx context.Context, m *units.Manager, p *units.Place, d *units.Present, name string, newest *compiled, err error) *attachedUnit {
	u := &attachedUnit{Unit: name, Policy: d.Policy, Set: d.Set, DropIn: d.Path, attached: d.Unit}
	if u.Set == nil {
		u.Set = map[string]string{}
	}
	var problems []string
	add := func(err error) {
		if err != nil {
			problems = append(problems, cli.Text(err))
		}
	}
	add(err)
	s, err := m.Load(ctx, name)
	if err == nil {
		if d.Changed == nil && s.Source(d.All) != d.Source {
			add(fmt.Errorf("the unit's own command has changed since (attach it again)"))
		}
		if d.Changed == nil {
			add(s.Effective(d.Text))
		}
	} else {
		add(err)
	}
	next, err := unit.Read(p.Profile(d.Unit, d.Runtime))
	if err != nil {
		add(fmt.Errorf("it cannot start: %w", err))
	} else {
		u.Next = next.Policy
	}
	if newest != nil {
		u.Newest = newest.name
	}
	if s != nil && !units.IsTemplate(name) {
		u.State = s.Get("ActiveState")
		if s.Active() {
			running, known := p.Running(d.Unit, d.Runtime, s.Unit)
			u.Running = running.Policy
			u.NeedsRestart = newest != nil && (running.Policy != newest.name || running.ProfileDigest != newest.digest)
			if !known {
				add(errors.New("started before it was attached"))
			}
		}
	}
	u.Problem = strings.Join(problems, "; ")
	return u
}
