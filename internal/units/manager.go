package units

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Manager is a systemd: the host's, or with User the calling user's own.
type Manager struct {
	User bool
}

// Unit is what systemd says of a unit. Lists are empty when there is nothing.
type Unit struct {
	ID    string   // its own name, where it was asked for by an alias
	Names []string // all of them
	props map[string][]string
}

// Get is a property as systemctl show prints it, "" when there is none.
func (u *Unit) Get(name string) string { return strings.Join(u.props[name], "\n") }

// List is a property that is a list of strings.
func (u *Unit) List(name string) []string {
	var all []string
	for _, line := range u.props[name] {
		all = append(all, unquoteList(line)...)
	}
	return all
}

// Is tells that a boolean property is yes.
func (u *Unit) Is(name string) bool { return u.Get(name) == "yes" }

// Active tells that processes of it may run.
func (u *Unit) Active() bool {
	switch u.Get("ActiveState") {
	case "active", "activating", "reloading", "deactivating", "refreshing":
		return true
	}
	return false
}

// Lines gives the commands of a key as systemd prints them, one each.
func (u *Unit) Lines(key string) []string { return u.props[key] }

// unquoteList reads words as systemctl show prints lists of strings (shell_maybe_quote).
func unquoteList(line string) []string {
	var all []string
	for rest := strings.Trim(line, space); rest != ""; {
		rest = strings.TrimPrefix(rest, "$") // $'...' of what has control characters
		_, v, after, err := word(rest)
		if err != nil {
			return append(all, rest)
		}
		all, rest = append(all, v), after
	}
	return all
}

// run runs systemctl. Its errors are those of the unit, as systemctl says them.
func (m *Manager) run(ctx context.Context, args ...string) (string, error) {
	if m.User {
		args = append([]string{"--user"}, args...)
	}
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	cmd.Env = append(cmd.Environ(), "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=", "LC_ALL=C")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("systemd is not on this host: %w", err)
		}
		text := strings.TrimSpace(errOut.String())
		if strings.Contains(text, "not been booted with systemd") {
			return "", errors.New("systemd does not run on this host: services are put under policies where it does; a program without it: policyctl run, policyctl exec")
		}
		if text != "" {
			return out.String(), fmt.Errorf("systemctl %s: %s", strings.Join(args, " "), text)
		}
		return out.String(), fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
	}
	return out.String(), nil
}

// Show asks for a unit. That it does not exist is no error: its LoadState says so.
func (m *Manager) Show(ctx context.Context, unit string) (*Unit, error) {
	out, err := m.run(ctx, "show", "--all", "--no-pager", "--", unit)
	if err != nil {
		return nil, err
	}
	u := &Unit{props: map[string][]string{}}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok && value != "" {
			u.props[key] = append(u.props[key], value)
		}
	}
	u.ID, u.Names = u.Get("Id"), u.List("Names")
	if u.ID == "" {
		return nil, fmt.Errorf("%s: %w: systemd does not say what it is", unit, errs.ErrNotFound)
	}
	return u, nil
}

// Reload has systemd read its units' files again.
func (m *Manager) Reload(ctx context.Context) error {
	_, err := m.run(ctx, "daemon-reload")
	return err
}

// Restart restarts a unit and waits until it is started.
func (m *Manager) Restart(ctx context.Context, unit string) error {
	_, err := m.run(ctx, "restart", "--", unit)
	return err
}

// Instances are the loaded instances of a template.
func (m *Manager) Instances(ctx context.Context, template string) ([]string, error) {
	out, err := m.run(ctx, "list-units", "--all", "--plain", "--no-legend", "--full", "--", strings.Replace(template, "@.", "@*.", 1))
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != template {
			all = append(all, f[0])
		}
	}
	return all, nil
}

// Services are the names of services that begin so, for completion.
func (m *Manager) Services(ctx context.Context, prefix string) ([]string, error) {
	out, err := m.run(ctx, "list-unit-files", "--type=service", "--no-legend", "--full", "--no-pager")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 && strings.HasPrefix(f[0], prefix) {
			all = append(all, f[0])
		}
	}
	return all, nil
}
