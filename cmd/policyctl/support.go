package main

import (
	"fmt"
	"strings"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// unsupported says all that a kernel of an ABI lacks.
func unsupported(abi int, lacks []string) error {
	return fmt.Errorf("%w (its ABI is %d); the policy could say `enforcement: degrade`, or a lower abi:\n%s", errs.ErrUnsupported, abi, strings.Join(lacks, "\n"))
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
