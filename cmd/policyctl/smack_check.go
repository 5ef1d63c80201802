package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/smackhost"
)

func newSmackCheck(a *app) *cobra.Command {
	var files []string
	var kernel, bringup bool
	cmd := &cobra.Command{
		Use:   "check [REF] SUBJECT OBJECT ACCESS",
		Short: "Say whether a subject may access an object, and why",
		Long: "check decides as the kernel does (smk_access) for a kernel that holds the policy: the one in force, REF,\n" +
			"or, without a daemon, the one of -f. It names the reason, the layers that refuse, and the rules with\n" +
			"their places. ACCESS is letters of rwxatlb.\n\n" +
			"--kernel asks this host's kernel too (access2). It answers 0 whenever it has never seen one of the\n" +
			"labels, whatever the rules: that is told apart. With --kernel, allowed means that both allow.\n\n" +
			"Exit code 0: allowed, 1: denied, 2: nothing can be said.",
		Example: "  policyctl smack check App:camera User:data rw\n" +
			"  policyctl smack check platform@4 App:camera User:data w --kernel\n" +
			"  policyctl smack check -f platform.yaml _ System::Log a",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 4 && !cmd.Flags().Changed("file") {
				return nil
			}
			return exactly("SUBJECT", "OBJECT", "ACCESS")(cmd, args)
		},
		ValidArgsFunction: a.completeRefs(policy.KindSmack),
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			ref := ""
			if len(args) == 4 {
				ref, args = smackRef(args[0]), args[1:]
			}
			// Here, so that a mistake is one of usage.
			q, err := smackhost.Question(args[0], args[1], args[2])
			if err != nil {
				return cli.Usage(err)
			}
			var res *apiv1.CheckAccessResponse
			switch {
			case len(files) > 0 && kernel:
				return cli.Usage(errors.New("-f and --kernel: only one of them"))
			case len(files) == 0 && bringup:
				return cli.Usage(errors.New("--bringup goes with -f: policyd knows its kernel"))
			case len(files) > 0:
				c, err := a.compileSmackFile(files)
				if err != nil {
					return err
				}
				res = smackhost.Decide(c, q, bringup)
				res.Policy = c.Policy.Name
			default:
				ctx, c, cancel, err := a.call(cmd.Context())
				if err != nil {
					return err
				}
				defer cancel()
				res, err = c.Smack.CheckAccess(ctx, &apiv1.CheckAccessRequest{
					Ref: ref, Subject: args[0], Object: args[1], Access: args[2], Kernel: kernel,
				})
				if err != nil {
					return err
				}
			}
			if form != cli.Table {
				err = cli.WriteMessage(a.out, form, res)
			} else {
				a.smackVerdict(res)
			}
			if err == nil && (!res.GetAllowed() || kernel && res.GetKernelAnswer() != "1") {
				return &cli.Exit{Code: cli.ExitRefused}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "decide by the policy of a file or folder, or - for standard input, without a daemon")
	f.BoolVar(&kernel, "kernel", false, "ask this host's kernel as well")
	f.BoolVar(&bringup, "bringup", false, "with -f: for a kernel built with CONFIG_SECURITY_SMACK_BRINGUP")
	return cmd
}

func (a *app) smackVerdict(res *apiv1.CheckAccessResponse) {
	color := cli.Green
	if !res.GetAllowed() {
		color = cli.Red
	}
	if !a.quiet {
		fmt.Fprintln(a.out, a.painter(a.out).Paint(cli.Clean(res.GetDetail()), color))
	}
	for _, r := range res.GetRules() {
		a.say("  %s%s  (layer %s)", at(r.GetFile(), r.GetLine()), r.GetRule(), r.GetLayer())
	}
	for _, d := range res.GetDenials() {
		a.say("  layer %s does not give %s", d.GetLayer(), d.GetMissing())
	}
	switch k := res.GetKernelAnswer(); {
	case k == "":
	case k == "unknown label":
		a.say("kernel: 0, since it has never seen one of the labels")
	case (k == "1") != res.GetAllowed():
		a.say("kernel: %s, so it holds something else (see policyctl smack diff)", k)
	default:
		a.say("kernel: %s", k)
	}
}

// at is "file:line: ", with what is known of it.
func at(file string, line uint32) string {
	switch {
	case file == "" && line == 0:
		return ""
	case line == 0:
		return file + ": "
	}
	return fmt.Sprintf("%s:%d: ", file, line)
}
