package host

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/store"
)

// prepared is a bundle compiled for this host.
type prepared struct {
	puts []store.Put
	// smack is the bundle's SmackPolicy, numbered as the store is going to number it; nil when it has none.
	smack *apiv1.Version
	// degraded are the policies of which this kernel does not enforce everything, as they allow.
	degraded []string
	// local are the policies that this host may have its own versions of.
	local map[string]bool
}

// bundled finds fragments in the bundle alone: what it means must not depend on the node.
type bundled map[string]*apiv1.Fragment

func (b bundled) Fragment(name string) (*apiv1.Fragment, error) {
	if f := b[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("%w: fragment %q is not in the bundle", errs.ErrNotFound, name)
}

// known is a document that was compiled here before, by all that its result depends on beside this kernel: its text and
// the bundle's fragments. Of most bundles most documents are those of the bundle before.
type known map[[sha256.Size]byte]ready

// ready is a document that is compiled.
type ready struct {
	put  store.Put
	lost bool
}

// keyOf names a document with the fragments that it may include.
func keyOf(d fleet.Doc, fragments []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(fragments)
	for _, part := range []string{d.Kind, d.Name, d.Digest, d.Text} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// fragmentsOf is the hash of all fragments of a bundle.
func fragmentsOf(b *fleet.Bundle) []byte {
	h := sha256.New()
	for _, d := range b.Docs {
		if d.Kind == policy.KindFragment {
			key := keyOf(d, nil)
			h.Write(key[:])
		}
	}
	return h.Sum(nil)
}

// maxTold is how many documents an error tells of.
const maxTold = 5

// prepare compiles every document of a bundle for this kernel. The error tells of each that fails.
func (h *Host) prepare(b *fleet.Bundle) (*prepared, error) {
	p := &prepared{local: map[string]bool{}}
	for _, name := range b.Local {
		p.local[name] = true
	}
	docs := make([]*policy.Document, len(b.Docs)) // nil: known
	src := bundled{}
	var failed []error
	fragments, now := fragmentsOf(b), known{}
	for i, d := range b.Docs {
		key := keyOf(d, fragments)
		if r, ok := h.known[key]; ok && d.Kind == policy.KindPolicy {
			now[key] = r
			continue
		}
		var err error
		if docs[i], err = parse(d); err != nil {
			failed = append(failed, err)
		} else if f := docs[i].Resource.GetFragment(); f != nil {
			src[d.Name] = f
		}
	}
	if err := told(failed); err != nil {
		return nil, err
	}
	for i, d := range docs {
		key := keyOf(b.Docs[i], fragments)
		if d == nil {
			p.take(now[key])
			continue
		}
		r, err := h.one(p, d, b.Docs[i].Digest, src)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s/%s: %w", d.Kind, d.Name, err))
		} else if r != nil {
			p.take(*r)
			now[key] = *r
		}
	}
	if err := told(failed); err != nil {
		return nil, err
	}
	for _, d := range docs {
		if d == nil {
			continue
		}
		if err := h.checkBinding(d, p.puts); err != nil {
			failed = append(failed, fmt.Errorf("%s/%s: %w", d.Kind, d.Name, err))
		}
	}
	if err := told(failed); err != nil {
		return nil, err
	}
	h.known = now
	return p, nil
}

// take adds a compiled document.
func (p *prepared) take(r ready) {
	p.puts = append(p.puts, r.put)
	if r.lost {
		p.degraded = append(p.degraded, r.put.Name)
	}
}

func told(list []error) error {
	if len(list) > maxTold {
		list = append(list[:maxTold:maxTold], fmt.Errorf("and %d more documents", len(list)-maxTold))
	}
	return errors.Join(list...)
}

// parse reads the one document that an entry of a bundle is.
func parse(d fleet.Doc) (*policy.Document, error) {
	list, err := policy.ParseBundled(d.Kind+"/"+d.Name, []byte(d.Text))
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].Kind != d.Kind || list[0].Name != d.Name {
		return nil, fmt.Errorf("%w: %s/%s: the text in the bundle is not this document alone", errs.ErrInvalid, d.Kind, d.Name)
	}
	return list[0], nil
}

