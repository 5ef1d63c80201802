package main

import (
	"fmt"
	"strconv"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/policy"
)

// words are what people call the kinds of documents.
var words = map[string]string{policy.KindPolicy: "policy", policy.KindFragment: "fragment"}

// splitKind reads "policy/web@3" or "fragment/std/base" or, when there is no
// such word in front, takes a policy.
func splitKind(ref string) (kind, rest string) {
	if r, ok := strings.CutPrefix(ref, "fragment/"); ok {
		return policy.KindFragment, r
	}
	return policy.KindPolicy, strings.TrimPrefix(ref, "policy/")
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
