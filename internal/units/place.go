package units

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// DropIn is the name of the drop-in's file. Drop-ins are read in order of their names
// and the last Exec lines hold, so that it comes after override.conf, which is what
// systemctl edit writes.
const DropIn = "zz-policyd.conf"

// Place is where the files of attached units are.
type Place struct {
	Persistent, Runtime string // folders of units: of drop-ins that a reboot keeps, and not
	State, Run          string // folders of profiles, likewise
}

// PlaceOf gives the folders of the host, or of the calling user's own systemd.
// Services' users must read the profiles, so that these are not beside the store, which
// nobody but policyd may look into.
func PlaceOf(user bool) (*Place, error) {
	if !user {
		return &Place{
			Persistent: "/etc/systemd/system", Runtime: "/run/systemd/system",
			State: "/var/lib/policyd-units", Run: "/run/policyd-units",
		}, nil
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) {
		return nil, errors.New("$XDG_RUNTIME_DIR is not set: --user wants the session of a user (loginctl enable-linger, or machinectl shell USER@)")
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		state = filepath.Join(home, ".local/state")
	}
	return &Place{
		Persistent: filepath.Join(config, "systemd/user"), Runtime: filepath.Join(runtime, "systemd/user"),
		State: filepath.Join(state, "policyd-units"), Run: filepath.Join(runtime, "policyd-units"),
	}, nil
}

// DropIn is the path of a unit's drop-in.
func (p *Place) DropIn(unit string, runtime bool) string {
	dir := p.Persistent
	if runtime {
		dir = p.Runtime
	}
	return filepath.Join(dir, unit+".d", DropIn)
}

// Profile is the path of a unit's profile (enforce/unit).
func (p *Place) Profile(unit string, runtime bool) string { return p.in(unit, runtime) + ".profile" }

// Copy is the path of the drop-in as it was written, to show what was changed by hand.
func (p *Place) Copy(unit string, runtime bool) string { return p.in(unit, runtime) + ".conf" }

func (p *Place) in(unit string, runtime bool) string {
	if runtime {
		return filepath.Join(p.Run, unit)
	}
	return filepath.Join(p.State, unit)
}

// History is the path of what is known of a unit's profiles since the boot (see [Change]).
func (p *Place) History(unit string) string { return filepath.Join(p.Run, "history", unit+".json") }

// Program gives the path of one of policyd's programs: beside the running one.
func Program(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	// Where a package has put it, and not what a link leads to today.
	if at := filepath.Join("/usr/bin", name); same(at, path) {
		path = at
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", name, err)
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s: %w: not executable", path, errs.ErrInvalid)
	}
	return path, nil
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\@-]*)?\.([a-z]+)$`)

// ServiceName makes the name of a service of what was typed: a suffix is added, a
// path is taken for its file's name. Errors wrap errs.ErrInvalid.
func ServiceName(s string) (string, error) {
	name := filepath.Base(s)
	kinds := []string{".service", ".socket", ".target", ".device", ".mount", ".automount", ".swap", ".timer", ".path", ".slice", ".scope"}
	known := false
	for _, k := range kinds {
		known = known || strings.HasSuffix(name, k)
	}
	if !known {
		name += ".service"
	}
	switch {
	case s == "" || !unitName.MatchString(name) || len(name) > 240:
		return "", fmt.Errorf("%q is no name of a unit: %w", s, errs.ErrInvalid)
	case !strings.HasSuffix(name, ".service"):
		base, _, _ := strings.Cut(name, ".")
		return "", fmt.Errorf("%s: %w: only services start programs under a policy (%s.service?)", name, errs.ErrInvalid, base)
	case strings.HasPrefix(name, "policyd"):
		return "", fmt.Errorf("%s: %w: policyd's own units are not put under its policies", name, errs.ErrInvalid)
	}
	return name, nil
}

// IsTemplate tells a template (foo@.service) from an instance (foo@x.service).
func IsTemplate(unit string) bool { return strings.Contains(unit, "@.") }

// TemplateOf is the template of an instance; of anything else it is the name itself.
func TemplateOf(unit string) string {
	if prefix, _, ok := strings.Cut(unit, "@"); ok {
		return prefix + "@.service"
	}
	return unit
}

// anyInstance is an instance of a template, for systemd tells nothing of templates.
func anyInstance(unit string) string {
	return strings.Replace(unit, "@.", "@policyd-attach.", 1)
}

// All gives the attached units in order of their names. Where a unit has a drop-in
// in both places, systemd reads the persistent one.
func (p *Place) All() ([]*Present, error) {
	var all []*Present
	seen := map[string]bool{}
	for _, dir := range []string{p.Persistent, p.Runtime} {
		found, err := filepath.Glob(filepath.Join(dir, "*.service.d", DropIn))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			name := strings.TrimSuffix(filepath.Base(filepath.Dir(path)), ".d")
			if seen[name] {
				continue
			}
			seen[name] = true
			d, err := p.Find(name)
			if err != nil {
				return nil, err
			}
			if d != nil {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(x, y *Present) int { return strings.Compare(x.Unit, y.Unit) })
	return all, nil
}
