package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
)

// exitGained is the exit code of diff --semantic when B allows more.
const exitGained = 3

// profileFirst is the first byte of a compiled profile. No UTF-8 begins with it.
const profileFirst = 0x89

// semantic compares what two policies allow. Its answers are exit codes that
// failures have elsewhere, so here all of those are 2.
func (a *app) semantic(ctx context.Context, args []string, sets []string, abi int) error {
	answer, err := a.semanticAnswer(ctx, args, sets, abi)
	switch code := cli.ExitCode(err); {
	case code == cli.ExitTimedOut, code == cli.ExitInterrupted:
		return err
	case err != nil:
		if exit, ok := errors.AsType[*cli.Exit](err); ok && exit.Err == nil {
			err = nil // all was said
		}
		return &cli.Exit{Code: cli.ExitUsage, Err: err}
	case answer != cli.ExitOK:
		return &cli.Exit{Code: answer}
	}
	return nil
}

func (a *app) semanticAnswer(ctx context.Context, args []string, sets []string, abi int) (int, error) {
	form, err := cli.ParseFormat(a.output, cli.Table, cli.Wide, cli.JSON, cli.YAML)
	if err != nil {
		return 0, err
	}
	set, err := pairs("--set", sets)
	if err != nil {
		return 0, err
	}
	both, is, err := a.smackSides(ctx, args)
	switch {
	case err != nil:
		return 0, err
	case is && (len(sets) > 0 || abi > 0):
		return 0, cli.Usage(errors.New("--set and --abi are not for Smack policies"))
	case is:
		return a.semanticSmackAnswer(args, both, form)
	}
	var sides [2]*compiled
	unused := maps.Clone(set)
	for i, what := range args {
		if sides[i], err = a.comparable(ctx, what, set, unused); err != nil {
			return 0, named(what, err)
		}
	}
	for name := range unused {
		return 0, cli.Usage(fmt.Errorf("--set %s: neither %s nor %s has that parameter", name, args[0], args[1]))
	}
	if abi == 0 {
		abi = max(sides[0].profile.ABI, sides[1].profile.ABI)
	}
	for i, c := range sides {
		if err := enforceable(c.profile, abi); err != nil {
			return 0, fmt.Errorf("%s: nothing starts under it on a kernel of ABI %d: %w", args[i], abi, err)
		}
	}
	diff, err := profile.Compare(sides[0].profile, sides[1].profile, abi)
	if err != nil {
		return 0, err
	}
	diff.Settings = append(diff.Settings, processSettings(sides)...)
	t := newTold(args, sides, diff)
	if form == cli.Table || form == cli.Wide {
		err = a.semanticTable(t, form == cli.Wide)
	} else {
		err = cli.WriteValue(a.out, form, t)
	}
	switch {
	case err != nil:
		return 0, err
	case diff.Gains():
		return exitGained, nil
	case !diff.Equal():
		return cli.ExitRefused, nil
	}
	return cli.ExitOK, nil
}

// named says which of the two an error is about, unless it says so itself.
func named(what string, err error) error {
	if strings.HasPrefix(err.Error(), what+":") {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// enforceable refuses to speak of a kernel on which nothing would start.
func enforceable(p *profile.Profile, abi int) error {
	q, lost := p.Reduce(abi)
	for _, n := range lost {
		if n.Confines() && !p.Degrade {
			return fmt.Errorf("%w: %v", errs.ErrUnsupported, n)
		}
	}
	if !q.Flatten && len(q.Layers) <= profile.MaxKernelLayers || len(q.Layers) == 0 {
		return nil
	}
	flat, err := profile.Flatten(q)
	if err != nil {
		return err
	}
	return flat.CheckRefer()
}

// comparable loads one of the two: a compiled profile by its first byte, YAML from
// a file or folder, else a version from policyd. Values of parameters that it
// does not have are left out; those it has are struck from unused.
func (a *app) comparable(ctx context.Context, what string, set, unused map[string]string) (*compiled, error) {
	if !isProfileOrFile(what) {
		kind, ref := splitKind(what)
		if kind != policy.KindPolicy {
			return nil, errors.New("a fragment allows nothing by itself: compare policies that include it, or leave out --semantic")
		}
		if len(set) > 0 {
			v, err := a.version(ctx, kind, ref)
			if err != nil {
				return nil, err
			}
			// By number from here on: the newest version may be another one soon.
			ref = fmt.Sprintf("%s@%d", v.GetInfo().GetName(), v.GetInfo().GetNumber())
			set = declared(v.GetResource().GetLandlockPolicy(), set, unused)
		}
		return a.fetch(ctx, ref, set, asWritten, true)
	}
	compiled, err := a.beginsAsProfile(what)
	if err != nil {
		return nil, err
	}
	if compiled {
		return a.readProfile(what)
	}
	if len(set) > 0 {
		// Read once more below: standard input is kept for that.
		var kept bytes.Buffer
		in := a.in
		a.in = io.TeeReader(in, &kept)
		p, err := a.parse([]string{what})
		a.in = io.MultiReader(&kept, in)
		if err != nil {
			return nil, err
		}
		all := map[string]string{}
		for _, d := range p.docs {
			maps.Copy(all, declared(d.Resource.GetLandlockPolicy(), set, unused))
		}
		if len(p.findings) == 0 {
			set = all
		}
	}
	return a.compileFiles([]string{what}, set)
}

func (a *app) version(ctx context.Context, kind, ref string) (*apiv1.Version, error) {
	ctx, c, cancel, err := a.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return getVersion(ctx, c, kind, ref)
}

// declared gives the values of parameters that a policy has.
func declared(p *apiv1.LandlockPolicy, set, unused map[string]string) map[string]string {
	out := map[string]string{}
	for _, param := range p.GetSpec().GetParameters() {
		if v, ok := set[param.GetName()]; ok {
			out[param.GetName()] = v
			delete(unused, param.GetName())
		}
	}
	return out
}

// isProfileOrFile is isFile for names of compiled profiles too.
func isProfileOrFile(s string) bool { return isFile(s) || strings.HasSuffix(s, ".profile") }

// beginsAsProfile looks at the first byte of a file.
func (a *app) beginsAsProfile(name string) (bool, error) {
	first := make([]byte, 1)
	if name == cli.Stdin {
		n, err := io.ReadFull(a.in, first)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		a.in = io.MultiReader(bytes.NewReader(first[:n]), a.in)
		return n == 1 && first[0] == profileFirst, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.IsDir() {
		return false, err
	}
	n, err := f.Read(first)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return n == 1 && first[0] == profileFirst, nil
}
