package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
)

// publishOptions are the flags of fleet publish.
type publishOptions struct {
	files, local, signWith []string
	message, out, url      string
	dryRun                 bool
}

// publishResult is what publish gives as JSON.
type publishResult struct {
	Fleet     string      `json:"fleet"`
	Channel   string      `json:"channel"`
	Digest    string      `json:"digest"`
	Size      int         `json:"size"`
	Published bool        `json:"published"` // false: it was there already, or --dry-run, or --out
	SignedBy  []string    `json:"signedBy"`
	Documents []docInfo   `json:"documents"`
	Changes   []docChange `json:"changes"` // against what the channel runs
}

type docInfo struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

func newFleetPublish(f *fleetApp) *cobra.Command {
	o := &publishOptions{}
	cmd := &cobra.Command{
		Use:   "publish CHANNEL [REF...] [-f FILE|FOLDER|-]",
		Short: "Make a bundle of policies, sign it, put it where nodes find it",
		Long: "publish makes one bundle of the documents of files, and of versions that policyd has (REF), with every\n" +
			"fragment they include. It compiles all of them, signs the list of their digests with the content key\n" +
			"and stores the bundle under its own digest. Equal documents give equal bundles. Nothing is rolled out:\n" +
			"what would change for the channel is shown, and fleet rollout moves the channel.\n\n" +
			"Where several content keys must sign, --out writes a bundle file, fleet sign adds signatures to it,\n" +
			"and publish -f FILE puts it into etcd. A bundle that is larger than etcd's limit of 1 MiB goes with --out to\n" +
			"a file that nodes find at --url; etcd then holds the signatures alone.",
		Example: "  policyctl fleet publish stable -f policies/ -m 'open port 8080'\n" +
			"  policyctl fleet publish stable web@7 SmackPolicy/site -m 'as tested on web-1'\n" +
			"  policyctl fleet publish stable -f policies/ --out web.bundle\n" +
			"  policyctl fleet publish stable -f policies/ --out big.bundle --url https://files.example.org/big.bundle",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("CHANNEL is missing")
			}
			return nil
		},
		ValidArgsFunction: f.completeChannelThen(f.completeAnyRefs(1000)),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := cli.ParseFormat(f.output, cli.Table, cli.JSON, cli.YAML, cli.Name)
			if err != nil {
				return err
			}
			if len(args) == 1 && len(o.files) == 0 {
				return cli.Usage(errors.New("nothing to publish: name versions, or files by -f"))
			}
			return f.publish(cmd.Context(), form, args, o)
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVarP(&o.files, "file", "f", nil, "file, folder (all *.yaml, *.yml beneath it), - for standard input, or one bundle file; may be repeated")
	fl.StringArrayVar(&o.local, "local", nil, "policy that a node's admin may override on the node; may be repeated")
	fl.StringArrayVar(&o.signWith, "sign-with", nil, "private content key, a file or credential:NAME; may be repeated (default those of the settings)")
	fl.StringVarP(&o.message, "message", "m", "", "why, signed with the bundle")
	fl.StringVar(&o.out, "out", "", "write a bundle file")
	fl.StringVar(&o.url, "url", "", "where nodes find the file of --out: https://host/path or file:///path")
	fl.BoolVar(&o.dryRun, "dry-run", false, "make the bundle, say what would change, sign and store nothing")
	_ = cmd.MarkFlagFilename("sign-with")
	return cmd
}

