package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/fetch"
	"policyd.dev/policyd/internal/fleet/pack"
	"policyd.dev/policyd/internal/policy"
)

// bundle is a blob that was opened: every signature and digest holds.
type bundle struct {
	raw      []byte // the blob
	blob     *fleet.Blob
	manifest *fleet.Manifest
	content  *fleet.Bundle
}

// published reads a bundle from etcd, and from where its blob says it is.
func (f *fleetApp) published(ctx context.Context, digest string) (*bundle, error) {
	t, err := f.trust()
	if err != nil {
		return nil, err
	}
	raw, err := f.stored.Blob(ctx, digest)
	if err != nil {
		return nil, err
	}
	return openBundle(ctx, raw, t, f.Name, digest)
}

// signed reads what the content keys have signed of a bundle, and nothing of the bundle itself.
func (f *fleetApp) signed(ctx context.Context, digest string) (*fleet.Manifest, error) {
	t, err := f.trust()
	if err != nil {
		return nil, err
	}
	raw, err := f.stored.Blob(ctx, digest)
	if err != nil {
		return nil, err
	}
	b, err := fleet.DecodeBlob(raw)
	if err != nil {
		return nil, err
	}
	m, err := fleet.OpenManifest(b.Manifest, t, f.Name)
	if err == nil && m.Bundle != digest {
		err = fmt.Errorf("%w: the manifest is of bundle %s", errs.ErrTampered, bundleName(m.Bundle))
	}
	return m, err
}

// deliverable refuses a bundle that nodes would refuse. One by reference whose place does not answer here is none of these:
// a file:// is the nodes', and a server that is away must not keep a fleet from going back to what its nodes have kept.
func (f *fleetApp) deliverable(ctx context.Context, digest string) error {
	_, err := f.published(ctx, digest)
	if !errors.As(err, new(*fetch.AwayError)) {
		return err
	}
	f.note("bundle %s is signed, and its bytes cannot be looked at from here (%v): nodes that do not have it yet fetch it themselves", bundleName(digest), err)
	_, err = f.signed(ctx, digest)
	return err
}

// openBundle opens a blob. digest is "" when any bundle will do.
func openBundle(ctx context.Context, raw []byte, t fleet.Trust, name, digest string) (*bundle, error) {
	b := &bundle{raw: raw}
	var err error
	if b.blob, err = fleet.DecodeBlob(raw); err != nil {
		return nil, err
	}
	m, err := fleet.OpenManifest(b.blob.Manifest, t, name) // before anything is fetched
	if err != nil {
		return nil, err
	}
	var content []byte
	if b.blob.URL != "" {
		if content, err = fetch.Reference(ctx, http.DefaultClient, b.blob.URL, m.Size); err != nil {
			return nil, fmt.Errorf("bundle: %w", err)
		}
	}
	if digest == "" {
		digest = m.Bundle
	}
	b.manifest, b.content, err = b.blob.Open(t, name, digest, content)
	return b, err
}

// makeBundle builds a bundle of files and of versions that policyd has.
func (f *fleetApp) makeBundle(ctx context.Context, files, refs, local []string) ([]byte, *fleet.Bundle, error) {
	var docs []*policy.Document
	if len(files) > 0 {
		p, err := f.parse(files)
		if err != nil {
			return nil, nil, err
		}
		if err := f.refuse(p); err != nil {
			return nil, nil, err
		}
		docs = p.docs
	}
	fromDaemon, err := f.fetchDocuments(ctx, refs)
	if err != nil {
		return nil, nil, err
	}
	docs = append(docs, fromDaemon...)
	seen := map[string]bool{}
	for _, d := range docs {
		key := d.Kind + " " + d.Name
		if seen[key] {
			return nil, nil, fmt.Errorf("%w: %s is given twice", errs.ErrInvalid, key)
		}
		seen[key] = true
	}
	tests := 0
	for _, d := range docs {
		if d.Kind == policy.KindTest {
			tests++
		}
	}
	if tests > 0 {
		f.note("%s left out: policyctl test runs them", count(tests, "PolicyTest is", "PolicyTests are"))
	}
	b, err := pack.Make(docs, policy.Std(), local)
	if err != nil {
		return nil, nil, err
	}
	raw, err := fleet.Encode(b)
	if err != nil {
		return nil, nil, err
	}
	sorted, err := fleet.Decode(raw)
	return raw, sorted, err
}

