package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/paths"
)

// Groups of commands in help.
const (
	groupPolicies  = "policies"
	groupSandboxes = "sandboxes"
	groupSmack     = "smack"
	groupDaemon    = "daemon"
	groupFleet     = "fleet"
	groupOther     = "other"
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "policyctl COMMAND",
		Short: "Write policies, start programs under them, and see what they may do",
		Long: "policyctl stores policies in policyd as numbered versions and starts programs that the\n" +
			"kernel then confines by them (Landlock).\n\n" +
			"A policy is named web (its newest version), web@3, web@stable (a tag) or web@sha256:...\n\n" +
			exitCodes(),
		Example: "  policyctl apply -f web.yaml\n" +
			"  policyctl run web -- nginx -g 'daemon off;'\n" +
			"  policyctl check web -- open /etc/shadow r",
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if _, err := cli.NewPainter(a.color, a.out); err != nil {
				return err
			}
			return nil
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	root.Version = buildinfo.Version
	root.SetVersionTemplate("policyctl {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version and exit")
	// Both are taken before cobra sees them; here they are for people who ask for help.
	root.Flags().Bool("user", false, "before the command: ask the calling user's own policyd, the default but for root")
	root.Flags().Bool("system", false, "before the command: ask the system's policyd, the default for root")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	f := root.PersistentFlags()
	f.StringVar(&a.socket, "socket", "", "policyd's socket, a path or unix:///path (default $"+paths.SocketEnv+", else the user's own)")
	f.StringVar(&a.socket, "address", "", "the same as --socket")
	f.DurationVar(&a.timeout, "timeout", 0, "give up after this time (default 30s for what answers at once, never for what goes on)")
	f.StringVarP(&a.output, "output", "o", "", "form of the output: table, wide, json, yaml or name, as the command has them")
	f.StringVar(&a.color, "color", "auto", "auto, always or never; auto heeds NO_COLOR")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "say only what was asked for")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))

	root.AddGroup(
		&cobra.Group{ID: groupPolicies, Title: "Policies:"},
		&cobra.Group{ID: groupSandboxes, Title: "Programs under a policy:"},
		&cobra.Group{ID: groupSmack, Title: "The host's Smack rules:"},
		&cobra.Group{ID: groupDaemon, Title: "The daemon and its store:"},
		&cobra.Group{ID: groupFleet, Title: "Many hosts:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupPolicies, newApply(a), newGet(a), newHistory(a), newDiff(a), newRollback(a), newTag(a), newDelete(a), newResolve(a),
		newValidate(a), newFmt(a), newCompile(a), newInspect(a), newCheck(a), newGraph(a), newExplain(a), newPreflight(a), newTest(a), newImport(a), newExport(a))
	add(groupSmack, newSmack(a))
	add(groupSandboxes, newRun(a), newExec(a), newPs(a), newLogs(a), newWait(a), newKill(a), newRm(a), newTop(a), newAttach(a), newDetach(a), newVerifyUnit(a))
	add(groupDaemon, newStatus(a), newEvents(a), newBackup(a), newRestore(a), newDB(a))
	add(groupFleet, newFleet(a))
	add(groupOther, newSchema(a), newCompletion(a), newVersion(a), newMan(a), newTestPerform(a), newUnitStart(a))
	help := newHelp()
	help.GroupID = groupOther
	root.SetHelpCommand(help)
	root.InitDefaultHelpCmd()
	a.markRunning(root)
	return root
}

// usageTemplate is cobra's without the second line of usage that it gives to
// commands which have others beneath them.
func usageTemplate(s string) string {
	s = strings.Replace(s, "{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}", "", 1)
	return strings.Replace(s, "[command] --help", "COMMAND --help", 1)
}

// exitCodes is the table of exit codes as text.
func exitCodes() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, d := range cli.ExitDocs() {
		fmt.Fprintf(&b, "  %-4d %s\n", d.Code, d.Doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

// markRunning notes when a command's own code begins: errors before that are of
// the command line (flags, arguments, required flags).
func (a *app) markRunning(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.running = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		a.markRunning(c)
	}
}

// unknownCommand refuses arguments that are no command, with what was meant.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("%s", text)
}