func (f *fleetApp) publish(ctx context.Context, form cli.Format, args []string, o *publishOptions) error {
	if err := f.load(); err != nil {
		return err
	}
	channel, err := f.channelArg(args[:1])
	if err != nil {
		return err
	}
	if o.url != "" {
		if err := fleet.ValidURL(o.url); err != nil {
			return cli.Usage(fmt.Errorf("--url: %w", err))
		}
		if o.out == "" {
			return cli.Usage(errors.New("--url needs --out: the file that nodes find there"))
		}
	}
	t, err := f.trust()
	if err != nil {
		return err
	}
	b, err := f.toPublish(ctx, args[1:], o, t)
	if err != nil {
		return err
	}
	res := publishResult{Fleet: f.Name, Channel: channel, Digest: b.manifest.Bundle, Size: b.manifest.Size, SignedBy: fleet.SignedBy(b.blob.Manifest), Changes: []docChange{}}
	for _, d := range b.manifest.Docs {
		res.Documents = append(res.Documents, docInfo(d))
	}
	stored := b.raw
	if o.out != "" && !o.dryRun {
		content := b.raw
		if o.url != "" {
			content = b.blob.Bundle // the signatures are in etcd
		}
		if err := writeFile(o.out, content, 0o644); err != nil {
			return err
		}
		if o.url == "" {
			return f.publishedText(form, res, o)
		}
		if stored, err = fleet.EncodeBlob(&fleet.Blob{Manifest: b.blob.Manifest, URL: o.url}); err != nil {
			return err
		}
	}
	if !o.dryRun {
		if _, err := fleet.OpenManifest(b.blob.Manifest, t, f.Name); err != nil {
			return fmt.Errorf("%w; --out FILE and fleet sign let others sign first", err)
		}
	}
	ctx, cancel, err := f.openLoaded(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if p, _, err := f.current(ctx, channel); err == nil {
		now, err := f.signed(ctx, p.Digest)
		if err != nil {
			return fmt.Errorf("what channel %s runs: %w", channel, err)
		}
		res.Changes = changesBetween(now.Docs, b.manifest.Docs)
	} else if !notFound(err) {
		return err
	} else {
		res.Changes = changesBetween(nil, b.manifest.Docs)
	}
	if !o.dryRun {
		res.Published, err = f.stored.PutBlob(ctx, b.manifest.Bundle, stored)
		if errors.Is(err, errs.ErrExists) {
			// The same documents, published before by somebody, at another time.
			if err = f.deliverable(ctx, b.manifest.Bundle); err != nil {
				return fmt.Errorf("bundle %s is there already and is not good: %w", bundleName(b.manifest.Bundle), err)
			}
		}
		if err != nil {
			return err
		}
	}
	return f.publishedText(form, res, o)
}

// toPublish is a bundle file that was given, or one that is made and signed now.
func (f *fleetApp) toPublish(ctx context.Context, refs []string, o *publishOptions, t fleet.Trust) (*bundle, error) {
	if len(o.files) == 1 && len(refs) == 0 && o.files[0] != cli.Stdin {
		if raw, ok := bundleFile(o.files[0]); ok {
			if o.message != "" || len(o.local) > 0 || len(o.signWith) > 0 {
				return nil, cli.Usage(errors.New("a bundle file is published as it is: no -m, --local, --sign-with"))
			}
			return openBundle(ctx, raw, t, f.Name, "")
		}
	}
	raw, content, err := f.makeBundle(ctx, o.files, refs, o.local)
	if err != nil {
		return nil, err
	}
	m, err := fleet.NewManifest(f.Name, raw, time.Now(), o.message)
	if err != nil {
		return nil, err
	}
	b := &bundle{manifest: m, content: content, blob: &fleet.Blob{Bundle: raw}}
	if o.dryRun {
		return b, nil
	}
	places := o.signWith
	if len(places) == 0 {
		places = f.ContentKeys.SignWith
	}
	signers, err := signersOf(places, "content", f.path())
	if err != nil {
		return nil, err
	}
	if b.blob.Manifest, err = fleet.SignManifest(m, signers...); err != nil {
		return nil, err
	}
	if b.raw, err = fleet.EncodeBlob(b.blob); err != nil {
		return nil, err
	}
	if len(b.raw) > fleet.MaxBlobBytes && o.url == "" && o.out == "" {
		return nil, fmt.Errorf("%w: the bundle has %s, etcd takes %s: give --out FILE and --url where nodes find it", errs.ErrTooLarge, size(uint64(len(b.raw))), size(fleet.MaxBlobBytes))
	}
	return b, nil
}

// bundleFile reads a file that is a bundle; ok is false for any other.
func bundleFile(name string) (raw []byte, ok bool) {
	file, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer file.Close()
	raw, err = io.ReadAll(io.LimitReader(file, 2*fleet.MaxBundleBytes))
	if err != nil {
		return nil, false
	}
	return raw, fleet.IsBlob(raw)
}

func writeFile(name string, raw []byte, mode os.FileMode) error {
	return cli.WriteAtomically(name, mode, func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	})
}

func (f *fleetApp) publishedText(form cli.Format, res publishResult, o *publishOptions) error {
	switch form {
	case cli.JSON, cli.YAML:
		return cli.WriteValue(f.out, form, res)
	case cli.Name:
		fmt.Fprintln(f.out, res.Digest)
		return nil
	}
	f.say("bundle %s: %s, %s", res.Digest, count(len(res.Documents), "document", "documents"), size(uint64(res.Size)))
	for _, c := range res.Changes {
		f.say("  %-8s %s/%s", c.Change, c.Kind, c.Name)
	}
	switch {
	case o.dryRun:
		f.say("nothing signed, nothing stored (dry run)")
	case o.out != "" && o.url == "":
		f.say("written to %s, not published; signed by %s", o.out, listText(res.SignedBy))
	case !res.Published:
		f.say("it was published before")
	default:
		f.say("published; signed by %s", listText(res.SignedBy))
	}
	if o.out != "" && o.url != "" && !o.dryRun {
		f.note("put %s where nodes find it: %s", o.out, o.url)
	}
	if !o.dryRun && (o.out == "" || o.url != "") {
		f.note("next: policyctl fleet rollout %s --to %s", res.Channel, bundleName(res.Digest))
	}
	return nil
}
