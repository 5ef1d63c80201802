package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// decision is what check and explain decide by.
type decision struct {
	files, sets []string
	profile     string
	container   string
	abi         int
	lexical     bool

	options decide.Options // set by decider
}

func (d *decision) flags(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&d.files, "file", "f", nil, "decide by the policy of this file instead; may be repeated for its fragments")
	f.StringVar(&d.profile, "profile", "", "decide by this compiled profile instead (see compile)")
	f.StringVar(&d.container, "container", "", "decide in this container, by what it was started under (see ps); the beginning of its id will do")
	_ = cmd.RegisterFlagCompletionFunc("container", a.completeContainers)
	f.StringArrayVar(&d.sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.IntVar(&d.abi, "abi", 0, "decide as a kernel of this Landlock ABI (default: this kernel's; with --lexical the policy's)")
	f.BoolVar(&d.lexical, "lexical", false, "decide on the text of paths alone, for policies of other machines")
}

// split parts the arguments into a reference and the words of a question.
func (d *decision) split(cmd *cobra.Command, args []string) (ref string, words []string, err error) {
	want := 1
	if len(d.files) > 0 || d.profile != "" || cmd.Flags().Changed("container") {
		want = 0
	}
	n := cmd.ArgsLenAtDash()
	switch {
	case len(d.files) > 0 && d.profile != "":
		return "", nil, errors.New("-f and --profile: only one of them")
	case want == 0 && cmd.Flags().Changed("container") && (len(d.files) > 0 || d.profile != ""):
		return "", nil, errors.New("--container and -f or --profile: only one of them")
	case cmd.Flags().Changed("container") && (len(d.sets) > 0 || cmd.Flags().Changed("abi")):
		return "", nil, errors.New("--container: it has its parameters and its kernel; leave --set and --abi out")
	case n > 0 && want == 0:
		return "", nil, errors.New("REF and -f, --profile or --container: only one of them")
	case n > 1:
		return "", nil, fmt.Errorf("%q before -- is too much: want REF", args[1])
	case want == 1 && (len(args) == 0 || n == 0):
		return "", nil, errors.New("REF (or -f FILE, --profile FILE, --container ID) is missing")
	}
	if want == 1 {
		ref = args[0]
	}
	return ref, args[want:], nil
}

