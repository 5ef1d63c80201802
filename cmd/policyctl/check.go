package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
)

func newCheck(a *app) *cobra.Command {
	var files, sets []string
	var abi int
	cmd := &cobra.Command{
		Use:   "check REF|-f FILE -- open PATH r|w|rw | exec PATH | bind tcp|udp PORT | connect tcp|udp PORT",
		Short: "Say what a policy allows here, and which rule or layer decides",
		Long: "check answers as this host's kernel would for a program started under the policy now: it follows\n" +
			"symbolic links and looks at inodes as the kernel does. It speaks of Landlock alone; file modes and\n" +
			"other security modules may refuse as well.\n\n" +
			"Exit code 0: allowed, 1: refused, 2: no answer (wrong question, or nothing would start at all).",
		Example: "  policyctl check web -- open /etc/shadow r\n" +
			"  policyctl check -f web.yaml -- exec /usr/bin/python3\n" +
			"  policyctl check web@2 -o json -- bind tcp 8080",
		Args: func(cmd *cobra.Command, args []string) error {
			want := 1
			if len(files) > 0 {
				want = 0
			}
			n := cmd.ArgsLenAtDash()
			if n >= 0 && n != want || len(args) < want {
				return refOrFiles(&files)(cmd, args[:max(n, 0)])
			}
			if len(args) == want {
				return fmt.Errorf("the question is missing: %w", decide.ErrQuestion)
			}
			return nil
		},
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			set, err := pairs("--set", sets)
			if err != nil {
				return err
			}
			ref, words := "", args
			if len(files) == 0 {
				ref, words = args[0], args[1:]
			}
			question, err := decide.Parse(words)
			if err != nil {
				return cli.Usage(err)
			}
			sup := landlock.Support{}
			if abi == 0 {
				sup = landlock.Probe()
				if sup.Err != nil {
					return fmt.Errorf("this kernel cannot enforce any policy (--abi N answers for another): %w", sup.Err)
				}
				abi = sup.ABI
			} else if abi < 1 || abi > profile.MaxABI {
				return cli.Usage(fmt.Errorf("--abi %d: want 1 to %d", abi, profile.MaxABI))
			}
			c, err := a.load(cmd.Context(), ref, files, set, false)
			if err != nil {
				return err
			}
			d, err := decide.New(c.profile, c.origins, abi)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if sup.ABI != 0 {
				if err := startable(c, sup); err != nil {
					return err
				}
			}
			v, err := question(d)
			if errors.Is(err, decide.ErrQuestion) {
				return cli.Usage(err)
			}
			if errors.Is(err, os.ErrNotExist) && words[0] == "exec" && !strings.Contains(words[1], "/") {
				return fmt.Errorf("%w in this folder: give the program's path, PATH is not searched", err)
			}
			if err != nil {
				return err
			}
			for _, n := range d.Lost {
				v.Notes = append(v.Notes, "not enforced on a kernel of this ABI: "+n.String())
			}
			return a.verdict(form, c.name, v)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "decide by the policy of this file instead; may be repeated for its fragments")
	f.StringArrayVar(&sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	f.IntVar(&abi, "abi", 0, "decide as a kernel of this Landlock ABI (default: this kernel's)")
	return cmd
}

// startable tells what else keeps a program from being started under a profile
// here. Paths that only policyd may look at are its business.
func startable(c *compiled, sup landlock.Support) error {
	rs, err := landlock.Build(c.profile, sup)
	switch {
	case err == nil:
		rs.Release()
	case !errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w:\n%w", c.name, decide.ErrNotEnforceable, err)
	}
	return nil
}

func (a *app) verdict(form cli.Format, name string, v *decide.Verdict) error {
	var result error
	if !v.Allowed {
		result = &cli.Exit{Code: 1}
	}
	if form != cli.Table {
		for _, c := range v.Checks {
			c.Denied = append([]decide.Denial{}, c.Denied...)
			c.Granted = append([]decide.Grant{}, c.Granted...)
			c.Rights = append([]string{}, c.Rights...)
		}
		v.Notes = append([]string{}, v.Notes...)
		return errors.Join(cli.WriteValue(a.out, form, v), result)
	}
	p := a.painter(a.out)
	word := p.Paint("allowed", cli.Green)
	if !v.Allowed {
		word = p.Paint("refused", cli.Red) + " with " + v.Errno
	}
	fmt.Fprintf(a.out, "%s: %s: %s\n", cli.Clean(name), cli.Clean(v.Question), word)
	if a.quiet {
		return result
	}
	for _, c := range v.Checks {
		a.explainCheck(c)
	}
	for _, n := range v.Notes {
		fmt.Fprintf(a.out, "  note: %s\n", cli.Clean(n))
	}
	return result
}

func (a *app) explainCheck(c *decide.Check) {
	object := c.Object
	if c.Real != "" && c.Real != c.Object {
		object += " -> " + c.Real
	}
	fmt.Fprintf(a.out, "  %s %s asks for %s\n", c.What, cli.Clean(object), strings.Join(c.Rights, ", "))
	for _, d := range c.Denied {
		fmt.Fprintf(a.out, "    layer %s refuses: no rule grants %s\n", d.Layer, strings.Join(d.Missing, ", "))
	}
	for _, g := range c.Granted {
		fmt.Fprintf(a.out, "    layer %s: %s granted by %s%s\n", g.Layer, strings.Join(g.Rights, ", "), cli.Clean(g.Rule), cli.Clean(place(g)))
	}
	if len(c.Denied)+len(c.Granted) == 0 {
		fmt.Fprintf(a.out, "    no layer handles that, so none refuses it\n")
	}
}

// place says where a rule stands: " (web.yaml:12, fragment std/base)".
func place(g decide.Grant) string {
	var parts []string
	switch {
	case g.File != "" && g.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", g.File, g.Line))
	case g.Field != "":
		parts = append(parts, g.Field)
	}
	if g.Fragment != "" {
		parts = append(parts, "fragment "+g.Fragment)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
