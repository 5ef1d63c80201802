package main

import (
	"fmt"
	"slices"
	"strconv"

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
