package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
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
	pairs, err := a.comparisons(ctx, args)
	if err != nil {
		return 0, err
	}
	if err := unusedValues(pairs, args, set); err != nil {
		return 0, err
	}
	several := &toldSeveral{Equal: true, Policies: []*told{}}
	for i, p := range pairs {
		t, err := a.compare(ctx, p, set, abi)
		if err != nil {
			return 0, err
		}
		several.add(t)
		if form == cli.Table || form == cli.Wide {
			if i > 0 && !a.quiet {
				fmt.Fprintln(a.out)
			}
			if err := a.semanticTable(t, form == cli.Wide); err != nil {
				return 0, err
			}
		}
	}
	if form == cli.JSON || form == cli.YAML {
		var v any = several
		if len(pairs) == 1 && !pairs[0].byName {
			v = several.Policies[0]
		}
		if err := cli.WriteValue(a.out, form, v); err != nil {
			return 0, err
		}
	}
	switch {
	case several.Gained:
		return exitGained, nil
	case !several.Equal:
		return cli.ExitRefused, nil
	}
	return cli.ExitOK, nil
}

// compare compares two policies. Where values of parameters are invented, it does
// so for each of them, and tells of the first with which something is gained, or
// else of the first with which something differs.
func (a *app) compare(ctx context.Context, p comparison, set map[string]string, abi int) (best *told, err error) {
	rounds, err := p.values(set)
	if err != nil {
		return nil, err
	}
	for _, values := range rounds {
		t, err := a.compareWith(ctx, p, set, values, abi)
		if err != nil {
			return nil, err
		}
		if best == nil || t.Gained || best.Equal && !t.Equal {
			best = t
		}
		if t.Gained {
			break
		}
	}
	for _, v := range best.Parameters {
		a.note("parameter %s has no value: compared with %s=%s (--set gives another)", v.Name, v.Name, v.Value)
	}
	return best, nil
}

func (a *app) compareWith(ctx context.Context, p comparison, set, values map[string]string, abi int) (*told, error) {
	var sides [2]*compiled
	var names [2]string
	for i, s := range p.sides {
		c, err := s.compile(ctx, a, s.declared(set, values))
		if err != nil {
			return nil, named(s.what, err)
		}
		sides[i], names[i] = c, s.title(p.byName)
	}
	if abi == 0 {
		abi = max(sides[0].profile.ABI, sides[1].profile.ABI)
	}
	for i, c := range sides {
		if err := enforceable(c.profile, abi); err != nil {
			return nil, fmt.Errorf("%s: nothing starts under it on a kernel of ABI %d: %w", names[i], abi, err)
		}
	}
	diff, err := profile.Compare(sides[0].profile, sides[1].profile, abi)
	if err != nil {
		return nil, err
	}
	if p.sides[0].none || p.sides[1].none {
		diff.Settings = nil // nothing is set where there is no policy
	} else {
		diff.Settings = append(diff.Settings, processSettings(sides)...)
	}
	t := newTold(names, sides, diff)
	t.oneOfMany = p.byName
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t.Parameters = append(t.Parameters, toldValue{name, values[name]})
	}
	return t, nil
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
			return &unsupportedError{fmt.Sprintf("%v; %s", n, wayOut)}
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

func (a *app) version(ctx context.Context, kind, ref string) (*apiv1.Version, error) {
	ctx, c, cancel, err := a.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	v, err := getVersion(ctx, c, kind, ref)
	if err != nil {
		return nil, otherKind(ctx, c, ref, err)
	}
	return v, nil
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
