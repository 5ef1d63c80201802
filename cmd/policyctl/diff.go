package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

func newDiff(a *app) *cobra.Command {
	var semantic bool
	var sets []string
	var abi int
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two versions or files, as text or by what they allow",
		Long: "diff compares what two documents say, in canonical YAML: comments, order of keys and layout do\n" +
			"not count. A and B are versions (web@2, fragment/site/base, smackpolicy/platform) or files (with a /\n" +
			"or .yaml in the name, or -). Exit code 0: equal, 1: different, 2: could not be compared.\n\n" +
			"With --semantic it compares what two policies allow: rights gained (+) and lost (-) by B, per path\n" +
			"and all beneath, port, scope, mount and move between folders, and the rule or layer that made the\n" +
			"difference. Rules in another order, split, merged or renamed layers and rules that grant nothing new\n" +
			"are no difference. What is logged, what may keep a program from starting, and what is set of the\n" +
			"process is told apart (~).\n" +
			"A and B are versions of policies, files or folders of YAML (a policy and its fragments), or compiled\n" +
			"profiles (see compile): a name with .profile or .yaml at its end or with a / is a file, and a file\n" +
			"that begins with the byte 0x89 is a profile. A value of --set goes to whichever has the parameter;\n" +
			"those without a value are given one that both may have. Of folders with several policies those of\n" +
			"one name are compared; /dev/null stands for no policy, under which all is allowed.\n" +
			"Two Smack policies are compared by the access of each pair of labels, all layers together, and by\n" +
			"their settings.\n" +
			"Exit code 0: equal, 1: different, nothing gained, 3: something gained, 2: could not be compared.",
		Example: "  policyctl diff web@2 web@3\n" +
			"  policyctl diff web ./web.yaml\n" +
			"  policyctl diff --semantic web@stable ./web.yaml --set state=/srv/web\n" +
			"  policyctl diff --semantic smackpolicy/platform@3 ./platform.yaml\n" +
			"  policyctl diff --semantic -o json old.profile new.profile\n" +
			"  policyctl diff --semantic -q main/web.yaml ./web.yaml || test $? -eq 1   # in CI: no new rights",
		Args:              exactly("A", "B"),
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeAnyRefs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == cli.Stdin && args[1] == cli.Stdin {
				return cli.Usage(errors.New("standard input can be only one of the two"))
			}
			if err := checkABI(cmd, abi); err != nil {
				return err
			}
			if semantic {
				return a.semantic(cmd.Context(), args, sets, abi)
			}
			if cmd.Flags().Changed("set") || cmd.Flags().Changed("abi") {
				return cli.Usage(errors.New("--set and --abi are for --semantic"))
			}
			var text [2][]byte
			for i, what := range args {
				t, err := a.canonical(cmd.Context(), what)
				if err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				text[i] = t
			}
			return a.showDiff(diff.Diff(args[0], text[0], args[1], text[1]))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&semantic, "semantic", false, "compare what the policies allow")
	f.StringArrayVar(&sets, "set", nil, "with --semantic: value of a parameter, NAME=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", a.completeSet)
	f.IntVar(&abi, "abi", 0, "with --semantic: on a kernel of this Landlock ABI (default: the newer of the two policies')")
	return cmd
}

// showDiff prints a unified diff; exit code 1 says that there was one.
func (a *app) showDiff(d []byte) error {
	if len(d) == 0 {
		return nil
	}
	p := a.painter(a.out)
	for i, line := range strings.Split(strings.TrimSuffix(string(d), "\n"), "\n") {
		if i == 0 {
			continue // "diff A B"; the two lines after it say so too
		}
		var style cli.Style
		switch {
		case strings.HasPrefix(line, "+++") && i < 3, strings.HasPrefix(line, "---") && i < 3:
			style = cli.Bold
		case strings.HasPrefix(line, "@@"):
			style = cli.Cyan
		case strings.HasPrefix(line, "+"):
			style = cli.Green
		case strings.HasPrefix(line, "-"):
			style = cli.Red
		}
		line = cli.Clean(line)
		if style != "" {
			line = p.Paint(line, style)
		}
		if _, err := io.WriteString(a.out, line+"\n"); err != nil {
			return err
		}
	}
	return &cli.Exit{Code: 1}
}

// canonical gives canonical YAML of a version or of the documents of a file.
func (a *app) canonical(ctx context.Context, what string) ([]byte, error) {
	if isFile(what) {
		files, err := cli.ReadSources([]string{what}, a.in)
		if err != nil {
			return nil, err
		}
		var all []byte
		for _, f := range files {
			docs, err := policy.Parse(f.GetName(), f.GetContent())
			if err != nil {
				return nil, err
			}
			for _, d := range docs {
				text, err := policy.ToYAML(d.Resource)
				if err != nil {
					return nil, err
				}
				if len(all) > 0 {
					all = append(all, "---\n"...)
				}
				all = append(all, text...)
			}
		}
		return all, nil
	}
	ctx, c, cancel, err := a.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	kind, ref := splitKind(what)
	v, err := getVersion(ctx, c, kind, ref)
	if err != nil {
		return nil, fileHint(what, "write ./"+what, otherKind(ctx, c, what, err))
	}
	return policy.ToYAML(v.GetResource())
}

// isFile tells a file from a reference: "-", a YAML name, a path with a / that
// exists or begins like one.
func isFile(s string) bool {
	if s == cli.Stdin || strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml") ||
		strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") {
		return true
	}
	if hasKind(s) || !strings.Contains(s, "/") {
		return false
	}
	_, err := os.Stat(s)
	return err == nil
}
