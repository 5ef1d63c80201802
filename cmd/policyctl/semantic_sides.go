package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

// semanticSide is one policy of diff --semantic, before its parameters have
// values: one of policyd, one in a file, a compiled profile, or none at all.
type semanticSide struct {
	what string // as on the command line
	none bool   // there is no policy: all is allowed

	policy *apiv1.LandlockPolicy // nil of a profile and of none
	ref    string                // of a version in policyd, by number
	files  *parsed               // of a policy in files
	doc    *policy.Document
	ready  *compiled // of a profile
}

// comparison are two sides; with byName they are of folders with several.
type comparison struct {
	sides  [2]*semanticSide
	byName bool
}

// comparisons loads both arguments and pairs what they hold: one with one, or by
// their names where one of them has several.
func (a *app) comparisons(ctx context.Context, args []string) ([]comparison, error) {
	var all [2][]*semanticSide
	for i, what := range args {
		var err error
		if all[i], err = a.semanticSides(ctx, what); err != nil {
			return nil, named(what, err)
		}
	}
	if all[0][0].none && all[1][0].none {
		return nil, cli.Usage(errors.New("there is no policy on either side"))
	}
	if len(all[0]) == 1 && len(all[1]) == 1 {
		return []comparison{{sides: [2]*semanticSide{all[0][0], all[1][0]}}}, nil
	}
	byName := map[string]*comparison{}
	for i, sides := range all {
		for _, s := range sides {
			switch {
			case s.none:
				continue
			case s.doc == nil:
				return nil, named(args[1-i], severalPolicies(all[1-i][0].files.policies()))
			case byName[s.doc.Name] == nil:
				byName[s.doc.Name] = &comparison{byName: true}
			}
			c := byName[s.doc.Name]
			if c.sides[i] != nil {
				return nil, named(s.what, fmt.Errorf("policy %s stands there twice", s.doc.Name))
			}
			c.sides[i] = s
		}
	}
	var out []comparison
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		c := byName[name]
		for i := range c.sides {
			if c.sides[i] == nil {
				c.sides[i] = &semanticSide{what: args[i], none: true}
			}
		}
		out = append(out, *c)
	}
	return out, nil
}

// semanticSides loads one argument: a compiled profile by its first byte, YAML from
// a file or folder, the null device for no policy, else a version from policyd.
func (a *app) semanticSides(ctx context.Context, what string) ([]*semanticSide, error) {
	if !isProfileOrFile(what) {
		kind, ref := splitKind(what)
		if kind != policy.KindPolicy {
			return nil, errors.New("a fragment allows nothing by itself: compare policies that include it, or leave out --semantic")
		}
		v, err := a.version(ctx, kind, ref)
		if err != nil {
			return nil, fileHint(what, "write ./"+what, err)
		}
		// By number from here on: the newest version may be another one soon.
		ref = fmt.Sprintf("%s@%d", v.GetInfo().GetName(), v.GetInfo().GetNumber())
		return []*semanticSide{{what: what, ref: ref, policy: v.GetResource().GetLandlockPolicy()}}, nil
	}
	if isNull(what) {
		return []*semanticSide{{what: what, none: true}}, nil
	}
	binary, err := a.beginsAsProfile(what)
	if err != nil {
		return nil, err
	}
	if binary {
		c, err := a.readProfile(what)
		return []*semanticSide{{what: what, ready: c}}, err
	}
	p, err := a.parse([]string{what})
	if err != nil {
		return nil, err
	}
	if err := a.refuse(p); err != nil {
		if st, serr := os.Stat(what); serr == nil && st.Size() == 0 {
			return nil, &cli.Exit{Code: cli.ExitRefused, Err: fmt.Errorf("%s: the file is empty; %s stands for no policy", what, os.DevNull)}
		}
		return nil, err
	}
	var out []*semanticSide
	for _, d := range p.policies() {
		out = append(out, &semanticSide{what: what, files: p, doc: d, policy: d.Resource.GetLandlockPolicy()})
	}
	if out == nil {
		return nil, errNoPolicy
	}
	return out, nil
}

