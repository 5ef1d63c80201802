package exchange

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// Export is a policy as landlockconfig files.
type Export struct {
	Configs []*Config // one for each layer, in their order
	Losses  []string  // what the format cannot say
	Remarks []string  // what is not kept and confines nothing
}

// ExportConfig makes landlockconfig files of a policy: its own rules as they are
// written, with their variables, and what the profile compiled of it grants
// beside them (fragments). set are the parameters the profile was compiled with.
// The error tells of a layer of which nothing would be left.
func ExportConfig(p *apiv1.LandlockPolicy, compiled *profile.Profile, set map[string]string) (*Export, error) {
	spec := p.GetSpec()
	if len(spec.GetLayers()) != len(compiled.Layers) {
		return nil, fmt.Errorf("%w: %d layers in the policy, %d in its profile", errs.ErrInvalid, len(spec.GetLayers()), len(compiled.Layers))
	}
	e := &exporter{Export: &Export{}, spec: spec, profile: compiled, variables: map[string][]string{}}
	for name, values := range spec.GetVariables() {
		e.variables[name] = values.GetValues()
	}
	for _, param := range spec.GetParameters() {
		if v, ok := set[param.GetName()]; ok {
			e.variables[param.GetName()] = []string{v}
		}
		e.remark("parameter %s becomes a variable: a value can no longer be given at start", param.GetName())
	}
	for i := range compiled.Layers {
		c, err := e.layer(i)
		if err != nil {
			return nil, err
		}
		e.Configs = append(e.Configs, c)
	}
	e.rest()
	return e.Export, nil
}

type exporter struct {
	*Export
	spec      *apiv1.LandlockSpec
	profile   *profile.Profile
	variables map[string][]string
}

func (e *exporter) lose(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(e.Losses, text) {
		e.Losses = append(e.Losses, text)
	}
}

func (e *exporter) remark(format string, args ...any) {
	e.Remarks = append(e.Remarks, fmt.Sprintf(format, args...))
}

// layer makes the file of a layer.
func (e *exporter) layer(i int) (*Config, error) {
	l := &e.profile.Layers[i]
	c := &Config{Name: l.Name, Ports: map[uint16]profile.Access{}, FS: l.FS & configRights[profile.FS], Net: l.Net & configRights[profile.Net], Scope: l.Scope & configRights[profile.Scope]}
	for kind, lost := range [...]profile.Access{l.FS &^ c.FS, l.Net &^ c.Net, l.Scope &^ c.Scope} {
		if lost != 0 {
			e.lose("layer %s: %s: the format has no such right, so it is not denied", l.Name, profile.Kind(kind).Format(lost))
		}
	}
	if !c.Handles() {
		return nil, fmt.Errorf("%w: layer %s handles nothing that landlockconfig knows: its file would allow everything", errs.ErrInvalid, l.Name)
	}
	if l.QuietFS|l.QuietNet|l.QuietScope != 0 {
		e.lose("layer %s: quiet: denials are logged", l.Name)
	}
	if l.Log != 0 {
		e.lose("layer %s: flags on what is logged", l.Name)
	}
	own := e.ownPaths(c, l, i)
	for _, row := range e.profile.Paths {
		if extra := row.Access[i] &^ profile.QuietRule &^ own[row.Path] & c.FS; extra != 0 {
			c.add(template{literals: []string{row.Path}}, extra, spot{})
		}
	}
	for _, row := range e.profile.Ports {
		if a := row.Access[i] &^ profile.QuietRule & c.Net; a != 0 {
			for port := int(row.First); port <= int(row.Last); port++ {
				c.Ports[uint16(port)] |= a
			}
		}
	}
	return c, nil
}

