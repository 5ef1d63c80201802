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
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two versions or files",
		Long: "diff compares what two documents say, in canonical YAML: comments, order of keys and layout do\n" +
			"not count. A and B are versions (web@2, fragment/site/base) or files (with a / or .yaml in the\n" +
			"name, or -). Exit code 0: equal, 1: different, 2: could not be compared.",
		Example:           "  policyctl diff web@2 web@3\n  policyctl diff web ./web.yaml",
		Args:              exactly("A", "B"),
		Annotations:       map[string]string{exitRuleKey: exitAnswers},
		ValidArgsFunction: a.completeAnyRefs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == cli.Stdin && args[1] == cli.Stdin {
				return cli.Usage(errors.New("standard input can be only one of the two"))
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
		return nil, err
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
	if strings.HasPrefix(s, "policy/") || strings.HasPrefix(s, "fragment/") || !strings.Contains(s, "/") {
		return false
	}
	_, err := os.Stat(s)
	return err == nil
}
