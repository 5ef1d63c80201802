package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli/decide"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/testkernel"
)

// compile makes a profile of layers as text.
func compile(t *testing.T, layers string) *profile.Profile {
	t.Helper()
	docs, err := policy.Parse("p.yaml", []byte("apiVersion: policyd/v1\nkind: LandlockPolicy\nmetadata: {name: p}\nspec:\n  abi: 1\n  "+strings.ReplaceAll(layers, "\n", "\n  ")))
	if err != nil {
		t.Fatalf("%v\n%s", err, layers)
	}
	out, err := policy.Compile(docs[0].Resource.GetLandlockPolicy(), policy.CompileOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, layers)
	}
	return out.Profile
}

func by(t *testing.T, p *profile.Profile) Grants {
	t.Helper()
	sup := landlock.Probe()
	d, err := decide.New(p, nil, decide.Options{ABI: sup.ABI, Errata: sup.Errata})
	if err != nil {
		t.Fatal(err)
	}
	return By(d)
}

// The missing rules, alone a policy, make the program start; nothing wider than
// files and std/base is proposed.
func TestMissingRulesAreEnough(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), `odd "$" name`)
		script := filepath.Join(dir, "script")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		fragments, err := Fragments(func(p *profile.Profile) (Grants, error) { return by(t, p), nil })
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{argv: []string{script}, env: hostEnv, dir: "/", want: 7}
		none := compile(t, "layers:\n  - name: a\n    paths: [{allow: [read], at: [/dev/null]}]\n  - name: b\n    paths: [{allow: [read], at: [/dev/null, /bin/sh]}]\n")
		res, err := Find(script, s.options(by(t, none)))
		if err != nil {
			t.Fatal(err)
		}
		if res.Starts {
			t.Fatal(table(res))
		}
		rules, err := res.Missing(fragments)
		if err != nil {
			t.Fatal(err)
		}
		text := Text(rules)
		var got []string
		for _, r := range rules {
			for _, p := range r.Paths {
				got = append(got, fmt.Sprint(r.Layer, p.Allow, p.At))
			}
			if !slices.Equal(r.Include, []string{Base}) {
				t.Errorf("layer %s includes %q", r.Layer, r.Include)
			}
		}
		// The rule on the link /bin/sh is one on the shell behind it.
		want := []string{fmt.Sprintf("a[execute read_file] [%s /bin/sh]", script), fmt.Sprintf("b[execute read_file] [%s]", script), "b[execute] [/bin/sh]"}
		if !slices.Equal(got, want) {
			t.Errorf("rules %q, want %q", got, want)
		}
		if !slices.ContainsFunc(res.Notes, func(n Note) bool { return n.Code == "fragment" && strings.Contains(n.Text, "std/shell") }) {
			t.Errorf("notes %+v", res.Notes)
		}
		// What layer b had already belongs to it still.
		text = strings.Replace(text, "      - allow: [execute]\n        at: /bin/sh\n", "      - allow: [execute, read_file]\n        at: /bin/sh\n", 1)
		p := compile(t, text)
		if res, err = Find(script, s.options(by(t, p))); err != nil || !res.Starts || !res.AllGranted() {
			t.Errorf("%v: %s\n%s", err, table(res), text)
		}
		if starts, err := s.start(script, p, landlock.Probe()); err != nil || !starts {
			t.Errorf("it does not start (%v) under\n%s", err, text)
		}
		rules, err = res.Missing(fragments)
		if err != nil || len(rules) != 0 {
			t.Errorf("rules %+v, %v", rules, err)
		}
	})
}