// fetchDocuments reads versions from policyd, with the fragments they are pinned to.
func (f *fleetApp) fetchDocuments(ctx context.Context, refs []string) ([]*policy.Document, error) {
	var docs []*policy.Document
	have := map[string]string{} // digest of a fragment, by name
	add := func(kind, ref string) error {
		callCtx, c, cancel, err := f.call(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		v, err := getVersion(callCtx, c, kind, ref)
		if err != nil {
			return err
		}
		text, err := versionText(v)
		if err != nil {
			return err
		}
		parsed, err := policy.Parse(ref, []byte(text))
		if err != nil {
			return err
		}
		docs = append(docs, parsed...)
		for _, pin := range v.GetInfo().GetPins() {
			if policy.IsReserved(pin.GetName()) {
				continue
			}
			if old := have[pin.GetName()]; old != "" && old != pin.GetDigest() {
				return fmt.Errorf("%w: fragment %s is wanted in two versions; a bundle holds one", errs.ErrInvalid, pin.GetName())
			} else if old != "" {
				continue
			}
			have[pin.GetName()] = pin.GetDigest()
			fv, err := getVersion(callCtx, c, policy.KindFragment, pin.GetName()+"@"+pin.GetDigest())
			if err != nil {
				return err
			}
			text, err := versionText(fv)
			if err != nil {
				return err
			}
			fragment, err := policy.Parse(pin.GetName(), []byte(text))
			if err != nil {
				return err
			}
			docs = append(docs, fragment...)
		}
		return nil
	}
	for _, ref := range refs {
		kind, name := splitKind(ref)
		if kind == "" {
			kind = policy.KindPolicy
		}
		if err := add(kind, name); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// findDigest finds the one published bundle that a digest, or its beginning, means.
func (f *fleetApp) findDigest(ctx context.Context, given string) (string, error) {
	if fleet.ValidDigest(given) == nil {
		return given, nil
	}
	short := strings.TrimPrefix(given, "sha256:")
	if len(short) < 4 {
		return "", cli.Usage(fmt.Errorf("digest %q: want at least four digits", given))
	}
	all, err := f.stored.Bundles(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, d := range all {
		if strings.HasPrefix(d, "sha256:"+short) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("bundle %s: %w; policyctl fleet publish makes one", given, errs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("bundle %s: %d bundles begin so", given, len(found))
}

// bundleName is a digest for people: enough of it to tell bundles apart.
func bundleName(d string) string { return dashed(shortDigest(d)) }

// docChange is a document that differs between two bundles.
type docChange struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Change string `json:"change"` // added, removed, changed
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// changesBetween is what differs between the documents of two bundles, in their order.
func changesBetween(before, after []fleet.Entry) []docChange {
	was := map[string]string{}
	for _, d := range before {
		was[d.Kind+" "+d.Name] = d.Digest
	}
	out := []docChange{}
	now := map[string]bool{}
	for _, d := range after {
		key := d.Kind + " " + d.Name
		now[key] = true
		switch old := was[key]; {
		case old == "":
			out = append(out, docChange{d.Kind, d.Name, "added", "", d.Digest})
		case old != d.Digest:
			out = append(out, docChange{d.Kind, d.Name, "changed", old, d.Digest})
		}
	}
	for _, d := range before {
		if !now[d.Kind+" "+d.Name] {
			out = append(out, docChange{d.Kind, d.Name, "removed", d.Digest, ""})
		}
	}
	return out
}

// current is a channel's verified pointer; errs.ErrNotFound before the first.
func (f *fleetApp) current(ctx context.Context, channel string) (*fleet.Pointer, int64, error) {
	t, err := f.trust()
	if err != nil {
		return nil, 0, err
	}
	c, err := f.stored.Channel(ctx, channel)
	if err != nil {
		return nil, 0, err
	}
	if c.Signed == nil {
		return nil, 0, fmt.Errorf("channel %s: %w: nothing was rolled out yet", channel, errs.ErrNotFound)
	}
	p, err := fleet.OpenPointer(c.Signed, t, f.Name, channel)
	if err != nil {
		return nil, 0, fmt.Errorf("channel %s: %w", channel, err)
	}
	return p, c.ModRev, nil
}

// ageOf is age of a time.
func ageOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return durationText(max(time.Since(t), 0))
}

// notFound tells that an error is only that something is not there.
func notFound(err error) bool { return errors.Is(err, errs.ErrNotFound) }

// dashed is a cell of a table, or - for nothing.
func dashed(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
