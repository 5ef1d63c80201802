package units

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// SameCommands holds that the instances of a template start what the template says. One
// with a file or drop-in that says otherwise would run another program than before, or
// its own one unconfined, by which of the files is read last; all says that it is about
// more than ExecStart=. An instance that has a policy of its own must keep that; runtime
// tells where the template's drop-in is to be. Errors wrap errs.ErrInvalid.
func (m *Manager) SameCommands(ctx context.Context, p *Place, s *Service, all, runtime bool) error {
	if !IsTemplate(s.Name) {
		return nil
	}
	names, err := m.knownInstances(ctx, s.Name)
	if err != nil {
		return err
	}
	for _, name := range names {
		own, err := p.Find(name)
		switch {
		case err != nil:
			return err
		case own != nil && own.Runtime && !runtime:
			// systemd reads one drop-in of a name, and that in /etc first.
			return fmt.Errorf("%s: %w: its instance %s has a policy of its own until the next boot, whose place this one would take: attach the instance without --runtime, or detach it, before", s.Name, errs.ErrInvalid, name)
		case own != nil:
			continue
		}
		u, err := m.Show(ctx, name)
		if err != nil {
			return err
		}
		if state := u.Get("LoadState"); u.ID != name || state == "masked" || state == "not-found" {
			continue
		}
		settings, err := readFiles(u)
		if err != nil {
			return err
		}
		for _, key := range execKeys {
			commands, err := Commands(settings, key)
			if err != nil {
				return err
			}
			if (key == "ExecStart" || all) && !slices.Equal(commands, s.Commands[key]) {
				return fmt.Errorf("%s: %w: its instance %s has another %s= (systemctl cat %s): attach that one by itself before", s.Name, errs.ErrInvalid, name, key, name)
			}
		}
	}
	return nil
}

// knownInstances are the instances of a template that are loaded, or have files.
func (m *Manager) knownInstances(ctx context.Context, template string) ([]string, error) {
	all, err := m.Instances(ctx, template)
	if err != nil {
		return nil, err
	}
	path, err := m.run(ctx, "show", "--property", "UnitPath", "--value")
	if err != nil {
		return nil, err
	}
	prefix, _, _ := strings.Cut(template, "@")
	for _, dir := range unquoteList(path) {
		for _, suffix := range []string{"", ".d"} {
			found, err := filepath.Glob(filepath.Join(dir, globLiteral.Replace(prefix)+"@?*.service"+suffix))
			if err != nil {
				return nil, err
			}
			for _, f := range found {
				all = append(all, strings.TrimSuffix(filepath.Base(f), suffix))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// globLiteral takes the meaning from what stands for others in a pattern; names of units have
// a backslash at most.
var globLiteral = strings.NewReplacer(`\`, `\\`)
