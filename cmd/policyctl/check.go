package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
)

// decision is what check and explain decide by.
type decision struct {
	files, sets []string
	profile     string
	abi         int
	lexical     bool
}

func (d *decision) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&d.files, "file", "f", nil, "decide by the policy of this file instead; may be repeated for its fragments")
	f.StringVar(&d.profile, "profile", "", "decide by this compiled profile instead (see compile)")
	f.StringArrayVar(&d.sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	f.IntVar(&d.abi, "abi", 0, "decide as a kernel of this Landlock ABI (default: this kernel's; with --lexical the policy's)")
	f.BoolVar(&d.lexical, "lexical", false, "decide on the text of paths alone, for policies of other machines")
}

// split parts the arguments into a reference and the words of a question.
func (d *decision) split(cmd *cobra.Command, args []string) (ref string, words []string, err error) {
	want := 1
	if len(d.files) > 0 || d.profile != "" {
		want = 0
	}
	n := cmd.ArgsLenAtDash()
	switch {
	case len(d.files) > 0 && d.profile != "":
		return "", nil, errors.New("-f and --profile: only one of them")
	case n > 0 && want == 0:
		return "", nil, errors.New("REF and -f or --profile: only one of them")
	case n > 1:
		return "", nil, fmt.Errorf("%q before -- is too much: want REF", args[1])
	case want == 1 && (len(args) == 0 || n == 0):
		return "", nil, errors.New("REF (or -f FILE, or --profile FILE) is missing")
	}
	if want == 1 {
		ref = args[0]
	}
	return ref, args[want:], nil
}

// decider loads what the flags and the reference say.
func (d *decision) decider(a *app, cmd *cobra.Command, ref string) (*decide.Decider, *compiled, error) {
	if d.abi < 0 || d.abi > profile.MaxABI {
		return nil, nil, cli.Usage(fmt.Errorf("--abi %d: want 1 to %d", d.abi, profile.MaxABI))
	}
	set, err := pairs("--set", d.sets)
	if err != nil {
		return nil, nil, err
	}
	var c *compiled
	if d.profile != "" {
		if len(set) > 0 {
			return nil, nil, cli.Usage(errors.New("--set: a compiled profile has no parameters left"))
		}
		c, err = a.readProfile(d.profile)
	} else {
		c, err = a.load(cmd.Context(), ref, d.files, set, false)
	}
	if err != nil {
		return nil, nil, err
	}
	o := decide.Options{ABI: d.abi, Errata: decide.AllErrata(), Lexical: d.lexical}
	if o.Base, err = os.Getwd(); err != nil {
		return nil, nil, err
	}
	if d.abi == 0 && d.lexical {
		o.ABI = c.profile.ABI
	}
	sup := landlock.Support{}
	if o.ABI == 0 {
		if sup = landlock.Probe(); sup.Err != nil {
			return nil, nil, fmt.Errorf("this kernel cannot enforce any policy (--abi N answers for another): %w", sup.Err)
		}
		o.ABI, o.Errata = sup.ABI, sup.Errata
	}
	dec, err := decide.New(c.profile, c.origins, o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if sup.ABI != 0 {
		if err := startable(c, sup); err != nil {
			return nil, nil, err
		}
	}
	return dec, c, nil
}

// readProfile reads a compiled profile from a file.
func (a *app) readProfile(name string) (*compiled, error) {
	in := a.in
	if name != cli.Stdin {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxProfile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > maxProfile {
		return nil, fmt.Errorf("%s: larger than %s", name, size(maxProfile))
	}
	p, err := profile.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &compiled{name: name, profile: p, encoded: b, digest: profile.Digest(b)}
	if p.Name != "" {
		c.name = p.Name
	}
	return c, nil
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

func newCheck(a *app) *cobra.Command {
	d := &decision{}
	cmd := &cobra.Command{
		Use:   "check REF|-f FILE|--profile FILE -- OPERATION [WORD...]",
		Short: "Say what a policy allows, and which rule or layer decides",
		Long: "check answers as this host's kernel would for a program started under the policy now: it follows\n" +
			"symbolic links and looks at inodes as the kernel does. It speaks of Landlock alone; file modes and\n" +
			"other security modules may refuse as well.\n\n" +
			"Exit code 0: allowed, 1: refused, 2: no answer (wrong question, or nothing would start at all).",
		Example: "  policyctl check web -- open /etc/shadow r\n" +
			"  policyctl check -f web.yaml -- exec /usr/bin/python3\n" +
			"  policyctl check web@2 -o json -- bind tcp 8080",
		Args: func(cmd *cobra.Command, args []string) error {
			_, words, err := d.split(cmd, args)
			if err == nil && len(words) == 0 {
				_, err = decide.Parse(nil)
			}
			return err
		},
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			ref, words, _ := d.split(cmd, args)
			q, err := decide.Parse(words)
			if err != nil {
				return cli.Usage(err)
			}
			dec, c, err := d.decider(a, cmd, ref)
			if err != nil {
				return err
			}
			answer, err := dec.Answer(q)
			if errors.Is(err, decide.ErrQuestion) {
				return cli.Usage(err)
			}
			if errors.Is(err, os.ErrNotExist) && words[0] == "exec" && !strings.Contains(words[1], "/") {
				return fmt.Errorf("%w in this folder: give the program's path, PATH is not searched", err)
			}
			if err != nil {
				return err
			}
			return a.verdict(form, c.name, answer)
		},
	}
	d.flags(cmd)
	return cmd
}

func (a *app) verdict(form cli.Format, name string, v *decide.Answer) error {
	var result error
	if !v.Allowed() {
		result = &cli.Exit{Code: 1}
	}
	if form != cli.Table {
		return errors.Join(cli.WriteValue(a.out, form, v), result)
	}
	p := a.painter(a.out)
	word := p.Paint("allowed", cli.Green)
	switch v.Verdict {
	case decide.Deny:
		word = p.Paint("refused", cli.Red) + " with " + v.Errno
	case decide.NotMediated:
		word = p.Paint("allowed", cli.Green) + ", not mediated by Landlock"
	}
	fmt.Fprintf(a.out, "%s: %s: %s\n", cli.Clean(name), cli.Clean(v.Operation), word)
	if a.quiet {
		return result
	}
	for _, l := range v.Layers {
		fmt.Fprintf(a.out, "  layer %s lacks %s\n", l.Name, strings.Join(l.Missing, ", "))
	}
	for _, r := range v.DecidedBy {
		fmt.Fprintf(a.out, "  layer %s: %s granted by %s%s\n", r.Layer, strings.Join(r.Rights, ", "), cli.Clean(r.Rule), cli.Clean(place(r)))
	}
	for _, n := range v.Notes {
		fmt.Fprintf(a.out, "  note: %s\n", cli.Clean(n.Text))
	}
	return result
}

// place says where a rule stands: " (web.yaml:12, fragment std/base)".
func place(r decide.Rule) string {
	var parts []string
	switch {
	case r.File != "" && r.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", r.File, r.Line))
	case r.Field != "":
		parts = append(parts, r.Field)
	}
	if r.Fragment != "" {
		parts = append(parts, "fragment "+r.Fragment)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
