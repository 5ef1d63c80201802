package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/cli/preflight"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/units"
)

// unitAnswer is the answer of verify-unit in JSON; its names are an interface.
type unitAnswer struct {
	Unit      string            `json:"unit"`
	Policy    string            `json:"policy"`
	Starts    bool              `json:"starts"` // nothing is refused or lacking
	Known     bool              `json:"known"`
	Needs     []preflight.Need  `json:"needs"`
	Missing   []preflight.Rules `json:"missing"`
	Suggested []preflight.Rules `json:"suggested"`
	Notes     []preflight.Note  `json:"notes"`
}

func newVerifyUnit(a *app) *cobra.Command {
	o := &decision{}
	user := false
	cmd := &cobra.Command{
		Use:   "verify-unit UNIT REF | verify-unit UNIT -f FILE",
		Short: "Say what a policy lacks for a service of systemd",
		Long: "verify-unit is preflight for a service: its programs with their interpreters and libraries, and the\n" +
			"paths that the unit's settings name (RuntimeDirectory=, StateDirectory=, CacheDirectory=,\n" +
			"LogsDirectory=, ConfigurationDirectory=, ReadWritePaths=, PrivateTmp=, PIDFile=, credentials, and\n" +
			"the socket of Type=notify or of the bus). It ends with the rules that are missing, to be merged into\n" +
			"the policy's spec. Nothing is started or changed. What systemd opens for the service is no need of\n" +
			"it: sockets of activation, EnvironmentFile=, standard streams.\n\n" +
			"Exit code 0: nothing is missing, 1: something is, 2: no answer.",
		Example: "  policyctl verify-unit nginx.service web\n" +
			"  policyctl verify-unit nginx.service -f web.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(o.files) > 0 {
				return exactly("UNIT")(cmd, args)
			}
			return exactly("UNIT", "REF (or -f FILE)")(cmd, args)
		},
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeUnitAndRef(&user),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			answer, err := a.verifyUnit(cmd, o, user || a.user, args)
			if err != nil {
				return err
			}
			return a.tellUnit(form, answer)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "file", "f", nil, "decide by the policy of this file instead; may be repeated for its fragments")
	f.StringArrayVar(&o.sets, "set", nil, "value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.BoolVar(&user, "user", false, "a service of the calling user's own systemd")
	return cmd
}

