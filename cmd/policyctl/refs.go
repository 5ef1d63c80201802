package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

// storedKind is a kind of document that policyd keeps, as people name it.
type storedKind struct {
	kind, word, many  string
	list, show        string // what get does with it
	listUses, showUse string // examples
}

// storedKinds is the table of them. A reference without a word in front is of the
// first one.
var storedKinds = []storedKind{
	{
		policy.KindPolicy, "policy", "policies", "List the newest versions of policies", "Show a policy as it was written",
		"  policyctl get policies\n  policyctl get policies -l team=edge -o json\n  policyctl get policies --watch", "  policyctl get policy web\n  policyctl get policy web@2 -o table",
	},
	{
		policy.KindFragment, "fragment", "fragments", "List the newest versions of fragments", "Show a fragment as it was written",
		"  policyctl get fragments -o name", "  policyctl get fragment std/base",
	},
	{
		policy.KindSmack, "smackpolicy", "smackpolicies", "List the newest versions of Smack policies", "Show a Smack policy as it was written",
		"  policyctl get smackpolicies -o wide", "  policyctl get smackpolicy platform@2",
	},
	{
		policy.KindBinding, "binding", "bindings", "List the newest versions of Bindings", "Show a Binding as it was written",
		"  policyctl get bindings -o wide", "  policyctl get binding edge-web",
	},
}

// words are what people call the kinds of documents.
var words = func() map[string]string {
	m := map[string]string{}
	for _, k := range storedKinds {
		m[k.kind] = k.word
	}
	return m
}()

// splitKind reads "policy/web@3", "fragment/std/base" or "smackpolicy/platform" or,
// when there is no such word in front, takes a policy. The name of the kind, as
// events and errors have it, is such a word too.
func splitKind(ref string) (kind, rest string) {
	for _, k := range storedKinds {
		for _, word := range []string{k.word, k.kind} {
			if r, ok := strings.CutPrefix(ref, word+"/"); ok {
				return k.kind, r
			}
		}
	}
	return storedKinds[0].kind, ref
}

// hasKind tells whether a reference has the word of a kind in front.
func hasKind(ref string) bool {
	_, rest := splitKind(ref)
	return len(rest) < len(ref)
}

// title is the name of a version in output: policy/web@3, or fragment/std/base for
// one that is shipped, without versions. Every command takes it back.
func title(v *apiv1.VersionInfo) string {
	if v.GetNumber() == 0 {
		return words[v.GetKind()] + "/" + v.GetName()
	}
	return fmt.Sprintf("%s/%s@%d", words[v.GetKind()], v.GetName(), v.GetNumber())
}

// plainName refuses a name with an @ where a whole document is meant.
func plainName(ref string) (kind, name string, err error) {
	kind, name = splitKind(ref)
	if bare, _, has := strings.Cut(name, "@"); has {
		return "", "", cli.Usage(fmt.Errorf("%s: want the name alone, %s", ref, bare))
	}
	return kind, name, nil
}

// expectation reads --expect; "" means none was given.
func expectation(value string) (*apiv1.Expectation, error) {
	if value == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--expect %s: want the number of a version, or 0 for none yet", value))
	}
	return &apiv1.Expectation{Number: n}, nil
}

// shortDigest is enough of a digest to tell versions apart.
func shortDigest(d string) string {
	if hex, ok := strings.CutPrefix(d, "sha256:"); ok && len(hex) > 12 {
		return "sha256:" + hex[:12]
	}
	return d
}

// fileHint says what to write instead where a reference that gave an error is the
// name of a file or folder as well.
func fileHint(ref, instead string, err error) error {
	if _, serr := os.Stat(ref); serr != nil || err == nil {
		return err
	}
	return fmt.Errorf("%w (a file or folder of that name is there: %s)", err, instead)
}