// one compiles a document, and holds it against the digest that was signed. It gives nil for one that is not stored.
func (h *Host) one(p *prepared, d *policy.Document, digest string, src policy.FragmentSource) (*ready, error) {
	pins, contents, err := policy.Pin(d, src)
	if err != nil {
		return nil, err
	}
	if got := policy.ContentDigest(d.Resource, pins); got != digest {
		return nil, fmt.Errorf("%w: its content has the digest %s here, the bundle says %s", errs.ErrTampered, got, digest)
	}
	r := &ready{put: store.Put{
		Kind: d.Kind, Name: d.Name, Resource: d.Resource, Source: d.Source, SourceName: d.File, SourceLine: uint32(d.FirstLine),
		Digest: digest, Pins: pins, PinContents: contents,
	}}
	switch k := d.Resource.GetKind().(type) {
	case *apiv1.Resource_LandlockPolicy:
		c, err := policy.Compile(k.LandlockPolicy, policy.CompileOptions{Parameters: policy.ExampleParameters(k.LandlockPolicy), Fragments: src, Document: d})
		if err != nil {
			return nil, err
		}
		if r.lost, err = h.enforceable(c.Profile); err != nil {
			return nil, err
		}
	case *apiv1.Resource_SmackPolicy:
		if p.smack != nil {
			return nil, fmt.Errorf("%w: the bundle has %s too, and a host has one SmackPolicy", errs.ErrInvalid, p.smack.GetInfo().GetName())
		}
		if _, err := policy.CompileSmack(k.SmackPolicy, d); err != nil {
			return nil, err
		}
		number, err := h.next(d, digest)
		if err != nil {
			return nil, err
		}
		p.smack = &apiv1.Version{
			Info:     &apiv1.VersionInfo{Kind: d.Kind, Name: d.Name, Number: number, Digest: digest},
			Resource: d.Resource, Source: d.Source, SourceName: d.File, SourceLine: uint32(d.FirstLine),
		}
	case *apiv1.Resource_PolicyTest:
		return nil, nil // for those who publish; nothing here runs it
	case *apiv1.Resource_Fragment:
		if policy.IsReserved(d.Name) {
			return nil, nil // it is kept with the versions that include it; the name belongs to this policyd's own
		}
	}
	return r, nil
}

// next is the number that a document with this content has, or is going to have.
func (h *Host) next(d *policy.Document, digest string) (uint64, error) {
	info, err := h.cfg.Store.Info(d.Kind, d.Name)
	switch {
	case err == nil && info.GetDigest() == digest:
		return info.GetNumber(), nil
	case err == nil:
		return info.GetNumber() + 1, nil
	case !errors.Is(err, errs.ErrNotFound) && !errors.Is(err, errs.ErrDeleted):
		return 0, err
	}
	history, err := h.cfg.Store.History(d.Kind, d.Name, 0, 1)
	if errors.Is(err, errs.ErrNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, err
	}
	return history[0].GetNumber() + 1, nil
}

// enforceable tells whether this kernel leaves out something of a profile that allows it; what it must not leave out is
// errs.ErrUnsupported, or why Landlock cannot be used.
func (h *Host) enforceable(p *profile.Profile) (lost bool, err error) {
	_, needs := p.Reduce(h.cfg.Support.ABI)
	if len(needs) == 0 || p.Degrade {
		return len(needs) > 0, nil
	}
	if h.cfg.Support.State != landlock.Available && h.cfg.Support.Err != nil {
		return false, h.cfg.Support.Err
	}
	names := make([]string, 0, len(needs))
	for _, n := range needs {
		names = append(names, n.String())
	}
	return false, fmt.Errorf("%w: it has Landlock ABI %d: %s", errs.ErrUnsupported, h.cfg.Support.ABI, strings.Join(names, "; "))
}

// lost is enforceable of a stored version.
func (h *Host) lost(v *apiv1.Version) (bool, error) {
	spec := v.GetResource().GetLandlockPolicy()
	c, err := policy.Compile(spec, policy.CompileOptions{
		Parameters: policy.ExampleParameters(spec), Fragments: policy.Pinned(v.GetInfo().GetPins(), h.cfg.Store.FragmentByDigest),
	})
	if err != nil {
		return false, err
	}
	return h.enforceable(c.Profile)
}

// checkBinding holds the values that a Binding gives against its policy, of the bundle or of this host.
func (h *Host) checkBinding(d *policy.Document, puts []store.Put) error {
	spec := d.Resource.GetBinding().GetSpec()
	if spec == nil {
		return nil
	}
	ref, err := store.ParseRef(store.KindLandlockPolicy, spec.GetPolicy())
	if err != nil {
		return err
	}
	for _, other := range puts {
		if other.Kind == policy.KindPolicy && other.Name == ref.Name {
			return policy.CheckParameters(other.Resource.GetLandlockPolicy(), spec.GetSet())
		}
	}
	v, err := h.cfg.Store.Get(store.KindLandlockPolicy, spec.GetPolicy())
	if err != nil {
		return fmt.Errorf("policy %s: %w", spec.GetPolicy(), err)
	}
	return policy.CheckParameters(v.GetResource().GetLandlockPolicy(), spec.GetSet())
}
