package units

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// execKeys are the keys with commands, in the order systemd runs them.
var execKeys = []string{"ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"}

// Service is a service as it is without policyd's drop-in.
type Service struct {
	*Unit
	Name     string               // its own name; a template's for a template
	Commands map[string][]Command // by key
	// Identifier is its own SyslogIdentifier=; "" for the name of each program. systemd shows that of the drop-in too.
	Identifier string
}

// Load asks systemd for a service and reads its commands from its files. A service
// that cannot be attached is an error with the reason and the way out.
func (m *Manager) Load(ctx context.Context, name string) (*Service, error) {
	ask := name
	if IsTemplate(name) {
		ask = anyInstance(name)
	}
	u, err := m.Show(ctx, ask)
	if err != nil {
		return nil, err
	}
	s := &Service{Unit: u, Name: u.ID, Commands: map[string][]Command{}}
	if IsTemplate(name) {
		s.Name = TemplateOf(u.ID)
	}
	if err := attachable(name, u); err != nil {
		return nil, err
	}
	settings, err := readFiles(u)
	if err != nil {
		return nil, err
	}
	for _, key := range execKeys {
		if s.Commands[key], err = Commands(settings, key); err != nil {
			return nil, err
		}
	}
	s.Identifier = lastOf(settings, "SyslogIdentifier")
	if len(s.Commands["ExecStart"]) == 0 {
		return nil, fmt.Errorf("%s: %w: it has no ExecStart=, so that there is nothing to confine", name, errs.ErrInvalid)
	}
	return s, nil
}

// attachable refuses what has no files of its own to add to.
func attachable(name string, u *Unit) error {
	fragment := u.Get("FragmentPath")
	prefix, _, _ := strings.Cut(strings.TrimSuffix(u.ID, ".service"), "@")
	switch state := u.Get("LoadState"); {
	case strings.HasSuffix(prefix, "-"):
		return fmt.Errorf("%s: %w: its drop-ins are those of every unit whose name begins with %s, and would replace their commands", name, errs.ErrInvalid, prefix)
	case state == "masked":
		return fmt.Errorf("%s: %w: it is masked (systemctl unmask %s)", name, errs.ErrInvalid, name)
	case state == "not-found" || fragment == "" && state != "loaded":
		return fmt.Errorf("%s: %w: systemd has no such unit", name, errs.ErrNotFound)
	case state == "error" || state == "bad-setting" && fragment == "":
		return fmt.Errorf("%s: %w: systemd cannot load it: %s", name, errs.ErrInvalid, u.Get("LoadError"))
	case u.Is("Transient") || strings.Contains(fragment, "/systemd/transient/"):
		return fmt.Errorf("%s: %w: it is transient (systemd-run): start its program by `policyctl exec` instead", name, errs.ErrInvalid)
	case strings.Contains(fragment, "/systemd/generator"):
		return fmt.Errorf("%s: %w: a generator makes it anew at each reload (of %s), and its command may then be another: write a unit of your own, or attach what it starts",
			name, errs.ErrInvalid, orUnknown(u.Get("SourcePath")))
	case fragment == "":
		return fmt.Errorf("%s: %w: it has no file", name, errs.ErrInvalid)
	}
	return nil
}

func orUnknown(s string) string {
	if s == "" {
		return "an unknown source"
	}
	return s
}

// readFiles reads a unit's file and its drop-ins but ours, in systemd's order.
func readFiles(u *Unit) ([]Setting, error) {
	var all []Setting
	for _, path := range append([]string{u.Get("FragmentPath")}, u.List("DropInPaths")...) {
		if filepath.Base(path) == DropIn {
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && path != u.Get("FragmentPath") {
			continue // removed since systemd has looked
		}
		if err != nil {
			return nil, err
		}
		s, err := ParseFile(path, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, s...)
	}
	return all, nil
}

// Effective tells whether systemd starts what the drop-in says, all lines of it: a
// drop-in that is read later may have the last word.
func (u *Unit) Effective(text string) error {
	settings, err := ParseFile(DropIn, text)
	if err != nil {
		return err
	}
	want, err := Commands(settings, "ExecStart")
	if err != nil {
		return err
	}
	lines := u.Lines("ExecStart")
	for i, l := range lines {
		if i < len(want) && want[i].launches(l) {
			continue
		}
		return fmt.Errorf("%w: systemd would start %s: a drop-in that is read later sets ExecStart= (they are read in this order: %s)", ErrNotEffective, l, strings.Join(u.List("DropInPaths"), ", "))
	}
	if len(lines) != len(want) {
		return fmt.Errorf("%w: systemd has %d commands of %d (the journal says why)", ErrNotEffective, len(lines), len(want))
	}
	return nil
}

// launches tells that a line of systemctl show is this launcher, for the same unit and
// profile: a template's drop-in may have the last word on an instance that has its own.
func (c *Command) launches(line string) bool {
	words := unquoteList(c.Rest)
	words = words[:min(len(words), 5)] // unit --unit NAME --profile FILE
	start := strings.ReplaceAll(c.Program+" "+strings.Join(words, " ")+" ", "%%", "%")
	if c.expands() {
		start = strings.ReplaceAll(start, "$$", "$")
	}
	head := "{ path=" + c.Program + " ; argv[]="
	return strings.HasPrefix(line, head+start) || strings.HasPrefix(line, head+strings.ReplaceAll(start, `\`, `\\`))
}

// ErrNotEffective: a drop-in is there, but systemd starts something else.
var ErrNotEffective = errors.New("the drop-in does not hold")
