package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
)

// completeSet completes NAME= of --set with the parameters of the policies that
// the command line names.
func (a *app) completeSet(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(typed, "=") {
		return nil, cobra.ShellCompDirectiveDefault // the value is a path, most often
	}
	var out []string
	for _, p := range a.namedPolicies(cmd, args) {
		for _, param := range p.GetSpec().GetParameters() {
			text := param.GetName() + "="
			if within := param.GetWithin(); len(within) > 0 {
				text += "\twithin " + strings.Join(within, ", ")
			}
			if strings.HasPrefix(text, typed) && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeLayer completes the name of a layer of the policy.
func (a *app) completeLayer(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, p := range a.namedPolicies(cmd, args) {
		for i, l := range p.GetSpec().GetLayers() {
			name := l.GetName()
			if name == "" {
				name = fmt.Sprintf("layer-%d", i+1)
			}
			if strings.HasPrefix(name, typed) {
				out = append(out, name)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// namedPolicies are the policies of -f, or those that the arguments name: files of
// diff, versions in policyd. What cannot be read offers nothing.
func (a *app) namedPolicies(cmd *cobra.Command, args []string) (out []*apiv1.LandlockPolicy) {
	quiet := *a
	quiet.err = io.Discard
	files, _ := cmd.Flags().GetStringArray("file")
	if len(files) == 0 {
		for _, arg := range args {
			if isFile(arg) {
				files = append(files, arg)
			} else if p := quiet.storedPolicy(cmd.Context(), arg); p != nil {
				out = append(out, p)
			}
		}
	}
	for _, name := range files {
		if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() && !st.IsDir() {
			continue // nobody waits for a pipe here
		}
		p, err := quiet.parse([]string{name})
		if err != nil {
			continue
		}
		for _, d := range p.policies() {
			out = append(out, d.Resource.GetLandlockPolicy())
		}
	}
	return out
}

func (a *app) storedPolicy(ctx context.Context, ref string) *apiv1.LandlockPolicy {
	kind, name := splitKind(ref)
	ctx, c, cancel, ok := a.asking(ctx)
	if !ok {
		return nil
	}
	defer cancel()
	v, err := getVersion(ctx, c, kind, name)
	if err != nil || kind != policy.KindPolicy {
		return nil
	}
	return v.GetResource().GetLandlockPolicy()
}

// completeVersions completes the number of a version of the document that the
// command line names.
func (a *app) completeVersions(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, name := splitKind(args[0])
	ctx, c, cancel, ok := a.asking(cmd.Context())
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	res, err := c.Policies.ListVersions(ctx, &apiv1.ListVersionsRequest{Kind: kind, Name: name})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, v := range res.GetVersions() {
		if n := fmt.Sprint(v.GetNumber()); strings.HasPrefix(n, typed) {
			out = append(out, n+"\t"+v.GetMessage())
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeProgram completes a program along PATH; a path is left to the shell.
func completeProgram(typed string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(typed, "/") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), typed) {
				continue
			}
			if st, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				out = append(out, e.Name())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveDefault
}
