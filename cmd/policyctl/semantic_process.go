package main

import (
	"maps"
	"slices"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
)

// processSettings tells what two policies set differently of the process. That
// is no right, but neither are such policies the same. A compiled profile, which
// knows no places of layers either, does not say it: nothing is compared with one.
func processSettings(sides [2]*compiled) (out []profile.Setting) {
	if sides[0].layers == nil || sides[1].layers == nil {
		return nil
	}
	a, b := processTexts(sides[0].process), processTexts(sides[1].process)
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a[name] != b[name] {
			out = append(out, profile.Setting{Name: "process." + name, First: a[name], Second: b[name]})
		}
	}
	return out
}

// processTexts gives the settings by their names in the text; an empty value of
// the environment is `""`, since that is not the same as none.
func processTexts(p *apiv1.Process) map[string]string {
	out := map[string]string{}
	if p.GetSmackLabel() != "" {
		out["smackLabel"] = p.GetSmackLabel()
	}
	if p.GetUmask() != "" {
		out["umask"] = p.GetUmask()
	}
	for name, limit := range p.GetLimits() {
		out["limits."+name] = limit
	}
	for name, value := range p.GetEnvironment() {
		if value == "" {
			value = `""`
		}
		out["environment."+name] = value
	}
	return out
}
