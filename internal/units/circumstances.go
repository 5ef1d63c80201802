package units

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// root makes the launcher and the profile seen in a root of the service's own.
func (d *draft) root() error {
	dir := d.s.Get("RootDirectory")
	if (dir == "" || dir == "/") && d.s.Get("RootImage") == "" {
		return nil
	}
	if d.user {
		return fmt.Errorf("%w: RootDirectory= and RootImage= of a user's service: its systemd may not show the launcher in there", errs.ErrInvalid)
	}
	for _, key := range execKeys {
		for _, c := range d.s.Commands[key] {
			if (key == "ExecStart" || d.a.All) && c.Privileged() {
				return fmt.Errorf("%w: systemd mounts no /proc in the root for a command with +, which the launcher needs: %s=%s", errs.ErrInvalid, key, c.String())
			}
		}
	}
	d.inRoot = true
	d.bind(d.f.Launcher, launcherInRoot)
	d.bind(d.f.Profile, profileInRoot)
	d.notes = append(d.notes, "the paths of the policy are those inside the service's root")
	return nil
}

func (d *draft) bind(from, to string) {
	// In quotes a : separates nothing; the backslash is the only escape there is.
	word := func(path string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(path) + `"`
	}
	d.settings = append(d.settings, "BindReadOnlyPaths="+word(from)+":"+word(to))
}

// hidden finds that the unit hides the launcher or the profile from its programs.
func (d *draft) hidden() error {
	if d.inRoot {
		return nil
	}
	for _, path := range []string{d.f.Launcher, d.f.Profile} {
		for _, p := range d.s.List("InaccessiblePaths") {
			if beneath(path, strings.TrimLeft(p, "-+")) {
				return fmt.Errorf("%w: InaccessiblePaths=%s hides %s, which it is started by", errs.ErrInvalid, p, path)
			}
		}
		for _, p := range d.s.List("TemporaryFileSystem") {
			if at, _, _ := strings.Cut(p, ":"); beneath(path, at) {
				d.bind(path, path)
			}
		}
		if d.s.Get("ProtectHome") != "no" && d.s.Get("ProtectHome") != "read-only" && d.s.Get("ProtectHome") != "" {
			for _, home := range []string{"/home", "/root", "/run/user"} {
				if beneath(path, home) {
					return fmt.Errorf("%w: ProtectHome=%s hides %s, which it is started by", errs.ErrInvalid, d.s.Get("ProtectHome"), path)
				}
			}
		}
	}
	if !d.user {
		if err := forEverybody(d.f.Launcher); err != nil {
			return err
		}
	}
	return nil
}

func beneath(path, dir string) bool {
	dir = filepath.Clean(dir)
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// forEverybody holds that any user can execute the launcher.
func forEverybody(path string) error {
	for at := path; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		if st.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%w: the service's user cannot execute %s, since %s has the mode %04o", errs.ErrInvalid, path, at, st.Mode().Perm())
		}
		if at == "/" {
			return nil
		}
	}
}

// smack has systemd give the policy's label, since services' users cannot.
func (d *draft) smack() error {
	if d.a.Label == "" {
		return nil
	}
	if d.user {
		return fmt.Errorf("%w: the policy wants the Smack label %q, which a user's systemd cannot give", errs.ErrInvalid, d.a.Label)
	}
	for _, key := range execKeys {
		if key != "ExecStart" && !d.a.All {
			continue
		}
		for _, c := range d.s.Commands[key] {
			if c.Privileged() {
				return fmt.Errorf("%w: the policy wants the Smack label %q, and systemd labels no command with the prefix +: %s=%s", errs.ErrInvalid, d.a.Label, key, c.String())
			}
		}
	}
	if have := strings.TrimLeft(d.s.Get("SmackProcessLabel"), "-"); have != "" && have != d.a.Label {
		d.notes = append(d.notes, fmt.Sprintf("SmackProcessLabel=%s becomes %s, as the policy says", have, d.a.Label))
	}
	d.settings = append(d.settings, "SmackProcessLabel="+literal(d.a.Label, false))
	return nil
}

var landlockCalls = []string{"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}

// filters lets the launcher through what the unit forbids its programs, where that
// gives them no way to more than they had.
func (d *draft) filters() error {
	if calls := d.s.List("SystemCallFilter"); len(calls) > 0 {
		calls[0] = strings.TrimSpace(calls[0])
		forbids := strings.HasPrefix(calls[0], "~")
		calls[0] = strings.TrimPrefix(calls[0], "~")
		for _, c := range landlockCalls {
			named := slices.ContainsFunc(calls, func(s string) bool { name, _, _ := strings.Cut(s, ":"); return name == c })
			switch {
			case forbids && named:
				return fmt.Errorf("%w: its SystemCallFilter= forbids %s, by which it is confined", errs.ErrInvalid, c)
			case !forbids: // named or not: what systemd says may come of a drop-in of ours
				d.settings = append(d.settings, "SystemCallFilter="+c)
			}
		}
	}
	if len(d.s.List("NoExecPaths")) > 0 {
		d.settings = append(d.settings, "ExecPaths="+literal(d.f.Launcher, false))
	}
	for _, key := range []string{"AppArmorProfile", "SELinuxContext"} {
		if v := d.s.Get(key); v != "" {
			d.notes = append(d.notes, fmt.Sprintf("%s=%s is that of the launcher too: it must let the launcher execute the program", key, v))
		}
	}
	return nil
}

// tell says what changes for the service.
func (d *draft) tell() {
	if !d.updated() {
		d.notes = append(d.notes, "DefaultDependencies=no: it may start before policyd can, so that it takes the profile that is there; a newer version takes `policyctl attach` again, or --restart-changed")
	}
	if !d.s.Is("NoNewPrivileges") {
		d.notes = append(d.notes, "no_new_privs is set with the policy: programs that it starts gain nothing by setuid bits or file capabilities")
	}
	var open []string
	for _, key := range execKeys {
		if key != "ExecStart" && !d.a.All && len(d.s.Commands[key]) > 0 {
			open = append(open, key+"=")
		}
	}
	if len(open) > 0 {
		d.notes = append(d.notes, "not confined: "+strings.Join(open, ", ")+" (--all-commands)")
	}
	if d.s.Get("Type") == "exec" {
		d.notes = append(d.notes, "Type=exec is satisfied once the launcher runs: that the program cannot be executed fails the unit a moment later")
	}
}
