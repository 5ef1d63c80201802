package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

func newGet(a *app) *cobra.Command {
	var kinds []string
	for _, k := range storedKinds {
		kinds = append(kinds, k.many, k.word)
	}
	cmd := &cobra.Command{
		Use:   "get " + strings.Join(kinds, "|"),
		Short: "List policies, fragments, Smack policies and Bindings, or show one",
		Example: "  policyctl get policies -l team=edge -o wide\n" +
			"  policyctl get policy web@stable -o yaml\n" +
			"  policyctl get policy/web\n" +
			"  policyctl get fragment std/base",
		Args: func(cmd *cobra.Command, args []string) error {
			if one, _ := kindAndRef(cmd, args); one != nil {
				return nil
			}
			return unknownCommand(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if one, ref := kindAndRef(cmd, args); one != nil {
				one.SetContext(cmd.Context())
				return one.RunE(one, []string{ref})
			}
			return cli.Usage(fmt.Errorf("say what to get: %s REF", strings.Join(kinds, ", ")))
		},
	}
	for _, k := range storedKinds {
		cmd.AddCommand(a.getMany(k.kind, k.many, k.list, k.listUses), a.getOne(k.kind, k.word, k.show, k.showUse))
	}
	cmd.AddCommand(newGetUnits(a))
	return cmd
}

// kindAndRef is the command that shows KIND/REF, as -o name, answers and events write it, and REF; nil for anything else.
func kindAndRef(get *cobra.Command, args []string) (one *cobra.Command, ref string) {
	if len(args) != 1 {
		return nil, ""
	}
	word, ref, _ := strings.Cut(args[0], "/")
	for _, k := range storedKinds {
		if k.word != word && k.kind != word || ref == "" {
			continue
		}
		for _, c := range get.Commands() {
			if c.Name() == k.word {
				return c, ref
			}
		}
	}
	return nil, ""
}

func (a *app) getOne(kind, word, short, example string) *cobra.Command {
	return &cobra.Command{
		Use:   word + " REF",
		Short: short,
		Long: short + ".\n\n-o yaml (the default) gives its text with its comments, which apply takes back; -o json the\n" +
			"API's message; -o table, wide and name what is known of the version.",
		Example:           example,
		Args:              exactly("REF"),
		ValidArgsFunction: a.completeRefs(kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.YAML, cli.JSON, cli.Table, cli.Wide, cli.Name)
			if err != nil {
				return err
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			v, err := getVersion(ctx, c, kind, strings.TrimPrefix(args[0], word+"/"))
			if err != nil {
				return err
			}
			switch form {
			case cli.YAML:
				text, err := versionText(v)
				if err != nil {
					return err
				}
				_, err = io.WriteString(a.out, text)
				return err
			case cli.JSON:
				return cli.WriteMessage(a.out, form, v)
			}
			return a.versions(form, []*apiv1.VersionInfo{v.GetInfo()})
		},
	}
}

// getVersion asks policyd for a version; shipped fragments are policyctl's own too.
func getVersion(ctx context.Context, c *cli.Client, kind, ref string) (*apiv1.Version, error) {
	res, err := c.Policies.GetVersion(ctx, &apiv1.GetVersionRequest{Kind: kind, Ref: ref})
	if err == nil {
		return res.GetVersion(), nil
	}
	if kind == policy.KindFragment && status.Code(err) == codes.NotFound {
		for _, d := range policy.StdFragments() {
			if d.Name == ref {
				return &apiv1.Version{
					Info:     &apiv1.VersionInfo{Kind: kind, Name: ref, Digest: policy.ContentDigest(d.Resource, nil), Description: d.Resource.GetFragment().GetMetadata().GetDescription()},
					Resource: d.Resource, Source: d.Source, SourceName: d.File, SourceLine: uint32(d.FirstLine),
				}, nil
			}
		}
	}
	return nil, err
}

// versionText is the text of a version: as written, else made from its content.
func versionText(v *apiv1.Version) (string, error) {
	if s := v.GetSource(); s != "" {
		return strings.TrimRight(s, "\n") + "\n", nil
	}
	text, err := policy.ToYAML(v.GetResource())
	return string(text), err
}

func (a *app) getMany(kind, word, short, example string) *cobra.Command {
	var labels []string
	var watch bool
	cmd := &cobra.Command{
		Use:     word,
		Short:   short,
		Long:    short + ". --watch goes on and prints what changes.",
		Example: example,
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			want, err := pairs("-l", labels)
			if err != nil {
				return err
			}
			if watch {
				return a.watch(cmd.Context(), form, kind, want)
			}
			ctx, c, cancel, err := a.call(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			list, err := listAll(ctx, c, kind, want)
			if err != nil {
				return err
			}
			if len(list) == 0 && (form == cli.Table || form == cli.Wide) {
				a.note("no %s", word)
				return nil
			}
			if kind == policy.KindBinding && (form == cli.Table || form == cli.Wide) {
				return a.bindingTable(ctx, c, form, list)
			}
			return a.versions(form, list)
		},
	}
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "only those with this label, NAME=VALUE; may be repeated")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, print what changes")
	return cmd
}

