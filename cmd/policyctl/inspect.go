package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
)

// maxProfile bounds what inspect reads, bytes.
const maxProfile = 256 << 20

// inspected is a profile in words. Its JSON names are an interface.
type inspected struct {
	Name    string           `json:"name"`
	Digest  string           `json:"digest"`
	ABI     int              `json:"abi"`
	Degrade bool             `json:"degrade"`
	Flatten bool             `json:"flatten"`
	Accept  []string         `json:"accept"`
	Layers  []inspectedLayer `json:"layers"`
	Paths   []inspectedRow   `json:"paths"`
	Ports   []inspectedRow   `json:"ports"`
	Needs   []string         `json:"needs"`
}

type inspectedLayer struct {
	Name     string              `json:"name"`
	Handles  map[string][]string `json:"handles"` // by kind: fs, net, scope
	Quiet    map[string][]string `json:"quiet"`
	LogFlags uint32              `json:"logFlags"`
}

type inspectedRow struct {
	Path    string     `json:"path,omitempty"`
	Missing string     `json:"missing,omitempty"`
	Within  string     `json:"within,omitempty"` // folder that symbolic links must not lead out of
	First   *uint16    `json:"first,omitempty"`
	Last    *uint16    `json:"last,omitempty"`
	Access  [][]string `json:"access"` // rights granted, one list for each layer
	Quiet   []bool     `json:"quiet"`  // per layer: denials here are not logged
}

func newInspect(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "inspect PROFILE",
		Short:   "Show what is in a compiled profile",
		Long:    "inspect shows the layers, what they handle, and every row of a binary profile (see compile).\nPROFILE is a file, or - for standard input.",
		Example: "  policyctl inspect web.profile\n  policyctl compile web -o - | policyctl inspect - -o json",
		Args:    exactly("PROFILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(a.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			in := a.in
			if args[0] != cli.Stdin {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			b, err := io.ReadAll(io.LimitReader(in, maxProfile+1))
			if err != nil {
				return err
			}
			if len(b) > maxProfile {
				return fmt.Errorf("%s: larger than %s", args[0], size(maxProfile))
			}
			p, err := profile.Decode(b)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if form != cli.Table {
				return cli.WriteValue(a.out, form, inspection(p, profile.Digest(b)))
			}
			return a.inspectTable(p, profile.Digest(b))
		},
	}
}

func (a *app) inspectTable(p *profile.Profile, digest string) error {
	mode := "required"
	if p.Degrade {
		mode = "degrade"
	}
	head := cli.NewRows(a.out)
	head.Add("policy", p.Name)
	head.Add("digest", digest)
	head.Add("abi", fmt.Sprint(p.ABI))
	head.Add("enforcement", mode)
	if err := head.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	rows := cli.NewRows(a.out, "LAYER", "NAME", "HANDLES FS", "HANDLES NET", "SCOPE")
	for i, l := range p.Layers {
		rows.Add(fmt.Sprint(i), l.Name, maskNames(profile.FS, l.FS, p.ABI), maskNames(profile.Net, l.Net, p.ABI), maskNames(profile.Scope, l.Scope, p.ABI))
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	if len(p.Paths) > 0 {
		fmt.Fprintln(a.out)
		rows = cli.NewRows(a.out, "PATH", "LAYER", "GRANTS", "MISSING")
		for _, r := range p.Paths {
			missing := r.Missing.String()
			if r.Within > 0 {
				missing += ", not out of " + r.Path[:r.Within]
			}
			addMasks(rows, p, profile.FS, r.Path, r.Access, missing)
		}
		if err := rows.Flush(); err != nil {
			return err
		}
	}
	if len(p.Ports) > 0 {
		fmt.Fprintln(a.out)
		rows = cli.NewRows(a.out, "PORTS", "LAYER", "GRANTS")
		for _, r := range p.Ports {
			ports := fmt.Sprint(r.First)
			if r.Last != r.First {
				ports += fmt.Sprintf("-%d", r.Last)
			}
			addMasks(rows, p, profile.Net, ports, r.Access)
		}
		return rows.Flush()
	}
	return nil
}

// addMasks adds a line for every layer that has a rule there.
func addMasks(rows *cli.Rows, p *profile.Profile, k profile.Kind, name string, masks []profile.Access, more ...string) {
	for l, m := range masks {
		if m != 0 {
			rows.Add(append([]string{name, p.Layers[l].Name, maskNames(k, m, p.ABI)}, more...)...)
		}
	}
}

func inspection(p *profile.Profile, digest string) *inspected {
	out := &inspected{
		Name: p.Name, Digest: digest, ABI: p.ABI, Degrade: p.Degrade, Flatten: p.Flatten,
		Accept: []string{}, Paths: []inspectedRow{}, Ports: []inspectedRow{}, Needs: []string{},
	}
	if p.AcceptSharedInode {
		out.Accept = append(out.Accept, "shared_inodes")
	}
	if p.AcceptReferFlatten {
		out.Accept = append(out.Accept, "refer")
	}
	kinds := func(fs, net, scope profile.Access) map[string][]string {
		return map[string][]string{
			"fs": names(profile.FS, fs), "net": names(profile.Net, net), "scope": names(profile.Scope, scope),
		}
	}
	for _, l := range p.Layers {
		out.Layers = append(out.Layers, inspectedLayer{
			Name: l.Name, Handles: kinds(l.FS, l.Net, l.Scope), Quiet: kinds(l.QuietFS, l.QuietNet, l.QuietScope), LogFlags: uint32(l.Log),
		})
	}
	for _, r := range p.Paths {
		row := inspectedRow{Path: r.Path, Missing: r.Missing.String(), Within: r.Path[:r.Within]}
		row.masks(profile.FS, r.Access)
		out.Paths = append(out.Paths, row)
	}
	for _, r := range p.Ports {
		row := inspectedRow{First: &r.First, Last: &r.Last}
		row.masks(profile.Net, r.Access)
		out.Ports = append(out.Ports, row)
	}
	for _, n := range p.Required() {
		out.Needs = append(out.Needs, n.String())
	}
	return out
}

func (r *inspectedRow) masks(k profile.Kind, masks []profile.Access) {
	for _, m := range masks {
		r.Access = append(r.Access, names(k, m))
		r.Quiet = append(r.Quiet, m&profile.QuietRule != 0)
	}
}

// names is never nil, so that JSON has an empty list and not null.
func names(k profile.Kind, a profile.Access) []string {
	return append([]string{}, k.Names(a)...)
}