// ownPaths adds the rules that stand in the policy itself, and gives what they grant, by path.
func (e *exporter) ownPaths(c *Config, l *profile.Layer, i int) map[string]profile.Access {
	granted := map[string]profile.Access{}
	used := map[string]bool{}
	for _, rule := range e.spec.GetLayers()[i].GetPaths() {
		allow := rightsOf(profile.FS, rule.GetAllow(), int(e.spec.GetAbi())) & l.FS
		for _, text := range rule.GetAt() {
			t, err := parseTemplate(text)
			if err != nil || allow&c.FS == 0 {
				continue // rights the format does not have: told already
			}
			if len(t.vars) == 0 {
				if clean, err := cleanPath(t.literals[0], ""); err == nil {
					t.literals[0] = clean
				}
			}
			for _, name := range t.vars {
				used[name] = true
			}
			c.add(t, allow&c.FS, spot{})
			t.expand(e.variables, func(s string) bool {
				if clean, err := cleanPath(s, ""); err == nil {
					granted[clean] |= allow
				}
				return true
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.variables)) {
		switch {
		case !used[name] && (len(e.profile.Layers) > 1 || !isConfigVariable(name)): // another layer's, or nobody's
		case isConfigVariable(name):
			c.extend(name, e.variables[name])
		default:
			e.inline(c, name)
		}
	}
	return granted
}

// inline replaces a variable whose name the format does not allow by its values.
func (e *exporter) inline(c *Config, name string) {
	old := c.Paths
	c.Paths, c.index = nil, nil
	for _, p := range old {
		if !slices.Contains(p.Parent.vars, name) {
			c.add(p.Parent, p.Access, spot{})
			continue
		}
		for _, value := range e.variables[name] {
			t := template{literals: []string{p.Parent.literals[0]}}
			for i, v := range p.Parent.vars {
				next := p.Parent.literals[i+1]
				if v == name {
					t.literals[len(t.literals)-1] += value + next
					continue
				}
				t.vars = append(t.vars, v)
				t.literals = append(t.literals, next)
			}
			c.add(t, p.Access, spot{})
		}
	}
}

// rest lists what of the policy as a whole is lost.
func (e *exporter) rest() {
	if n := len(e.Configs); n > 1 {
		e.lose("%d layers: each becomes a file, and readers that compose the files of a folder allow what any of them allows; to stack them they have to be applied one after the other", n)
	}
	if !e.profile.Degrade {
		e.lose("enforcement: required: on a kernel that lacks rights landlockconfig goes on without them")
	}
	if must, example := e.count(func(r *profile.PathRow) bool { return r.Missing == profile.Fail }); must > 0 {
		e.lose("missing: fail, of %d paths (%s): landlockconfig skips paths that do not exist", must, example)
	}
	if bound, example := e.count(func(r *profile.PathRow) bool { return r.Within > 0 }); bound > 0 {
		e.lose("within, of %d paths (%s): symbolic links may lead out of the folder", bound, example)
	}
	process := e.spec.GetProcess()
	var settings []string
	for name, set := range map[string]bool{
		"smackLabel": process.GetSmackLabel() != "", "umask": process.GetUmask() != "",
		"limits": len(process.GetLimits()) > 0, "environment": len(process.GetEnvironment()) > 0,
	} {
		if set {
			settings = append(settings, name)
		}
	}
	if len(settings) > 0 {
		slices.Sort(settings)
		e.lose("process: %s", strings.Join(settings, ", "))
	}
	e.remark("names, labels and descriptions are not kept")
}

// count counts rows, and gives the first as an example.
func (e *exporter) count(is func(*profile.PathRow) bool) (n int, example string) {
	for i := range e.profile.Paths {
		if row := &e.profile.Paths[i]; is(row) {
			if n++; n == 1 {
				example = strconv.Quote(clip(row.Path))
			}
		}
	}
	return n, example
}

// rightsOf reads names, groups and masks of a checked policy.
func rightsOf(kind profile.Kind, names []string, abi int) (access profile.Access) {
	for _, name := range names {
		if right, ok := profile.RightByName(kind, name); ok {
			access |= right.Bit
		} else if group, ok := profile.ExpandGroup(kind, name, abi); ok {
			access |= group
		} else if mask, err := strconv.ParseUint(strings.TrimPrefix(name, "0x"), 16, 31); err == nil {
			access |= profile.Access(mask)
		}
	}
	return access
}
