package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/cli/preflight"
	"policyd.dev/policyd/internal/policy"
)

// preflightAnswer is the answer in JSON; its names are an interface.
type preflightAnswer struct {
	Policy  string `json:"policy"`
	Command string `json:"command"` // as it was given
	*preflight.Result
	Missing []preflight.Rules `json:"missing"` // rules to add
	// With the fragment made for a missing interpreter; [] when there is none.
	Suggested []preflight.Rules `json:"suggested"`
}

// preflightFlags are the flags beyond those of a decision.
type preflightFlags struct {
	decision
	env       []string
	user, dir string
}

func newPreflight(a *app) *cobra.Command {
	o := &preflightFlags{}
	cmd := &cobra.Command{
		Use:   "preflight [REF|-f FILE|--profile FILE] [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Say what a program needs to start, and whether a policy grants it",
		Long: "preflight finds, without running anything, what the kernel and the loader open before a program's\n" +
			"main function: the program (along PATH, as run and exec do), the interpreters of #! lines (and what\n" +
			"env finds for them), the ELF loader, its cache, and all shared libraries, by the rules of ld.so(8) or\n" +
			"of musl. For each it says whether the policy grants it here and now, and it ends with the rules that\n" +
			"are missing, to be merged into the policy's spec. Where an interpreter is refused that a shipped\n" +
			"fragment is made for, the rules with the fragment come first. Without a policy it lists the needs,\n" +
			"and the rules that grant them.\n\n" +
			"The environment is that of run: --env adds to it. A note tells when exec, which has the caller's\n" +
			"PATH, finds another program. What a program opens once it runs is not looked\n" +
			"at: plugins and other libraries it loads itself, name services, locales, modules, data.\n\n" +
			"Exit code 0: it starts, 1: something it needs is refused or not there, 2: no answer (wrong usage, no\n" +
			"such program, nothing would start at all, or not all of its needs can be known).",
		Example: "  policyctl preflight -- git status\n" +
			"  policyctl preflight web -- nginx -g 'daemon off;'\n" +
			"  policyctl preflight -f ci.yaml --set src=$PWD -- ./build.sh\n" +
			"  policyctl preflight -f app.yaml --env LD_LIBRARY_PATH=/opt/app/lib -o json -- /opt/app/bin/app",
		Args: func(cmd *cobra.Command, args []string) error {
			before, _, err := splitCommand(cmd, args)
			if err != nil {
				return err
			}
			if len(before) > 1 {
				return fmt.Errorf("%q before -- is too much: want REF", before[1])
			}
			if o.without(before) {
				if len(o.sets) > 0 {
					return errors.New("--set: there is no policy that has parameters")
				}
				return nil
			}
			_, _, err = o.split(cmd, args)
			return err
		},
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeRefs("LandlockPolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			if o.without(args[:cmd.ArgsLenAtDash()]) {
				answer, err := o.preflight(&compiled{}, nil, args[0])
				if err != nil {
					return cli.Usage(err)
				}
				return a.tellPreflight(form, answer)
			}
			ref, program, err := o.split(cmd, args)
			if err != nil {
				return cli.Usage(err)
			}
			d, c, err := o.decider(a, cmd, ref)
			if err != nil {
				return err
			}
			if ref != "" {
				if err := a.fetchProcess(cmd, c); err != nil {
					return err
				}
			}
			answer, err := o.preflight(c, preflight.By(d), program[0])
			if err != nil {
				// It cannot be said whether the policy lets it start: no answer.
				return cli.Usage(err)
			}
			return a.tellPreflight(form, answer)
		},
	}
	cmd.SetFlagErrorFunc(flagsOfProgram)
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "file", "f", nil, "decide by the policy of this file instead; may be repeated for its fragments")
	f.StringVar(&o.profile, "profile", "", "decide by this compiled profile instead (see compile)")
	f.StringArrayVar(&o.sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.StringArrayVarP(&o.env, "env", "e", nil, "environment, NAME=VALUE, or NAME to copy the caller's; may be repeated")
	f.StringVarP(&o.user, "user", "u", "", "user name or uid it would run as (default: the caller)")
	f.StringVarP(&o.dir, "dir", "w", "", "working directory (default: this one)")
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	_ = cmd.MarkFlagFilename("profile")
	return cmd
}

