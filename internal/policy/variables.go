package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// unset stands for a parameter without a value while a document is checked.
const unset = "/parameter"

// variables checks the sets and parameters of a document and gives the values
// of each name. A parameter without a value of its own gets a stand-in, so that
// every path can be checked.
func (r *reporter) variables(sets map[string]*apiv1.StringList, params []*apiv1.Parameter, p *place) map[string][]string {
	values := make(map[string][]string, len(sets)+len(params))
	at := p.key("variables")
	if len(sets)+len(params) > MaxVariables {
		r.addf(codeTooLarge, &at, "%d variables and parameters, at most %d", len(sets)+len(params), MaxVariables)
		return values
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		here := at.key(name)
		if !isVariableName(name) {
			r.addf(codeBadName, &here, "variable %q: a name is letters, digits and _, at most %d, and begins with no digit", clip(name), MaxNameBytes)
			continue
		}
		set := sets[name].GetValues()
		values[name] = set
		if len(set) == 0 {
			r.addf(codeBadValue, &here, "variable %s has no member; a value to be given at start is a parameter", name)
		}
		if len(set) > MaxMembers {
			r.addf(codeTooLarge, &here, "variable %s has %d members, at most %d", name, len(set), MaxMembers)
			values[name] = nil
			continue
		}
		for i, v := range set {
			if err := checkMember(v); err != nil {
				member := here.at(i)
				r.addf(codeBadValue, &member, "variable %s: %v", name, err)
			}
		}
	}
	at = p.key("parameters")
	seen := make(map[string]bool, len(params))
	for i, param := range params {
		here := at.at(i)
		name := param.GetName()
		switch {
		case !isVariableName(name):
			r.addf(codeBadName, &here, "parameter %q: a name is letters, digits and _, at most %d, and begins with no digit", clip(name), MaxNameBytes)
			continue
		case seen[name]:
			r.addf(codeDuplicateName, &here, "parameter %s is declared twice", name)
			continue
		}
		seen[name] = true
		within := here.key("within")
		if len(param.GetWithin()) > MaxWithin {
			r.addf(codeTooLarge, &within, "%d folders, at most %d", len(param.GetWithin()), MaxWithin)
			continue
		}
		for j, dir := range param.GetWithin() {
			if _, err := cleanPath(dir); err != nil {
				member := within.at(j)
				r.addf(codeBadPath, &member, "%v", err)
			}
		}
		set, ok := values[name]
		if !ok {
			values[name] = []string{standIn(param)}
			continue
		}
		for _, v := range set {
			if _, _, err := parameterValue(param, v); err != nil {
				r.addf(codeBadParameter, &here, "the default of parameter %s: %v", name, err)
				break
			}
		}
	}
	return values
}

func standIn(param *apiv1.Parameter) string {
	if w := param.GetWithin(); len(w) > 0 {
		return w[0]
	}
	return unset
}

// checkMember checks a member of a variable: a path or a part of one.
func checkMember(v string) error {
	switch {
	case v == "":
		return fmt.Errorf("a member is empty")
	case len(v) > MaxPathBytes:
		return fmt.Errorf("member of %d bytes, at most %d: %q", len(v), MaxPathBytes, clip(v))
	case strings.IndexByte(v, 0) >= 0:
		return fmt.Errorf("member %q holds a NUL", clip(v))
	}
	for part := range strings.SplitSeq(v, "/") {
		if part == ".." {
			return fmt.Errorf("member %q climbs: a .. leads out", clip(v))
		}
	}
	return nil
}

// parameterValue checks a value given for a parameter and gives the clean path,
// and the folder of within it lies in: the longest; "" when the parameter has no within.
func parameterValue(param *apiv1.Parameter, v string) (path, within string, err error) {
	clean, err := cleanPath(v)
	if err != nil {
		return "", "", err
	}
	if len(param.GetWithin()) == 0 {
		return clean, "", nil
	}
	for _, w := range param.GetWithin() {
		if dir, err := cleanPath(w); err == nil && beneath(clean, dir) && len(dir) > len(within) {
			within = dir
		}
	}
	if within != "" {
		return clean, within, nil
	}
	return "", "", fmt.Errorf("%q is not within %s", clip(v), clip(strings.Join(param.GetWithin(), ", ")))
}

// CheckParameters says what is wrong with values given for a policy's parameters; the error is an [*Errors]. A policy
// that compiles with other values and passes compiles with these.
func CheckParameters(p *apiv1.LandlockPolicy, given map[string]string) error {
	r := reporter{errors: &Errors{}}
	at := (*place)(nil).key("spec")
	r.setParameters(map[string][]string{}, p.GetSpec(), given, &at)
	return r.errors.err()
}

// setParameters puts the values given at start in place of the stand-ins. It gives the folders they must lie in.
func (r *reporter) setParameters(values map[string][]string, spec *apiv1.LandlockSpec, given map[string]string, p *place) map[string]string {
	bounds := make(map[string]string)
	declared := make([]string, 0, len(spec.GetParameters()))
	at := p.key("parameters")
	for i, param := range spec.GetParameters() {
		name := param.GetName()
		declared = append(declared, name)
		here := at.at(i)
		v, ok := given[name]
		if !ok {
			if _, ok := spec.GetVariables()[name]; !ok {
				r.addf(codeBadParameter, &here, "parameter %s needs a value (--set %s=PATH)", name, name)
			}
			continue
		}
		clean, within, err := parameterValue(param, v)
		if err != nil {
			r.addf(codeBadParameter, &here, "parameter %s: %v", name, err)
			continue
		}
		values[name] = []string{clean}
		if within != "" {
			bounds[name] = within
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(declared, name) {
			r.addf(codeBadParameter, &at, "the policy has no parameter %q%s", clip(name), suggest(name, declared))
		}
	}
	return bounds
}
