package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

// completionTimeout is how long a person who pressed Tab waits for policyd.
const completionTimeout = time.Second

func newCompletion(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long: "The scripts complete commands and flags, and ask policyd for names of policies, their versions\n" +
			"and tags, and the ids of sandboxes.",
		Example: "  policyctl completion bash > /etc/bash_completion.d/policyctl\n" +
			"  policyctl completion zsh > \"${fpath[1]}/_policyctl\"\n" +
			"  policyctl completion fish > ~/.config/fish/completions/policyctl.fish",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := exactly("the shell ("+strings.Join(shells, ", ")+")")(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(shells, args[0]) {
				return fmt.Errorf("no completion for %q: want %s", args[0], strings.Join(shells, ", "))
			}
			return nil
		},
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.out)
			}
			return cmd.Root().GenFishCompletion(a.out, true)
		},
	}
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// asking gives a client for a completion; ok is false when there is none, and
// then nothing is offered.
func (a *app) asking(ctx context.Context) (context.Context, *cli.Client, context.CancelFunc, bool) {
	if ctx == nil {
		ctx = context.Background()
	}
	c, err := a.dial()
	if err != nil {
		return nil, nil, nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	return ctx, c, cancel, true
}

// completeRefs completes one reference of a kind: names, and behind an @ the
// versions and tags.
func (a *app) completeRefs(kind string) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if n := len(a.args) - 2; n >= 0 && a.args[n] == "--" { // the last one is being typed
			return completeProgram(typed)
		}
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return a.refs(cmd.Context(), kind, "", typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completeAnyRefs completes up to n references to policies, or to other kinds
// behind their word ("fragment/"); files are offered too.
func (a *app) completeAnyRefs(n int) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if kind, rest := splitKind(typed); len(rest) < len(typed) {
			return a.refs(cmd.Context(), kind, words[kind]+"/", rest), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return a.anyRefs(cmd.Context(), typed), cobra.ShellCompDirectiveNoSpace
	}
}

// completeNames completes one name without a version.
func (a *app) completeNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || strings.Contains(typed, "@") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if kind, rest := splitKind(typed); len(rest) < len(typed) {
		return a.refs(cmd.Context(), kind, words[kind]+"/", rest), cobra.ShellCompDirectiveNoFileComp
	}
	return a.anyRefs(cmd.Context(), typed), cobra.ShellCompDirectiveNoFileComp
}

// anyRefs gives policies, and the words of other kinds.
func (a *app) anyRefs(ctx context.Context, typed string) []string {
	out := a.refs(ctx, policy.KindPolicy, "", typed)
	for _, k := range storedKinds[1:] {
		if strings.HasPrefix(k.word+"/", typed) {
			out = append(out, k.word+"/")
		}
	}
	return out
}

// completeSandboxes completes ids, with ended ones or without.
func (a *app) completeSandboxes(all bool) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && cmd.Name() != "rm" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, c, cancel, ok := a.asking(cmd.Context())
		if !ok {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer cancel()
		list, err := listSandboxes(ctx, c, all, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, s := range list {
			if strings.HasPrefix(s.GetId(), typed) {
				out = append(out, fmt.Sprintf("%s\t%s %s", s.GetId(), sandboxPolicy(s), cli.Clean(clip(strings.Join(s.GetArgv(), " "), 40))))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// refs gives what policyd has for a beginning; prefix is put before each again.
func (a *app) refs(ctx context.Context, kind, prefix, typed string) []string {
	ctx, c, cancel, ok := a.asking(ctx)
	if !ok {
		return nil
	}
	defer cancel()
	var out []string
	if name, _, versions := strings.Cut(typed, "@"); versions {
		res, err := c.Policies.ListVersions(ctx, &apiv1.ListVersionsRequest{Kind: kind, Name: name})
		if err != nil {
			return nil
		}
		for _, v := range res.GetVersions() {
			for _, at := range append([]string{fmt.Sprint(v.GetNumber())}, v.GetTags()...) {
				if ref := name + "@" + at; strings.HasPrefix(ref, typed) {
					out = append(out, fmt.Sprintf("%s%s\t%s", prefix, ref, cli.Clean(v.GetMessage())))
				}
			}
		}
		return out
	}
	list, err := listAll(ctx, c, kind, nil)
	if err != nil {
		return nil
	}
	for _, v := range list {
		if strings.HasPrefix(v.GetName(), typed) {
			out = append(out, fmt.Sprintf("%s%s\t%s", prefix, v.GetName(), cli.Clean(v.GetDescription())))
		}
	}
	return out
}