// without tells that no policy is given.
func (o *preflightFlags) without(before []string) bool {
	return len(before) == 0 && len(o.files) == 0 && o.profile == ""
}

// fetchProcess gets what a stored policy sets of the process.
func (a *app) fetchProcess(cmd *cobra.Command, c *compiled) error {
	ctx, client, cancel, err := a.call(cmd.Context())
	if err != nil {
		return err
	}
	defer cancel()
	full, err := getVersion(ctx, client, policy.KindPolicy, c.name)
	if err != nil {
		return err
	}
	c.process = full.GetResource().GetLandlockPolicy().GetSpec().GetProcess()
	return nil
}

func (o *preflightFlags) preflight(c *compiled, grants preflight.Grants, program string) (*preflightAnswer, error) {
	env, err := runEnvironment(o.user, false, o.env)
	if err != nil {
		return nil, err
	}
	for name, value := range c.process.GetEnvironment() {
		env = setEnv(env, name, value)
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	as, err := o.credential()
	if err != nil {
		return nil, err
	}
	path, err := spawn.LookPathAs(as, program, env, dir)
	byExec := o.byExec(c, program, path, dir)
	if err != nil {
		if byExec != "" {
			err = fmt.Errorf("%w (%s)", err, byExec)
		}
		return nil, err
	}
	res, err := preflight.Find(path, preflight.Options{Env: env, Dir: dir, Grants: grants})
	if err != nil {
		return nil, err
	}
	if byExec != "" {
		res.Notes = append([]preflight.Note{{Code: "exec-path", Text: byExec}}, res.Notes...)
	}
	answer := &preflightAnswer{Policy: c.name, Command: program, Result: res, Missing: []preflight.Rules{}, Suggested: []preflight.Rules{}}
	if res.AllGranted() {
		return answer, nil
	}
	sup := landlock.Probe()
	fragments, err := preflight.Fragments(func(p *profile.Profile) (preflight.Grants, error) {
		d, err := decide.New(p, nil, decide.Options{ABI: sup.ABI, Errata: sup.Errata})
		if err != nil {
			return nil, err
		}
		return preflight.By(d), nil
	})
	if err != nil {
		return nil, err
	}
	if answer.Missing, err = res.Missing(fragments); err != nil {
		return nil, err
	}
	answer.Suggested, err = res.Suggested(fragments)
	return answer, err
}

// byExec says what exec would start instead of the program that run finds; "" when
// it is the same.
func (o *preflightFlags) byExec(c *compiled, program, path, dir string) string {
	if _, set := c.process.GetEnvironment()["PATH"]; set || o.user != "" || strings.Contains(program, "/") {
		return ""
	}
	for _, e := range o.env {
		if name, _, _ := strings.Cut(e, "="); name == "PATH" {
			return "" // the one to look along was said
		}
	}
	switch other, err := spawn.LookPath(program, os.Environ(), dir); {
	case err != nil && path != "":
		return "exec, which has the PATH of its caller, would not find " + program + " along this one"
	case err == nil && other != path:
		return "exec, which has the PATH of its caller, would start " + other + ": ask for that with --env PATH"
	}
	return ""
}

// credential is for looking along PATH as another user, which root alone can.
func (o *preflightFlags) credential() (*spawn.Credential, error) {
	if o.user == "" || os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := lookupUser(o.user)
	if err != nil {
		return nil, fmt.Errorf("--user %s: %w", o.user, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", o.user, err)
	}
	c := &spawn.Credential{}
	for i, id := range append([]string{u.Uid, u.Gid}, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("id %q of %s: %w", id, o.user, err)
		}
		switch i {
		case 0:
			c.UID = uint32(n)
		case 1:
			c.GID = uint32(n)
		default:
			c.Groups = append(c.Groups, uint32(n))
		}
	}
	return c, nil
}

// foundOut is the exit code of a look at what a program needs: all of it is there, something is missing, or not all is known.
func foundOut(starts, known bool) error {
	switch {
	case !starts:
		return &cli.Exit{Code: cli.ExitRefused}
	case !known:
		return &cli.Exit{Code: cli.ExitUsage}
	}
	return nil
}

func (a *app) tellPreflight(form cli.Format, v *preflightAnswer) error {
	result := foundOut(v.Starts, v.Known)
	if form == cli.JSON || form == cli.YAML {
		return errors.Join(cli.WriteValue(a.out, form, v), result)
	}
	p := a.painter(a.out)
	word := p.Paint("starts", cli.Green)
	switch {
	case !v.Starts:
		word = p.Paint("does not start", cli.Red)
	case !v.Known:
		word = p.Paint("may start", cli.Yellow) + ", but not all that it needs is known (see the notes)"
	}
	if v.Policy == "" {
		if v.Starts && v.Known {
			word = "needs to start:"
		}
		fmt.Fprintf(a.out, "%s %s\n", cli.Clean(v.Program), word)
	} else {
		fmt.Fprintf(a.out, "%s: %s %s\n", cli.Clean(v.Policy), cli.Clean(v.Program), word)
	}
	if a.quiet {
		return result
	}
	fmt.Fprintln(a.out)
	if err := a.needs(form == cli.Wide, v.Needs); err != nil {
		return err
	}
	a.tellRules(v)
	fmt.Fprintln(a.out)
	for _, n := range v.Notes {
		fmt.Fprintf(a.out, "note: %s\n", cli.Clean(n.Text))
	}
	return result
}

// tellRules prints what to add to the policy.
func (a *app) tellRules(v *preflightAnswer) {
	title := "Missing, to be merged into the policy's spec (layers of one name into one)"
	if v.Policy == "" {
		title = "Rules for the spec of a policy"
	}
	show := func(rules []preflight.Rules) {
		for line := range strings.Lines(preflight.Text(rules)) {
			fmt.Fprintln(a.out, cli.Clean(strings.TrimSuffix(line, "\n")))
		}
	}
	if len(v.Suggested) > 0 {
		fmt.Fprintf(a.out, "\n%s, with the\nfragment for what the interpreter opens once it runs too:\n\n", title)
		show(v.Suggested)
		title = "Or the least with which it starts"
	}
	if len(v.Missing) > 0 {
		fmt.Fprintf(a.out, "\n%s:\n\n", title)
		show(v.Missing)
	}
}

// needs is the table of what is needed.
func (a *app) needs(wide bool, needs []preflight.Need) error {
	titles := []string{"NEED", "PATH", "REAL PATH", "VERDICT", "REFUSED BY"}
	if wide {
		titles = append(titles, "RIGHTS", "NEEDED BY")
	}
	rows := cli.NewRows(a.out, titles...)
	for i := range needs {
		n := &needs[i]
		path, real := n.Path, n.Real
		if path == "" {
			path = n.Name
		}
		if real == path {
			real = ""
		}
		var why []string
		for _, l := range n.Layers {
			if n.Verdict == preflight.Needed {
				break // nobody refuses it
			}
			why = append(why, l.Layer+": "+strings.Join(l.Missing, ", "))
		}
		if n.Problem != "" {
			why = append(why, n.Problem)
		}
		verdict := strings.ReplaceAll(n.Verdict, "_", " ")
		if n.Verdict == preflight.Refused && !n.Required {
			verdict += ", not vital"
		}
		cells := []string{strings.ReplaceAll(n.Kind, "-", " "), path, real, verdict, strings.Join(why, "; ")}
		if wide {
			cells = append(cells, strings.Join(n.Rights, ", "), n.By)
		}
		rows.Add(cells...)
	}
	return rows.Flush()
}