// listAll asks for all pages.
func listAll(ctx context.Context, c *cli.Client, kind string, labels map[string]string) ([]*apiv1.VersionInfo, error) {
	var all []*apiv1.VersionInfo
	for token := ""; ; {
		res, err := c.Policies.List(ctx, &apiv1.ListRequest{Kind: kind, Labels: labels, PageToken: token})
		if err != nil {
			return nil, err
		}
		all = append(all, res.GetVersions()...)
		if token = res.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// versions prints what is known of versions.
func (a *app) versions(form cli.Format, list []*apiv1.VersionInfo) error {
	return a.versionRows(form, list, true)
}

func (a *app) versionRows(form cli.Format, list []*apiv1.VersionInfo, titled bool) error {
	switch form {
	case cli.JSON, cli.YAML:
		return cli.WriteMessage(a.out, form, &apiv1.ListResponse{Versions: list})
	case cli.Name:
		for _, v := range list {
			fmt.Fprintln(a.out, cli.Clean(title(v)))
		}
		return nil
	}
	// Fragments may be policyctl's and policyd's own, without versions.
	fragments := len(list) > 0 && list[0].GetKind() == policy.KindFragment
	titles := []string{"NAME", "VERSION", "TAGS", "AUTHOR", "AGE", "DESCRIPTION"}
	if fragments {
		titles = slices.Insert(titles, 2, "SOURCE")
	}
	ofFleet := slices.ContainsFunc(list, func(v *apiv1.VersionInfo) bool { return v.GetOrigin() != "" })
	if ofFleet {
		titles = append(titles[:len(titles)-1:len(titles)-1], "ORIGIN", "DESCRIPTION")
	}
	if form == cli.Wide {
		titles = append(titles, "DIGEST", "LABELS", "INCLUDES", "MESSAGE")
	}
	if !titled {
		titles = nil
	}
	rows := cli.NewRows(a.out, titles...)
	for _, v := range list {
		number := fmt.Sprint(v.GetNumber())
		if v.GetNumber() == 0 {
			number = "-"
		}
		if v.GetDeleted() {
			number += " (deleted)"
		}
		cells := []string{v.GetName(), number, strings.Join(v.GetTags(), ","), v.GetAuthor(), age(v.GetCreated()), v.GetDescription()}
		if fragments {
			source := "stored"
			if policy.IsReserved(v.GetName()) {
				source = "shipped"
			}
			cells = slices.Insert(cells, 2, source)
		}
		if ofFleet {
			cells = slices.Insert(cells, len(cells)-1, origin(v))
		}
		if form == cli.Wide {
			var pins []string
			for _, p := range v.GetPins() {
				pins = append(pins, p.GetName())
			}
			cells = append(cells, v.GetDigest(), labelText(v.GetLabels()), strings.Join(pins, ","), v.GetMessage())
		}
		rows.Add(cells...)
	}
	return rows.Flush()
}

// origin is where a version comes from: the channel of a fleet with the number of its pointer, or this host.
func origin(v *apiv1.VersionInfo) string {
	if v.GetOrigin() == "" {
		return "local"
	}
	return "fleet " + v.GetOrigin()
}

// watchPause is the time between two looks of --watch.
const watchPause = time.Second

// watch prints the list, and then each document again when it changes.
func (a *app) watch(ctx context.Context, form cli.Format, kind string, labels map[string]string) error {
	ctx, c, cancel, err := a.streaming(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	seen := map[string]string{}
	for first := true; ; first = false {
		list, err := listAll(ctx, c, kind, labels)
		if err != nil {
			return a.ended(ctx, err)
		}
		now := map[string]string{}
		var changed []*apiv1.VersionInfo
		for _, v := range list {
			state := fmt.Sprint(v.GetNumber(), v.GetDigest(), v.GetDeleted(), v.GetTags(), v.GetOrigin())
			if now[v.GetName()] = state; seen[v.GetName()] != state {
				changed = append(changed, v)
			}
		}
		for name := range seen {
			if _, there := now[name]; !there {
				changed = append(changed, &apiv1.VersionInfo{Kind: kind, Name: name, Deleted: true})
			}
		}
		slices.SortFunc(changed, func(x, y *apiv1.VersionInfo) int { return strings.Compare(x.GetName(), y.GetName()) })
		if first || len(changed) > 0 {
			if err := a.changes(form, changed, first); err != nil {
				return err
			}
		}
		seen = now
		select {
		case <-ctx.Done():
			return a.ended(ctx, ctx.Err())
		case <-tick.C:
		}
	}
}

// changes is versions for an output that goes on: JSON is one line each, and a
// table has its titles once.
func (a *app) changes(form cli.Format, list []*apiv1.VersionInfo, first bool) error {
	if form != cli.JSON {
		return a.versionRows(form, list, first)
	}
	for _, v := range list {
		if err := a.line(v); err != nil {
			return err
		}
	}
	return nil
}
