// Package pack makes bundles of checked documents: it finds every fragment they
// include, the shipped ones too, compiles what can be compiled, and names each
// document by its content digest.
//
// It imports internal/fleet, internal/policy, internal/errs and the api.
package pack

import (
	"fmt"
	"slices"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/policy"
)

// Kinds are the kinds of documents that a bundle may hold. Tests of policies are
// run before, not on nodes.
var Kinds = []string{policy.KindPolicy, policy.KindFragment, policy.KindSmack, policy.KindBinding}

// Make gives the bundle of documents. src finds the fragments that are not among
// them (policy.Std for the shipped ones). local are the policies that nodes may
// override; each must be in it. PolicyTests are left out. Errors in documents
// are a *policy.Errors.
func Make(docs []*policy.Document, src policy.FragmentSource, local []string) (*fleet.Bundle, error) {
	all, err := withShipped(docs, src)
	if err != nil {
		return nil, err
	}
	fragments := policy.WithDocuments(all, src)
	b := &fleet.Bundle{Local: local}
	for _, d := range all {
		if !slices.Contains(Kinds, d.Kind) {
			continue
		}
		doc, err := one(d, fragments)
		if err != nil {
			return nil, err
		}
		b.Docs = append(b.Docs, doc)
	}
	for _, name := range local {
		if !slices.ContainsFunc(b.Docs, func(d fleet.Doc) bool { return d.Kind == policy.KindPolicy && d.Name == name }) {
			return nil, fmt.Errorf("%w: %s is to be open to nodes and is no %s of the bundle", errs.ErrInvalid, name, policy.KindPolicy)
		}
	}
	return b, nil
}

// withShipped adds the shipped fragments that documents include.
func withShipped(docs []*policy.Document, src policy.FragmentSource) ([]*policy.Document, error) {
	all := slices.Clone(docs)
	there := map[string]bool{}
	for _, d := range docs {
		if d.Kind == policy.KindFragment {
			there[d.Name] = true
		}
	}
	for _, d := range docs {
		pins, _, err := policy.Pin(d, policy.WithDocuments(docs, src))
		if err != nil {
			return nil, err
		}
		for _, pin := range pins {
			if there[pin.GetName()] {
				continue
			}
			there[pin.GetName()] = true
			i := slices.IndexFunc(policy.StdFragments(), func(f *policy.Document) bool { return f.Name == pin.GetName() })
			if i < 0 {
				return nil, fmt.Errorf("%s %s includes %s: %w; a bundle holds every fragment it needs", d.Kind, d.Name, pin.GetName(), errs.ErrNotFound)
			}
			all = append(all, policy.StdFragments()[i])
		}
	}
	return all, nil
}

// one checks a document and gives its place in a bundle.
func one(d *policy.Document, fragments policy.FragmentSource) (fleet.Doc, error) {
	pins, _, err := policy.Pin(d, fragments)
	if err != nil {
		return fleet.Doc{}, err
	}
	if p := d.Resource.GetLandlockPolicy(); p != nil {
		if _, err := policy.Compile(p, policy.CompileOptions{Parameters: policy.ExampleParameters(p), Fragments: fragments, Document: d}); err != nil {
			return fleet.Doc{}, err
		}
	}
	if s := d.Resource.GetSmackPolicy(); s != nil {
		if _, err := policy.CompileSmack(s, d); err != nil {
			return fleet.Doc{}, err
		}
	}
	text := d.Source
	if text == "" {
		raw, err := policy.ToYAML(d.Resource)
		if err != nil {
			return fleet.Doc{}, err
		}
		text = string(raw)
	}
	return fleet.Doc{Kind: d.Kind, Name: d.Name, Digest: policy.ContentDigest(d.Resource, pins), Text: text}, nil
}

// Documents reads the documents of a bundle, and refuses one that is not what its
// digest says: the same check a node makes before it activates anything.
func Documents(b *fleet.Bundle) ([]*policy.Document, error) {
	var docs []*policy.Document
	for _, d := range b.Docs {
		parsed, err := policy.ParseBundled(d.Kind+"/"+d.Name, []byte(d.Text))
		if err != nil {
			return nil, err
		}
		if len(parsed) != 1 || parsed[0].Kind != d.Kind || parsed[0].Name != d.Name {
			return nil, fmt.Errorf("%w: the text of %s %s is another document's", errs.ErrTampered, d.Kind, d.Name)
		}
		docs = append(docs, parsed[0])
	}
	for i, d := range docs {
		made, err := one(d, policy.WithDocuments(docs, nothing{}))
		if err != nil {
			return nil, err
		}
		if made.Digest != b.Docs[i].Digest {
			return nil, fmt.Errorf("%w: %s %s has the digest %s, the bundle says %s", errs.ErrTampered, d.Kind, d.Name, made.Digest, b.Docs[i].Digest)
		}
	}
	return docs, nil
}
