package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/pack"
)

// verified is what fleet verify gives as JSON.
type verified struct {
	Fleet     string    `json:"fleet"`
	Digest    string    `json:"digest"`
	Size      int       `json:"size"`
	Created   time.Time `json:"created"`
	Message   string    `json:"message"`
	SignedBy  []string  `json:"signedBy"`
	Local     []string  `json:"local"`
	URL       string    `json:"url"`
	Documents []docInfo `json:"documents"`
}

func newFleetVerify(f *fleetApp) *cobra.Command {
	return &cobra.Command{
		Use:   "verify BUNDLE",
		Short: "Check a bundle as a node does: signatures, digests, and that it compiles",
		Long: "BUNDLE is a file, or the digest (or its first digits) of a published bundle. Enough content keys must\n" +
			"have signed it, for this fleet; it must hold exactly what the signed list names; every document must\n" +
			"have the digest that the list gives, and compile.",
		Example:           "  policyctl fleet verify web.bundle\n  policyctl fleet verify sha256:0f3c -o json",
		Args:              exactly("BUNDLE"),
		ValidArgsFunction: f.completeBundles,
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(f.output, cli.Table, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			b, err := f.bundleOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := pack.Documents(b.content); err != nil {
				return err
			}
			m := b.manifest
			v := verified{m.Fleet, m.Bundle, m.Size, m.Created, m.Message, fleet.SignedBy(b.blob.Manifest), append([]string{}, m.Local...), b.blob.URL, nil}
			for _, d := range m.Docs {
				v.Documents = append(v.Documents, docInfo(d))
			}
			switch form {
			case cli.JSON, cli.YAML:
				return cli.WriteValue(f.out, form, v)
			case cli.Name:
				fmt.Fprintln(f.out, v.Digest)
				return nil
			}
			f.say("bundle %s of fleet %s is good: %s, %s", v.Digest, v.Fleet, count(len(v.Documents), "document", "documents"), size(uint64(v.Size)))
			f.say("  signed by %s, made %s", listText(v.SignedBy), v.Created.Local().Format("2006-01-02 15:04:05"))
			if v.Message != "" {
				f.say("  %s", v.Message)
			}
			for _, d := range v.Documents {
				f.say("  %s/%s %s", d.Kind, d.Name, bundleName(d.Digest))
			}
			return nil
		},
	}
}

