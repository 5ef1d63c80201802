package spawn

import (
	"fmt"
	"path/filepath"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// ExplainExec tells why exec of a program (an absolute path) is refused under a
// profile: which file of the chain program, #! interpreter, ELF interpreter
// lacks which right in which layer. "" when none does, as far as the files can
// be read. It is for words after a refusal; the kernel decides.
func ExplainExec(p *profile.Profile, path string) string { return explainExec(p, nil, path) }

// explainExec is ExplainExec with the files looked at as the program's user.
func explainExec(p *profile.Profile, c *Credential, path string) string {
	resolved, err := resolve(p)
	if err != nil {
		return ""
	}
	var parts []string
	for _, l := range execChain(c, path) {
		if l.real == "" {
			continue
		}
		if why := explainFile(resolved, l); why != "" {
			parts = append(parts, why)
		}
	}
	return strings.Join(parts, "; ")
}

func explainFile(p *profile.Profile, l link) string {
	d := p.DecidePath(l.real, profile.FSExecute|profile.FSReadFile)
	if d.Allowed {
		return ""
	}
	var layers []string
	for _, i := range d.Unfulfilled.Layers() {
		layers = append(layers, fmt.Sprintf("layer %q lacks %s", p.Layers[i].Name, strings.Join(profile.FS.Names(d.Unfulfilled.At(i)), ", ")))
	}
	file := fmt.Sprintf("%s %q", l.role, l.path)
	if l.real != l.path {
		file += fmt.Sprintf(" (%s)", l.real)
	}
	return file + ": " + strings.Join(layers, ", ")
}

// resolve gives the profile with the real paths of this host, as its rulesets
// were built; rows whose path is not there are left out.
func resolve(p *profile.Profile) (*profile.Profile, error) {
	b := profile.NewBuilder(p.Layers)
	for i := range p.Paths {
		row := &p.Paths[i]
		real, err := filepath.EvalSymlinks(row.Path)
		if err != nil {
			continue
		}
		for l, access := range row.Access {
			if access != 0 {
				b.AddPath(l, real, access&^profile.QuietRule, access&profile.QuietRule != 0, profile.Skip)
			}
		}
	}
	return b.Build()
}
