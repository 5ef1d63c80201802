package preflight

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/policy"
)

// Base is the shipped fragment whose purpose is the start of programs. It is
// proposed for all that it grants; others are only mentioned, since they grant
// much besides.
const Base = "std/base"

// Rules are what a layer lacks. Its JSON names are an interface.
type Rules struct {
	Layer   string     `json:"layer"`
	Include []string   `json:"include"` // shipped fragments
	Paths   []PathRule `json:"paths"`   // files that no proposed fragment grants
	Ports   []PortRule `json:"ports"`
}

// PathRule is a rule as in a policy.
type PathRule struct {
	Allow []string `json:"allow"`
	At    []string `json:"at"`
}

// PortRule is a rule for a port; a start needs none.
type PortRule struct {
	Allow []string `json:"allow"`
	Port  uint16   `json:"port"`
}

// Fragment is a shipped fragment as a policy of its own.
type Fragment struct {
	Name   string
	Grants Grants
	own    map[string]bool // paths of its rules
}

// Fragments compiles the shipped fragments. grants makes the decision on one of
// them, alone in a policy that degrades.
func Fragments(grants func(*profile.Profile) (Grants, error)) ([]Fragment, error) {
	var all []Fragment
	for _, d := range policy.StdFragments() {
		spec := d.Resource.GetFragment().GetSpec()
		p := &apiv1.LandlockPolicy{
			Metadata: &apiv1.Metadata{Name: "fragment"},
			Spec: &apiv1.LandlockSpec{
				Abi: spec.GetAbi(), Enforcement: apiv1.Enforcement_ENFORCEMENT_DEGRADE,
				Layers: []*apiv1.Layer{{Name: "fragment", Include: []string{d.Name}}},
			},
		}
		out, err := policy.Compile(p, policy.CompileOptions{})
		if err != nil {
			return nil, fmt.Errorf("fragment %s: %w", d.Name, err)
		}
		f := Fragment{Name: d.Name, own: map[string]bool{}}
		for _, row := range out.Profile.Paths {
			f.own[row.Path] = true
		}
		if f.Grants, err = grants(out.Profile); err != nil {
			return nil, fmt.Errorf("fragment %s: %w", d.Name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// Missing gives the least rules that would grant what was refused, by layer in
// the order of the refusals: files, never their folders.
func (r *Result) Missing(fragments []Fragment) ([]Rules, error) {
	rules, others, err := r.rules(fragments, "")
	for _, note := range others {
		if !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
	return rules, err
}

// Suggested gives the rules with the fragment that is made for a refused
// interpreter, which grants what that opens once it runs too; none where there is
// no such fragment.
func (r *Result) Suggested(fragments []Fragment) ([]Rules, error) {
	var best *Fragment
	most := 0
	for i := range fragments {
		f := &fragments[i]
		n, err := r.interpreters(f)
		if err != nil {
			return nil, err
		}
		if n > most || n == most && n > 0 && len(f.own) < len(best.own) {
			best, most = f, n
		}
	}
	if best == nil {
		return []Rules{}, nil
	}
	rules, _, err := r.rules(fragments, best.Name)
	return rules, err
}

// interpreters counts the refused interpreters that a fragment is made for. env
// is none: it is what finds one.
func (r *Result) interpreters(f *Fragment) (count int, err error) {
	if f.Name == Base {
		return 0, nil
	}
	for i := range r.Needs {
		n := &r.Needs[i]
		name := path.Base(n.Path)
		is := n.Kind == Interpreter && name != "env" || n.Kind == Program && path.Base(n.By) == "env" ||
			n.Kind == Program && strings.HasPrefix(name, path.Base(f.Name))
		if !is || len(n.Layers) == 0 || !f.own[n.Path] && !f.own[n.Real] {
			continue
		}
		refused, err := f.Grants(n.Path, n.access)
		if err != nil {
			return 0, fmt.Errorf("fragment %s: %w", f.Name, err)
		}
		if len(refused) == 0 {
			count++
		}
	}
	return count, nil
}

// rules gives the rules that grant what was refused, with the fragment first for
// all that it grants; others are notes on the other fragments.
func (r *Result) rules(fragments []Fragment, first string) (rules []Rules, others []Note, err error) {
	rules = []Rules{}
	for i := range r.Needs {
		n := &r.Needs[i]
		for _, refusal := range n.Layers {
			at := slices.IndexFunc(rules, func(x Rules) bool { return x.Layer == refusal.Layer })
			if at < 0 {
				at = len(rules)
				rules = append(rules, Rules{Layer: refusal.Layer, Include: []string{}, Paths: []PathRule{}, Ports: []PortRule{}})
			}
			notes, err := rules[at].add(n, refusal.Missing, fragments, first)
			if err != nil {
				return nil, nil, err
			}
			others = append(others, notes...)
		}
	}
	return rules, others, nil
}

func (rules *Rules) add(n *Need, rights []string, fragments []Fragment, first string) (others []Note, err error) {
	access := profile.Access(0)
	for _, name := range rights {
		right, ok := profile.RightByName(profile.FS, name)
		if !ok {
			return nil, fmt.Errorf("right %q: %w", name, errUnknownRight)
		}
		access |= right.Bit
	}
	granting := map[string]bool{}
	for _, f := range fragments {
		if f.Name != Base && f.Name != first && !f.own[n.Path] && !f.own[n.Real] {
			continue
		}
		refused, err := f.Grants(n.Path, access)
		if err != nil {
			return nil, fmt.Errorf("fragment %s: %w", f.Name, err)
		}
		granting[f.Name] = len(refused) == 0
	}
	for _, name := range []string{first, Base} {
		if granting[name] {
			if !slices.Contains(rules.Include, name) {
				rules.Include = append(rules.Include, name)
			}
			return nil, nil
		}
	}
	for _, f := range fragments {
		if granting[f.Name] {
			others = append(others, Note{"fragment", fmt.Sprintf("%s grants %s too, with all else that it is for", f.Name, n.Path)})
		}
	}
	for i := range rules.Paths {
		if p := &rules.Paths[i]; slices.Equal(p.Allow, rights) {
			p.At = append(p.At, n.Path)
			return others, nil
		}
	}
	rules.Paths = append(rules.Paths, PathRule{Allow: rights, At: []string{n.Path}})
	return others, nil
}

var errUnknownRight = errors.New("no right of files")

// Text writes rules as YAML that can be pasted beneath a policy's spec.
func Text(rules []Rules) string {
	var b strings.Builder
	b.WriteString("layers:\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "  - name: %s\n", quote(r.Layer))
		if len(r.Include) > 0 {
			fmt.Fprintf(&b, "    include: [%s]\n", strings.Join(r.Include, ", "))
		}
		if len(r.Paths) > 0 {
			b.WriteString("    paths:\n")
		}
		for _, p := range r.Paths {
			fmt.Fprintf(&b, "      - allow: [%s]\n", strings.Join(p.Allow, ", "))
			if len(p.At) == 1 {
				fmt.Fprintf(&b, "        at: %s\n", quotePath(p.At[0]))
				continue
			}
			b.WriteString("        at:\n")
			for _, path := range p.At {
				fmt.Fprintf(&b, "          - %s\n", quotePath(path))
			}
		}
		if len(r.Ports) > 0 {
			b.WriteString("    ports:\n")
		}
		for _, p := range r.Ports {
			fmt.Fprintf(&b, "      - allow: [%s]\n        port: %d\n", strings.Join(p.Allow, ", "), p.Port)
		}
	}
	return b.String()
}

var plainWord = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./+-]*$`)

// quote writes a string as YAML: JSON's strings are strings there too.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	b, _ := json.Marshal(s) // of a string: never fails
	return string(b)
}

// quotePath makes a path clean, as policies want it, and doubles dollars: one begins a variable.
func quotePath(s string) string { return quote(strings.ReplaceAll(path.Clean(s), "$", "$$")) }