// bundleOf opens a bundle of a file or of etcd.
func (f *fleetApp) bundleOf(ctx context.Context, name string) (*bundle, error) {
	if err := f.load(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(name); err == nil {
		raw, ok := bundleFile(name)
		if !ok {
			return nil, fmt.Errorf("%w: %s is not a bundle", errs.ErrInvalid, name)
		}
		t, err := f.trust()
		if err != nil {
			return nil, err
		}
		return openBundle(ctx, raw, t, f.Name, "")
	}
	if !strings.HasPrefix(name, "sha256:") && strings.ContainsAny(name, "/.") {
		return nil, fmt.Errorf("%s: %w", name, os.ErrNotExist)
	}
	ctx, cancel, err := f.openLoaded(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	digest, err := f.findDigest(ctx, name)
	if err != nil {
		return nil, err
	}
	return f.published(ctx, digest)
}

func newFleetSign(f *fleetApp) *cobra.Command {
	var signWith []string
	cmd := &cobra.Command{
		Use:   "sign FILE",
		Short: "Add a signature to a bundle file or a pointer file",
		Long: "sign adds signatures to a file that publish --out or rollout --out wrote, after it has shown what is\n" +
			"signed. Content keys sign bundles, rollout keys sign pointers. It needs no etcd.",
		Example: "  policyctl fleet sign web.bundle --sign-with bob.key\n  policyctl fleet sign stable.pointer --sign-with credential:rollout",
		Args:    exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := cli.ParseFormat(f.output, cli.Table); err != nil {
				return err
			}
			if err := f.load(); err != nil {
				return err
			}
			raw, isBundle := bundleFile(args[0])
			role := f.ContentKeys
			word := "content"
			if !isBundle {
				var err error
				if raw, err = readSmall(args[0]); err != nil {
					return err
				}
				role, word = f.RolloutKeys, "rollout"
			}
			if len(signWith) > 0 {
				role.SignWith = signWith
			}
			signers, err := signersOf(role.SignWith, word, f.path())
			if err != nil {
				return err
			}
			text := raw
			var blob *fleet.Blob
			if isBundle {
				if blob, err = fleet.DecodeBlob(raw); err != nil {
					return err
				}
				text = blob.Manifest
			}
			payload := fleet.TypePointer
			if isBundle {
				payload = fleet.TypeManifest
			}
			if !strings.HasPrefix(string(text), payload+"\n") {
				return fmt.Errorf("%w: %s is neither a bundle nor a pointer", errs.ErrWrongType, args[0])
			}
			signed, err := fleet.AddSignature(text, signers...)
			if err != nil {
				return err
			}
			shown, _, _ := strings.Cut(string(text), "\n\n")
			f.note("this is signed:\n%s", shown)
			out := signed
			if isBundle {
				blob.Manifest = signed
				if out, err = fleet.EncodeBlob(blob); err != nil {
					return err
				}
			}
			if err := writeFile(args[0], out, 0o644); err != nil {
				return err
			}
			f.say("%s: signed by %s", args[0], listText(fleet.SignedBy(signed)))
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&signWith, "sign-with", nil, "private key, a file or credential:NAME; may be repeated (default those of the settings)")
	_ = cmd.MarkFlagFilename("sign-with")
	return cmd
}

// nodeDiff is what fleet diff gives as JSON.
type nodeDiff struct {
	Node     string      `json:"node"`
	Channel  string      `json:"channel"`
	State    fleet.State `json:"state"`
	Why      string      `json:"why"`
	Wanted   string      `json:"wanted"`  // digest of the bundle it should run
	Reached  bool        `json:"reached"` // by the rollout
	Because  string      `json:"because"` // why that one
	Loaded   string      `json:"loaded"`
	Same     bool        `json:"same"`
	Changes  []docChange `json:"changes"` // from what it runs to what it should
	Overrode []string    `json:"overrides"`
}

func newFleetDiff(f *fleetApp) *cobra.Command {
	return &cobra.Command{
		Use:   "diff CHANNEL NODE",
		Short: "Compare what a node runs with what it should",
		Long: "diff works out from the channel's signed pointer and the node's labels which bundle the node should\n" +
			"run, and compares it with the one it says it has in force, document by document. It ends with 0 when\n" +
			"they are the same, with 1 when they are not.",
		Example:     "  policyctl fleet diff stable web-1\n  policyctl fleet diff stable web-1 -o json",
		Annotations: map[string]string{exitRuleKey: exitAnswers},
		Args:        exactly("CHANNEL", "NODE"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return f.completeNodes(cmd, nil, typed)
			}
			return f.completeChannels(cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(f.output, cli.Table, cli.JSON, cli.YAML)
			if err != nil {
				return err
			}
			ctx, cancel, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			d, err := f.nodeDiff(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			if form != cli.Table {
				err = cli.WriteValue(f.out, form, d)
			} else {
				f.printDiff(d)
			}
			if err == nil && !d.Same {
				err = &cli.Exit{Code: cli.ExitRefused}
			}
			return err
		},
	}
}

func (f *fleetApp) nodeDiff(ctx context.Context, channel, name string) (*nodeDiff, error) {
	channel, err := f.channelArg([]string{channel})
	if err != nil {
		return nil, err
	}
	p, _, err := f.current(ctx, channel)
	if err != nil {
		return nil, err
	}
	nodes, err := f.stored.Nodes(ctx, "")
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n := &nodes[i]
		if n.Name != name {
			continue
		}
		if n.Spec.Channel != channel {
			return nil, fmt.Errorf("%w: node %s follows channel %s", errs.ErrWrongChannel, name, n.Spec.Channel)
		}
		st := statusOrNone(n)
		d := &nodeDiff{Node: name, Channel: channel, State: n.State(), Why: whyText(n), Loaded: st.LoadedDigest, Overrode: append([]string{}, st.Overrides...)}
		d.Wanted, d.Reached, d.Because = p.Desired(name, n.Spec.Labels)
		d.Same = d.Wanted == d.Loaded
		d.Changes = []docChange{}
		if d.Same {
			return d, nil
		}
		var entries [2][]fleet.Entry
		for i, digest := range []string{d.Loaded, d.Wanted} {
			if digest == "" {
				continue
			}
			m, err := f.signed(ctx, digest)
			if err != nil {
				return nil, err
			}
			entries[i] = m.Docs
		}
		d.Changes = changesBetween(entries[0], entries[1])
		return d, nil
	}
	return nil, fmt.Errorf("node %s: %w", name, errs.ErrNotFound)
}

func (f *fleetApp) printDiff(d *nodeDiff) {
	f.say("%s is %s%s", d.Node, d.State, colon(d.Why))
	f.say("  wanted  %s (%s)", bundleName(d.Wanted), d.Because)
	f.say("  in force %s", bundleName(d.Loaded))
	for _, c := range d.Changes {
		f.say("  %-8s %s/%s %s -> %s", c.Change, c.Kind, c.Name, bundleName(c.Before), bundleName(c.After))
	}
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// readSmall reads a file that is no larger than a pointer.
func readSmall(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	const most = 64 << 10
	raw, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && len(raw) > most {
		err = fmt.Errorf("%s: %w: more than %d bytes", name, errs.ErrTooLarge, most)
	}
	return raw, err
}

func writeLine(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", raw)
	return err
}

// listText is names for people.
func listText(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}
