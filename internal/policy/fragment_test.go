package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// fragments is a source of fragments by text.
type fragments map[string]string

func (f fragments) Fragment(name string) (*apiv1.Fragment, error) {
	text, ok := f[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, errs.ErrNotFound)
	}
	docs, err := Parse(name+".yaml", []byte("apiVersion: policyd/v1\nkind: Fragment\nmetadata: {name: "+name+"}\nspec:\n  "+text+"\n"))
	if err != nil {
		return nil, err
	}
	return docs[0].Resource.GetFragment(), nil
}

func TestCompileFragments(t *testing.T) {
	src := WithStd(fragments{
		"a": "{abi: 11, include: [b], variables: {v: [/a1, /a2]}, paths: [{allow: [read_file, resolve_unix], at: ['${v}']}, {allow: [resolve_unix], at: [/run/x]}]}",
		"b": "{abi: 1, paths: [{allow: [all], at: [/b], missing: skip}], ports: []}",
		"c": "{abi: 10, ports: [{allow: [connect_tcp, connect_send_udp], port: [53], quiet: true}]}",
		"x": "{abi: 1, include: [y]}", "y": "{abi: 1, include: [z]}", "z": "{abi: 1, include: [x]}",
		"self": "{abi: 1, include: [self]}", "lost": "{abi: 1, include: [std/bse]}",
	})
	c := mustCompile(t, policyText(5, "variables: {v: [/own]}", "layers:", "  - {include: [a, c, b], paths: [{allow: [write_file], at: ['${v}', /a1]}]}", "  - {handles: {net: [all]}, include: [a, c]}"), CompileOptions{Fragments: src})
	want := `/a1 write_file|read_file / none
/a2 read_file / none
/b ` + profile.FS.Format(profile.Handled(profile.FS, 1)) + ` / none skip
/own write_file / none
53-53 connect_tcp / connect_tcp
`
	if got := rows(c.Profile); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if o := c.Origins[0]; o.GetFragment() != "a" || o.GetField() != "spec.paths[0]" {
		t.Errorf("%v", o)
	}
	std := mustCompile(t, layerText(7, "include: [std/tmp]"), CompileOptions{})
	if o := std.Origins[0]; o.GetFragment() != "std/tmp" || o.GetFile() != "policyd/std/tmp.yaml" || o.GetLine() == 0 {
		t.Errorf("%v", o)
	}

	for include, says := range map[string]string{
		"x":        "include one another: x -> y -> z -> x",
		"self":     "include one another: self -> self",
		"lost":     `no fragment "std/bse" (included by lost); did you mean "std/base"?`,
		"std/shel": `did you mean "std/shell"?`,
		"nowhere":  `there is no fragment "nowhere"`,
	} {
		d := mustParse(t, layerText(7, "include: ["+include+"]"))
		for name, err := range map[string]error{"compile": compileError(d, src), "pin": pinError(d, src)} {
			var e *Errors
			if !errors.As(err, &e) || !strings.Contains(err.Error(), says) || e.Findings()[0].GetLine() != 7 || e.Findings()[0].GetField() != "spec.layers[0].include[0]" {
				t.Errorf("%s of %s: got %v, want %s", name, include, err, says)
			}
		}
	}
	broken := errors.New("disk on fire")
	d := mustParse(t, layerText(7, "include: [a]"))
	if err := compileError(d, failing{broken}); !errors.Is(err, broken) || errors.Is(err, errs.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if err := pinError(d, failing{broken}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Fragment(string) (*apiv1.Fragment, error) { return nil, f.err }

func compileError(d *Document, src FragmentSource) error {
	_, err := Compile(d.Resource.GetLandlockPolicy(), CompileOptions{Fragments: src, Document: d})
	return err
}

func pinError(d *Document, src FragmentSource) error {
	_, _, err := Pin(d, src)
	return err
}

func TestPins(t *testing.T) {
	src := fragments{
		"a": "{abi: 1, include: [b], paths: [{allow: [execute], at: [/a]}]}",
		"b": "{abi: 1, paths: [{allow: [execute], at: [/b]}]}",
	}
	d := mustParse(t, layerText(1, "include: [a]"))
	pins, contents, err := Pin(d, src)
	if err != nil || len(pins) != 2 || pins[0].GetName() != "a" || pins[1].GetName() != "b" || len(contents) != 2 {
		t.Fatalf("%v, %v, %v", pins, contents, err)
	}
	pinned := Pinned(pins, func(digest string) (*apiv1.Fragment, error) { return contents[digest], nil })
	before := mustCompile(t, d.Source, CompileOptions{Fragments: pinned})
	src["b"] = "{abi: 1, paths: [{allow: [execute], at: [/changed]}]}"
	after := mustCompile(t, d.Source, CompileOptions{Fragments: pinned})
	if !slices.Equal(before.Profile.Encode(), after.Profile.Encode()) {
		t.Error("the profile of a stored version follows a newer fragment")
	}
	newer, _, err := Pin(d, src)
	if err != nil || ContentDigest(d.Resource, newer) == ContentDigest(d.Resource, pins) || ContentDigest(d.Resource, nil) == ContentDigest(d.Resource, pins) {
		t.Errorf("the digest does not hold the pins: %v", err)
	}
	if err := compileError(d, Pinned(nil, nil)); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("without pins: %v", err)
	}
	f, err := src.Fragment("a")
	if err != nil {
		t.Fatal(err)
	}
	self := &Document{Kind: KindFragment, Name: "b", Resource: &apiv1.Resource{Kind: &apiv1.Resource_Fragment{Fragment: &apiv1.Fragment{Spec: &apiv1.FragmentSpec{Include: []string{"a"}}}}}}
	if _, _, err := Pin(self, src); err == nil || !strings.Contains(err.Error(), "b -> a -> b") {
		t.Errorf("a cycle through the document itself, with %v: %v", f.GetMetadata().GetName(), err)
	}
}