// decider loads what the flags and the reference say.
func (d *decision) decider(a *app, cmd *cobra.Command, ref string) (*decide.Decider, *compiled, error) {
	if err := checkABI(cmd, d.abi); err != nil {
		return nil, nil, err
	}
	set, err := pairs("--set", d.sets)
	if err != nil {
		return nil, nil, err
	}
	var c *compiled
	if cmd.Flags().Changed("container") {
		c, err = a.inContainer(cmd.Context(), d.container, d.lexical)
	} else if d.profile != "" {
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
	o := decide.Options{ABI: d.abi, Errata: decide.AllErrata(), Lexical: d.lexical, LayerPlaces: c.layers}
	if d.container != "" {
		o.Base = "/"
	} else if base, err := os.Getwd(); err == nil && !d.lexical {
		o.Base = base // a folder that was removed has no path, and another machine's is not known
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
	d.options = o
	dec, err := decide.New(c.profile, c.origins, o)
	if err != nil {
		return nil, nil, seenHint(d.notHere(cmd, c, fmt.Errorf("%s: %w", c.name, err)))
	}
	if sup.ABI != 0 && d.container == "" { // a container was started
		if err := startable(c, sup); err != nil {
			return nil, nil, err
		}
	}
	return dec, c, nil
}

// notHere adds to the error of a policy under which nothing would start what helps:
// the rules whose paths are missing, and how to have another kernel or host asked.
func (d *decision) notHere(cmd *cobra.Command, c *compiled, err error) error {
	if !errors.Is(err, decide.ErrNotEnforceable) {
		return err
	}
	_, lost := c.profile.Reduce(d.options.ABI)
	if !c.profile.Degrade && slices.ContainsFunc(lost, profile.Need.Confines) {
		return fmt.Errorf("%w\n%s", err, wayOut)
	}
	if d.lexical {
		return err
	}
	err = policy.PlacePaths(missingPaths(c.profile, err), c.profile, c.origins)
	if errors.Is(err, errs.ErrPathMissing) && cmd.Flags().Lookup("lexical") != nil {
		err = fmt.Errorf("%w\n--lexical decides on the text alone, for hosts that have the path", err)
	}
	return err
}

// missingError is an error of a profile with the paths of rules that are not there.
type missingError struct {
	error
	paths []error
}

func (e *missingError) Unwrap() []error { return append([]error{e.error}, e.paths...) }

// missingPaths finds the paths that an error is about, when they are not there.
func missingPaths(p *profile.Profile, err error) error {
	m := &missingError{error: err}
	for i := range p.Paths {
		row := &p.Paths[i]
		if _, lerr := os.Stat(row.Path); row.Missing != profile.Skip && errors.Is(lerr, os.ErrNotExist) {
			m.paths = append(m.paths, &errs.PathError{Path: row.Path, Err: errs.ErrPathMissing})
		}
	}
	if m.paths == nil {
		return err
	}
	return m
}

// checkABI refuses a value of --abi that no kernel has.
func checkABI(cmd *cobra.Command, abi int) error {
	if cmd.Flags().Changed("abi") && (abi < 1 || abi > profile.MaxABI) {
		return cli.Usage(fmt.Errorf("--abi %d: want 1 to %d", abi, profile.MaxABI))
	}
	return nil
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
		return fmt.Errorf("%s: %w:\n%w", c.name, decide.ErrNotEnforceable, policy.PlacePaths(err, c.profile, c.origins))
	}
	return nil
}

// question reads the words of a question; a wrong one is wrong usage.
func question(words []string) (decide.Question, error) {
	q, err := decide.Parse(words)
	if err != nil {
		return q, cli.Usage(err)
	}
	return q, nil
}

// ask has one question answered, with the walk or without.
func ask(dec *decide.Decider, q decide.Question, explain bool) (*decide.Answer, error) {
	answer := dec.Answer
	if explain {
		answer = dec.Explain
	}
	v, err := answer(q)
	switch {
	case errors.Is(err, decide.ErrQuestion):
		return nil, cli.Usage(err)
	case errors.Is(err, os.ErrNotExist) && q.Kind() == profile.OpExec && !strings.Contains(q.Path(), "/"):
		return nil, fmt.Errorf("%w (give the program's path: PATH is not searched)", err)
	}
	return v, seenHint(err)
}

// seenHint says what helps where a path may not be looked at.
func seenHint(err error) error {
	if errors.Is(err, decide.ErrNotSeen) {
		return fmt.Errorf("%w; ask as root, or with --lexical, which looks at no file", err)
	}
	return err
}

// operationsHelp is the table of operations for a command's help.
func operationsHelp() string {
	var b strings.Builder
	b.WriteString("Operations:\n")
	for _, u := range decide.Operations() {
		fmt.Fprintf(&b, "  %s\n      %s\n", u.String(), u.Help)
	}
	return b.String()
}

// completeQuestion completes a reference, then the words of an operation.
func (a *app) completeQuestion(d *decision) completer {
	refs := a.completeRefs(policy.KindPolicy)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(d.files) == 0 && d.profile == "" && d.container == "" {
			if len(args) == 0 {
				return refs(cmd, args, typed)
			}
			args = args[1:]
		}
		if len(args) == 0 {
			var out []string
			for _, u := range decide.Operations() {
				if strings.HasPrefix(u.Word, typed) {
					out = append(out, u.Word+"\t"+u.Help)
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		}
		for _, u := range decide.Operations() {
			if u.Word == args[0] {
				return completeWord(u, len(args)-1)
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeWord offers what may stand as the n-th word behind an operation's.
func completeWord(u decide.Usage, n int) ([]string, cobra.ShellCompDirective) {
	wants := strings.Fields(u.Args)
	if n >= len(wants) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	want := strings.Trim(wants[n], "[]")
	if strings.HasSuffix(want, "PATH") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if !strings.Contains(want, "|") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, w := range strings.Split(want, "|") {
		w, _, _ = strings.Cut(w, "[")
		out = append(out, w)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