func (a *app) verifyUnit(cmd *cobra.Command, o *decision, user bool, args []string) (*unitAnswer, error) {
	name, err := units.ServiceName(args[0])
	if err != nil {
		return nil, err
	}
	s, err := (&units.Manager{User: user}).Load(cmd.Context(), name)
	if err != nil {
		return nil, err
	}
	if root := s.Get("RootDirectory") + s.Get("RootImage"); root != "" && root != "/" {
		return nil, fmt.Errorf("%s: %w: its paths are those inside %s, which are not seen from here", name, errs.ErrInvalid, root)
	}
	ref := ""
	if len(o.files) == 0 {
		ref = args[1]
	}
	v := &unitAnswer{Unit: s.Name, Known: true, Needs: []preflight.Need{}, Missing: []preflight.Rules{}, Suggested: []preflight.Rules{}, Notes: []preflight.Note{}}
	d, c, err := o.decider(a, cmd, ref)
	if errors.Is(err, decide.ErrNotEnforceable) && errors.Is(err, errs.ErrPathMissing) {
		// Folders that systemd makes at the start are not there yet.
		v.note("lexical", "paths of rules do not exist yet, so that links were not looked at: "+oneLine(err))
		o.lexical = true
		d, c, err = o.decider(a, cmd, ref)
	}
	if err != nil {
		return nil, err
	}
	if ref != "" {
		if err := a.fetchProcess(cmd, c); err != nil {
			return nil, err
		}
	}
	v.Policy = c.name
	if err := v.programs(s, c, preflight.By(d)); err != nil {
		return nil, err
	}
	if err := v.paths(s, user, preflight.By(d)); err != nil {
		return nil, err
	}
	return v, v.rules()
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (v *unitAnswer) note(code, text string) {
	for _, n := range v.Notes {
		if n.Code == code && n.Text == text {
			return
		}
	}
	v.Notes = append(v.Notes, preflight.Note{Code: code, Text: text})
}

// programs asks preflight about each ExecStart line.
func (v *unitAnswer) programs(s *units.Service, c *compiled, grants preflight.Grants) error {
	v.Starts = true
	env := s.Environment()
	for name, value := range c.process.GetEnvironment() {
		env = setEnv(env, name, value)
	}
	dir := strings.TrimLeft(s.Get("WorkingDirectory"), "!-")
	if st, err := os.Stat(dir); !filepath.IsAbs(dir) || err != nil || !st.IsDir() {
		dir = "/"
	}
	for i := range s.Commands["ExecStart"] {
		program := s.Program(i)
		if program == "" {
			v.Known = false
			v.note("specifier", fmt.Sprintf("ExecStart=%s: what systemd makes of it is not known here", s.Commands["ExecStart"][i].Program))
			continue
		}
		path, err := spawn.LookPath(program, []string{"PATH=" + s.Search()}, dir)
		if err != nil {
			return cli.Usage(err)
		}
		res, err := preflight.Find(path, preflight.Options{Env: env, Dir: dir, Grants: grants})
		if err != nil {
			return cli.Usage(err)
		}
		v.Starts = v.Starts && res.Starts
		v.Known = v.Known && res.Known
		for _, n := range res.Needs {
			if n.Kind != preflight.Directory {
				v.Needs = append(v.Needs, n)
			}
		}
		for _, n := range res.Notes {
			v.note(n.Code, n.Text)
		}
	}
	return nil
}

// paths asks about what the unit's settings name.
func (v *unitAnswer) paths(s *units.Service, user bool, grants preflight.Grants) error {
	for _, n := range s.Needs(user) {
		refused, err := grants(n.Path, n.Rights)
		if err != nil {
			return err
		}
		kind, _, _ := strings.Cut(n.Setting, "=")
		need := preflight.Need{
			Kind: kind, Name: n.Setting, Path: n.Path, Real: n.Path, By: s.Name, Rights: profile.FS.Names(n.Rights),
			Required: true, Verdict: preflight.Granted, Layers: []preflight.Refusal{},
		}
		if real, err := filepath.EvalSymlinks(n.Path); err == nil {
			need.Real = real
		}
		if len(refused) > 0 {
			need.Verdict, need.Layers, v.Starts = preflight.Refused, refused, false
		}
		v.Needs = append(v.Needs, need)
	}
	if sockets := s.List("TriggeredBy"); len(sockets) > 0 {
		v.note("activation", strings.Join(sockets, ", ")+": what systemd has opened needs no rule")
	}
	if user := s.Get("User"); user != "" || s.Is("DynamicUser") {
		v.note("user", "file modes may refuse the service's user what the policy grants")
	}
	return nil
}

// rules makes the rules that are missing.
func (v *unitAnswer) rules() error {
	res := &preflight.Result{Needs: v.Needs, Notes: v.Notes}
	if res.AllGranted() {
		return nil
	}
	sup := landlock.Probe()
	fragments, err := preflight.Fragments(func(p *profile.Profile) (preflight.Grants, error) {
		d, err := decide.New(p, nil, decide.Options{ABI: max(sup.ABI, 1), Errata: sup.Errata})
		if err != nil {
			return nil, err
		}
		return preflight.By(d), nil
	})
	if err != nil {
		return err
	}
	if v.Missing, err = res.Missing(fragments); err != nil {
		return err
	}
	v.Suggested, err = res.Suggested(fragments)
	v.Notes = res.Notes
	return err
}

func (a *app) tellUnit(form cli.Format, v *unitAnswer) error {
	result := foundOut(v.Starts, v.Known)
	if form == cli.JSON || form == cli.YAML {
		return errors.Join(cli.WriteValue(a.out, form, v), result)
	}
	p := a.painter(a.out)
	word := p.Paint("nothing is missing", cli.Green)
	switch {
	case !v.Starts:
		word = p.Paint("something is missing", cli.Red)
	case !v.Known:
		word = p.Paint("not all that it needs is known", cli.Yellow) + " (see the notes)"
	}
	fmt.Fprintf(a.out, "%s: %s: %s\n", cli.Clean(v.Policy), cli.Clean(v.Unit), word)
	if a.quiet {
		return result
	}
	fmt.Fprintln(a.out)
	if err := a.needs(form == cli.Wide, v.Needs); err != nil {
		return err
	}
	a.tellRules(&preflightAnswer{Policy: v.Policy, Missing: v.Missing, Suggested: v.Suggested})
	fmt.Fprintln(a.out)
	for _, n := range v.Notes {
		fmt.Fprintf(a.out, "note: %s\n", cli.Clean(n.Text))
	}
	return result
}
