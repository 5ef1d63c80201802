package main

import (
	"fmt"
	"strings"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// unsupportedError is errs.ErrUnsupported in words for a kernel that need not be this one.
type unsupportedError struct{ text string }

func (e *unsupportedError) Error() string { return e.text }
func (e *unsupportedError) Unwrap() error { return errs.ErrUnsupported }

// wayOut is what helps where a kernel lacks what a policy handles.
const wayOut = "the policy could say `enforcement: degrade`, or a lower abi"

// unsupported says what a kernel of an ABI cannot enforce.
func unsupported(abi int, lacks []string) error {
	return &unsupportedError{fmt.Sprintf("a kernel of ABI %d cannot enforce the policy; %s:\n%s", abi, wayOut, strings.Join(lacks, "\n"))}
}

// nothingLeft is what degrading to an ABI may come to.
func nothingLeft(name string, abi int) error {
	return &unsupportedError{fmt.Sprintf("%s: a kernel of ABI %d cannot enforce any of it", name, abi)}
}

// maskNames is a mask in words; what is the same as everything at an ABI is "all".
func maskNames(k profile.Kind, a profile.Access, abi int) string {
	quiet := ""
	if a&profile.QuietRule != 0 {
		quiet = " (quiet)"
		a &^= profile.QuietRule
	}
	switch {
	case a == 0:
		return "-" + quiet
	case a == profile.Handled(k, abi):
		return "all" + quiet
	}
	return strings.Join(k.Names(a), ",") + quiet
}