// isNull tells whether a name is that of the null device, which stands for no
// policy. An empty file does not: it is what a failed command leaves behind.
func isNull(name string) bool {
	st := unix.Stat_t{}
	return unix.Stat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

func (s *semanticSide) compile(ctx context.Context, a *app, set map[string]string) (*compiled, error) {
	switch {
	case s.none:
		return &compiled{name: "no policy", profile: &profile.Profile{ABI: 1}}, nil
	case s.ready != nil:
		return s.ready, nil
	case s.doc != nil:
		return s.files.compile(s.doc, set)
	}
	return a.fetch(ctx, s.ref, set, asWritten, true)
}

// title is what a side is called in the answer: a file by its name, since two may
// hold policies of one name.
func (s *semanticSide) title(byName bool) string {
	switch {
	case s.none:
		return os.DevNull
	case s.doc != nil && byName:
		return s.what + ": " + s.doc.Name
	case s.ref != "":
		return s.ref
	}
	return s.what
}

// parameter gives a parameter of the policy, and whether it has a default.
func (s *semanticSide) parameter(name string) (p *apiv1.Parameter, has bool) {
	for _, p := range s.policy.GetSpec().GetParameters() {
		if p.GetName() == name {
			return p, s.policy.GetSpec().GetVariables()[name] != nil
		}
	}
	return nil, false
}

// declared gives the values of parameters that the policy has.
func (s *semanticSide) declared(sets ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, set := range sets {
		for name, value := range set {
			if p, _ := s.parameter(name); p != nil {
				out[name] = value
			}
		}
	}
	return out
}

// unusedValues refuses a value that no policy has a parameter for.
func unusedValues(all []comparison, args []string, set map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		used := func(c comparison) bool {
			first, _ := c.sides[0].parameter(name)
			second, _ := c.sides[1].parameter(name)
			return first != nil || second != nil
		}
		if !slices.ContainsFunc(all, used) {
			return cli.Usage(fmt.Errorf("--set %s: neither %s nor %s has that parameter", name, args[0], args[1]))
		}
	}
	return nil
}

// values invents values for parameters that have none, neither in set nor as the
// default of both: in each round another of the folders that `within` names, in a
// folder of the parameter's own, so that no rule meets it that is not above it
// for all values there. Both policies get the same.
func (c *comparison) values(set map[string]string) ([]map[string]string, error) {
	choices := map[string][]string{}
	rounds := 1
	for _, s := range c.sides {
		for _, p := range s.policy.GetSpec().GetParameters() {
			name := p.GetName()
			_, given := set[name]
			if _, has := s.parameter(name); has || given || choices[name] != nil {
				continue
			}
			if choices[name] = c.choices(name); choices[name] == nil {
				return nil, fmt.Errorf("parameter %s: no value is within what both policies allow for it: give one with --set", name)
			}
			rounds = max(rounds, len(choices[name]))
		}
	}
	out := make([]map[string]string, rounds)
	for i := range out {
		out[i] = map[string]string{}
		for name, values := range choices {
			out[i][name] = values[min(i, len(values)-1)]
		}
	}
	return out, nil
}

func (c *comparison) choices(name string) (out []string) {
	var within [2][]string
	for i, s := range c.sides {
		p, _ := s.parameter(name)
		within[i] = p.GetWithin()
	}
	fits := func(value string, in []string) bool {
		return len(in) == 0 || slices.ContainsFunc(in, func(w string) bool {
			return strings.HasPrefix(value, strings.TrimSuffix(w, "/")+"/")
		})
	}
	folders := slices.Concat(within[0], within[1])
	if len(folders) == 0 {
		folders = []string{"/"}
	}
	for _, w := range folders {
		value := path.Join(w, "parameter-"+name)
		if fits(value, within[0]) && fits(value, within[1]) && !slices.Contains(out, value) {
			out = append(out, value)
		}
	}
	return out
}
