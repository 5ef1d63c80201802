package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
)

// bindingTable is the list of Bindings for people: whom each matches, and what they get.
func (a *app) bindingTable(ctx context.Context, c *cli.Client, form cli.Format, list []*apiv1.VersionInfo) error {
	titles := []string{"NAME", "VERSION", "POLICY", "MATCHES", "AGE", "DESCRIPTION"}
	if form == cli.Wide {
		titles = []string{"NAME", "VERSION", "POLICY", "SET", "MATCHES", "AUTHOR", "AGE", "TAGS", "DESCRIPTION", "DIGEST", "LABELS", "MESSAGE"}
	}
	rows := cli.NewRows(a.out, titles...)
	for _, v := range list {
		full, err := getVersion(ctx, c, v.GetKind(), fmt.Sprintf("%s@%d", v.GetName(), v.GetNumber()))
		if err != nil {
			return err
		}
		spec := full.GetResource().GetBinding().GetSpec()
		number, matches := fmt.Sprint(v.GetNumber()), matchText(spec.GetMatch())
		if form == cli.Wide {
			rows.Add(v.GetName(), number, spec.GetPolicy(), labelText(spec.GetSet()), matches, v.GetAuthor(), age(v.GetCreated()),
				strings.Join(v.GetTags(), ","), v.GetDescription(), v.GetDigest(), labelText(v.GetLabels()), v.GetMessage())
			continue
		}
		rows.Add(v.GetName(), number, spec.GetPolicy(), clip(matches, 60), age(v.GetCreated()), v.GetDescription())
	}
	return rows.Flush()
}

// matchText is a selection on one line, in the order in which Bindings are compared.
func matchText(m *apiv1.BindingMatch) string {
	var parts []string
	pairs := func(key string, have map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(have)) {
			parts = append(parts, key+" "+name+"="+have[name])
		}
	}
	list := func(key string, have []string) {
		if len(have) > 0 {
			parts = append(parts, key+" "+strings.Join(have, "|"))
		}
	}
	pairs("annotation", m.GetAnnotation())
	list("image", m.GetImage())
	pairs("label", m.GetLabel())
	list("namespace", m.GetNamespace())
	list("unit", m.GetUnit())
	list("uid", m.GetUid())
	list("smackLabel", m.GetSmackLabel())
	return strings.Join(parts, ", ")
}
