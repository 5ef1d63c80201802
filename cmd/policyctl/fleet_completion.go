package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// offer completes names that etcd knows; nothing when it does not answer in time.
func (f *fleetApp) offer(cmd *cobra.Command, typed string, names func(context.Context) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	f.timeout = completionTimeout
	ctx, cancel, err := f.open(ctx)
	if err != nil {
		return nil, nothing
	}
	defer cancel()
	all, err := names(ctx)
	if err != nil {
		return nil, nothing
	}
	var out []string
	for _, n := range all {
		if strings.HasPrefix(n, typed) {
			out = append(out, n)
		}
	}
	return out, nothing
}

// completeChannels completes one channel: those with a pointer, those that nodes
// follow and the one of the settings.
func (f *fleetApp) completeChannels(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.offer(cmd, typed, func(ctx context.Context) ([]string, error) {
		names, err := f.stored.Channels(ctx)
		if err != nil {
			return nil, err
		}
		there := map[string]bool{"": true}
		for _, n := range names {
			there[n] = true
		}
		nodes, _ := f.stored.Nodes(ctx, "") // who may not read them gets the channels all the same
		for i := range nodes {
			if c := nodes[i].Spec.Channel; !there[c] {
				there[c] = true
				names = append(names, c)
			}
		}
		if !there[f.Channel] {
			names = append(names, f.Channel)
		}
		return names, nil
	})
}

// completeChannelFlag completes the value of --channel, whatever arguments there are.
func (f *fleetApp) completeChannelFlag(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return f.completeChannels(cmd, nil, typed)
}

// completeChannelThen completes a channel and then by another.
func (f *fleetApp) completeChannelThen(next completer) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return f.completeChannels(cmd, args, typed)
		}
		return next(cmd, args, typed)
	}
}

func (f *fleetApp) completeNodes(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.offer(cmd, typed, func(ctx context.Context) ([]string, error) {
		nodes, err := f.stored.Nodes(ctx, "")
		var names []string
		for i := range nodes {
			names = append(names, nodes[i].Name)
		}
		return names, err
	})
}

func (f *fleetApp) completeBundles(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return f.offer(cmd, typed, func(ctx context.Context) ([]string, error) { return f.stored.Bundles(ctx) })
}
