package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// given finds fragments in the files of the command line, then the shipped ones.
type given map[string]*apiv1.Fragment

// Fragment implements policy.FragmentSource.
func (g given) Fragment(name string) (*apiv1.Fragment, error) {
	if f := g[name]; f != nil {
		return f, nil
	}
	f, err := policy.Std().Fragment(name)
	if errors.Is(err, errs.ErrNotFound) {
		return nil, fmt.Errorf("fragment %s: %w among the given files and the shipped fragments", name, errs.ErrNotFound)
	}
	return f, err
}

// parsed is what files on the command line hold.
type parsed struct {
	docs      []*policy.Document
	fragments given
	findings  []*apiv1.Finding // errors of all files
}

// parse reads documents of files without a daemon. Errors in the documents are
// findings, so that all of them are told at once.
func (a *app) parse(files []string) (*parsed, error) {
	sources, err := cli.ReadSources(files, a.in)
	if err != nil {
		return nil, err
	}
	p := &parsed{fragments: given{}}
	for _, s := range sources {
		docs, err := policy.Parse(s.GetName(), s.GetContent())
		if found, ok := errors.AsType[*policy.Errors](err); ok {
			p.findings = append(p.findings, found.Findings()...)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.GetName(), err)
		}
		p.docs = append(p.docs, docs...)
	}
	for _, d := range p.docs {
		if f := d.Resource.GetFragment(); f != nil {
			p.fragments[d.Name] = f
		}
	}
	return p, nil
}

// compiled is a profile from the daemon or from files.
type compiled struct {
	name    string // web@3, or the name in the file
	profile *profile.Profile
	origins []*apiv1.Origin
	layers  []*apiv1.LayerPlace   // where the layers of the profile stand; nil: not known
	process *apiv1.Process        // nil: none
	policy  *apiv1.LandlockPolicy // it was compiled of; nil: not known
	encoded []byte
	digest  string
}

// compileFiles compiles the only policy among files.
func (a *app) compileFiles(files []string, set map[string]string) (*compiled, error) {
	p, err := a.parse(files)
	if err != nil {
		return nil, err
	}
	if err := a.refuse(p); err != nil {
		return nil, err
	}
	switch docs := p.policies(); len(docs) {
	case 0:
		return nil, errNoPolicy
	case 1:
		return p.compile(docs[0], set)
	default:
		return nil, severalPolicies(docs)
	}
}

var errNoPolicy = errors.New("no policy in the files: want one document of kind " + policy.KindPolicy)

func severalPolicies(docs []*policy.Document) error {
	var names []string
	for _, d := range docs {
		names = append(names, d.Name)
	}
	return fmt.Errorf("%d policies in the files (%s): want one", len(names), strings.Join(names, ", "))
}

// refuse tells the errors of documents, if there are any.
func (a *app) refuse(p *parsed) error {
	if len(p.findings) == 0 {
		return nil
	}
	cli.Findings(a.err, a.painter(a.err), p.findings)
	return &cli.Exit{Code: cli.ExitRefused}
}

func (p *parsed) policies() (docs []*policy.Document) {
	for _, d := range p.docs {
		if d.Kind == policy.KindPolicy {
			docs = append(docs, d)
		}
	}
	return docs
}

// compile compiles one of the policies.
func (p *parsed) compile(doc *policy.Document, set map[string]string) (*compiled, error) {
	out, err := policy.Compile(doc.Resource.GetLandlockPolicy(), policy.CompileOptions{Parameters: set, Fragments: p.fragments, Document: doc})
	if err != nil {
		return nil, err
	}
	encoded := out.Profile.Encode()
	return &compiled{
		name: doc.Name, profile: out.Profile, origins: out.Origins, layers: out.LayerPlaces, process: out.Process,
		policy: doc.Resource.GetLandlockPolicy(), encoded: encoded, digest: profile.Digest(encoded),
	}, nil
}

// asWritten as an ABI gives a profile with all that the policy says: what this
// kernel can do of it is decided here, where the origins of rows still fit.
const asWritten = profile.MaxABI

// fetch gets the profile of a version from policyd, compiled for a kernel of an
// ABI, with the settings of the process when wanted.
func (a *app) fetch(ctx context.Context, ref string, set map[string]string, abi uint32, process bool) (*compiled, error) {
	given := ref
	ref, err := landlockRef(ref)
	if err != nil {
		return nil, err
	}
	ctx, c, cancel, err := a.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	res, err := c.Profiles.GetProfile(ctx, &apiv1.GetProfileRequest{Ref: ref, Parameters: set, Abi: abi})
	if err != nil {
		return nil, fileHint(given, "-f "+given, otherKind(ctx, c, given, err))
	}
	if len(res.GetProfile()) == 0 {
		return nil, nothingLeft(ref, int(abi))
	}
	for _, m := range res.GetMissing() {
		a.note("not enforced: %s", missingText(m))
	}
	p, err := profile.Decode(res.GetProfile())
	if err != nil {
		return nil, fmt.Errorf("profile of %s: %w", ref, err)
	}
	if got := profile.Digest(res.GetProfile()); got != res.GetProfileDigest() {
		return nil, fmt.Errorf("profile of %s: its digest is %s, policyd said %s", ref, got, res.GetProfileDigest())
	}
	v := res.GetVersion()
	out := &compiled{
		name: fmt.Sprintf("%s@%d", v.GetName(), v.GetNumber()), profile: p, origins: res.GetOrigins(), layers: res.GetLayerPlaces(),
		encoded: res.GetProfile(), digest: res.GetProfileDigest(),
	}
	if process {
		// By number: the newest version may be another one by now.
		full, err := getVersion(ctx, c, policy.KindPolicy, out.name)
		if err != nil {
			return nil, err
		}
		if full.GetInfo().GetDigest() != v.GetDigest() {
			return nil, fmt.Errorf("%s was replaced meanwhile: %w", out.name, errs.ErrVersionMismatch)
		}
		out.policy = full.GetResource().GetLandlockPolicy()
		out.process = out.policy.GetSpec().GetProcess()
	}
	return out, nil
}

// load gets a profile by a reference or from files; exactly one is given.
func (a *app) load(ctx context.Context, ref string, files []string, set map[string]string, process bool) (*compiled, error) {
	if len(files) > 0 {
		return a.compileFiles(files, set)
	}
	return a.fetch(ctx, ref, set, asWritten, process)
}
