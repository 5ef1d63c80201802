package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// limitNames are the resource limits of process.limits, as in setrlimit(2).
var limitNames = []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"}

// process checks spec.process.
func (r *reporter) process(m *apiv1.Process, p *place) {
	if m == nil {
		return
	}
	at := p.key("process")
	if label := m.GetSmackLabel(); label != "" {
		if err := checkSmackLabel(label); err != nil {
			here := at.key("smackLabel")
			r.addf(codeBadValue, &here, "Smack label %q %v", clip(label), err)
		}
	}
	if mask := m.GetUmask(); mask != "" {
		if v, err := strconv.ParseUint(mask, 8, 16); err != nil || v > 0o777 || len(mask) > 4 {
			here := at.key("umask")
			r.addf(codeBadValue, &here, "umask %q is not octal, 0000 to 0777", clip(mask))
		}
	}
	limits := at.key("limits")
	for _, name := range slices.Sorted(maps.Keys(m.GetLimits())) {
		here := limits.key(name)
		if !slices.Contains(limitNames, name) {
			r.addf(codeBadValue, &here, "unknown limit %q%s", clip(name), suggest(name, limitNames))
		} else if err := checkLimit(m.GetLimits()[name]); err != nil {
			r.addf(codeBadValue, &here, "limit %s: %v", name, err)
		}
	}
	env := at.key("environment")
	if n := len(m.GetEnvironment()); n > MaxEnvironment {
		r.addf(codeTooLarge, &env, "%d variables, at most %d", n, MaxEnvironment)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetEnvironment())) {
		here := env.key(name)
		v := m.GetEnvironment()[name]
		switch {
		case !isVariableName(name):
			r.addf(codeBadName, &here, "environment variable %q: a name is letters, digits and _, and begins with no digit", clip(name))
		case strings.IndexByte(v, 0) >= 0:
			r.addf(codeBadValue, &here, "the value of %s holds a NUL", name)
		case len(v) > MaxSettingBytes:
			r.addf(codeTooLarge, &here, "value of %d bytes, at most %d", len(v), MaxSettingBytes)
		}
	}
}

// checkSmackLabel holds the kernel's rule (smk_parse_smack, smk_import_entry).
func checkSmackLabel(s string) error {
	switch {
	case len(s) > 255:
		return errors.New("is longer than 255 bytes")
	case s[0] == '-':
		return errors.New("begins with -")
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte(`/"\'`, c) >= 0 {
			return fmt.Errorf("holds %q", s[i:i+1])
		}
	}
	return nil
}

// checkLimit reads a number, "unlimited" or "soft:hard".
func checkLimit(s string) error {
	softText, hardText, both := strings.Cut(s, ":")
	soft, err := parseLimit(softText)
	if err != nil || !both {
		return err
	}
	hard, err := parseLimit(hardText)
	if err != nil {
		return err
	}
	if soft > hard {
		return fmt.Errorf("the soft limit %s is above the hard limit %s", softText, hardText)
	}
	return nil
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return ^uint64(0), nil
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf(`%q is not a number, "soft:hard" or "unlimited"`, clip(s))
	}
	return v, nil
}
