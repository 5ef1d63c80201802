package server

import (
	"fmt"
	"path"
	"slices"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// smackLabel decides on the label of a start: own is the policy's. An operator of the policy may choose any that a
// process can have; others may when a grant names it and the policy has none. Nothing is started with a label while
// the assigned SmackPolicy is not in force: the label would mean something else.
//
// relabel are the labels that the program may take afterwards: relabelSelf of the SmackPolicy in force. A label of a
// pool is the sandbox's alone and stays, and who may choose among some labels may not get others in this way.
func (s *Server) smackLabel(c *Caller, policyName string, spec *apiv1.SandboxSpec, own string) (label string, pool, relabel []string, err error) {
	if label, pool, err = s.chosenLabel(c, policyName, spec, own); err != nil || label == "" && pool == nil {
		return "", nil, nil, err
	}
	if err := s.host.Labels(); err != nil {
		return "", nil, nil, err
	}
	if pool != nil {
		return "", pool, nil, nil
	}
	if relabel, err = s.host.RelabelSelf(); err != nil {
		return "", nil, nil, err
	}
	if label != own && c.roleFor(policyName) < config.RoleOperator {
		relabel = slices.DeleteFunc(slices.Clone(relabel), func(l string) bool { return !c.mayLabel(policyName, l) })
	}
	return label, nil, relabel, nil
}

// chosenLabel is the label of a start, or the pool it is taken from.
func (s *Server) chosenLabel(c *Caller, policyName string, spec *apiv1.SandboxSpec, own string) (label string, pool []string, err error) {
	label = spec.GetSmackLabel()
	prefix := spec.GetSmackPool()
	switch {
	case label != "" && prefix != "":
		return "", nil, invalidField("spec.smack_pool", "smack_label and smack_pool: only one of them")
	case label == "" && prefix == "":
		return own, nil, nil
	case prefix != "":
		for i := range s.labelPool {
			pool = append(pool, fmt.Sprintf("%s-%d", prefix, i+1))
		}
		if err := checkProcessLabel("spec.smack_pool", pool[len(pool)-1]); err != nil {
			return "", nil, err
		}
	default:
		if err := checkProcessLabel("spec.smack_label", label); err != nil {
			return "", nil, err
		}
		pool = []string{label}
	}
	if c.roleFor(policyName) < config.RoleOperator {
		if own != "" && !slices.Equal(pool, []string{own}) {
			return "", nil, fmt.Errorf("%w: policy %s gives its programs the label %s, and only an operator of it may give another", errs.ErrNotAllowed, policyName, own)
		}
		for _, l := range pool {
			if l != own && !c.mayLabel(policyName, l) {
				return "", nil, fmt.Errorf("%w: to give a sandbox of policy %s the label %s needs the role operator, or sandboxLabels of a role, and %s has neither", errs.ErrNotAllowed, policyName, l, c)
			}
		}
	}
	if prefix == "" {
		pool = nil
	}
	return label, pool, nil
}

// checkProcessLabel refuses what is no label, and labels that no process can have (smk_import_entry, EPERM for them).
func checkProcessLabel(field, label string) error {
	if err := smack.CheckLabel(label); err != nil {
		return invalidField(field, "%v", err)
	}
	if label == smack.Star || label == smack.Web {
		return invalidField(field, "no process can have the label %s", label)
	}
	return nil
}

// mayLabel tells whether a grant for the policy names the label.
func (c *Caller) mayLabel(policyName, label string) bool {
	for i := range c.grants {
		g := &c.grants[i]
		match := func(name string) func(string) bool {
			return func(pattern string) bool {
				ok, err := path.Match(pattern, name)
				return ok && err == nil
			}
		}
		if g.Role >= config.RoleUser && (len(g.Policies) == 0 || slices.ContainsFunc(g.Policies, match(policyName))) &&
			slices.ContainsFunc(g.SandboxLabels, match(label)) {
			return true
		}
	}
	return false
}
