package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
)

// parseLimits reads process.limits, in order of their names.
func parseLimits(m map[string]string) ([]spawn.Limit, error) {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	var limits []spawn.Limit
	for _, n := range names {
		l, err := spawn.ParseLimit(n, m[n])
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// keepUmask stands for a policy that does not set the umask.
const keepUmask = -1

// parseUmask reads process.umask.
func parseUmask(s string) (int, error) {
	if s == "" {
		return keepUmask, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("umask %q: %w: want an octal number up to 0777", s, errs.ErrInvalid)
	}
	return int(n), nil
}

// smackCurrent is the label of the calling thread; it is there when Smack is active.
const smackCurrent = "/proc/thread-self/attr/smack/current"

// setSmackLabel labels the calling thread, which must be locked, and reads the
// label again: what was asked for is what the program gets.
func setSmackLabel(label string) error {
	if err := os.WriteFile(smackCurrent, []byte(label), 0); err != nil {
		return fmt.Errorf("label %q: %w: %w", label, errs.ErrSmackUnavailable, err)
	}
	got, err := os.ReadFile(smackCurrent)
	if err != nil {
		return fmt.Errorf("label %q: %w: %w", label, errs.ErrSmackUnavailable, err)
	}
	if have := strings.TrimRight(string(got), "\n\x00"); have != label {
		return fmt.Errorf("label %q: %w: the kernel made %q of it", label, errs.ErrSmackUnavailable, have)
	}
	return nil
}
