package landlock

import (
	"errors"
	"fmt"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
)

// State says whether Landlock can be used.
type State int

const (
	Available State = iota
	NotBuilt        // ENOSYS
	Disabled        // EOPNOTSUPP
	Blocked         // EPERM, EACCES: a seccomp filter
)

// String gives one lower-case word or two.
func (s State) String() string {
	switch s {
	case Available:
		return "available"
	case NotBuilt:
		return "not built"
	case Disabled:
		return "disabled"
	case Blocked:
		return "blocked"
	}
	return fmt.Sprintf("state(%d)", int(s))
}

// Support is what the kernel can do. Without Landlock ABI is 0 and Err wraps
// one of the errs.ErrLandlock sentinels and says what to do about it.
type Support struct {
	State State
	// ABI is what the kernel was seen to accept, at most profile.MaxABI. It may
	// be lower than Claimed: distributions backport parts.
	ABI     int
	Claimed int
	Errata  []int // numbers of the errata that are fixed, from 1 (asked apart from the ABI)
	Err     error
}

// kernel is what the probe asks; tests put other answers in its place.
type kernel struct {
	version func() (int, error)
	errata  func() (int, error)
	create  func(attr *ll.RulesetAttr) error
}

var host = kernel{
	version: ll.LandlockGetABIVersion,
	errata:  ll.LandlockGetErrata,
	create: func(attr *ll.RulesetAttr) error {
		fd, err := ll.LandlockCreateRuleset(attr, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	},
}

// Probe asks the kernel for its ABI and errata, and believes it only after a
// ruleset that handles everything of that ABI was really made: a kernel whose
// number is ahead of its code (backports) is used at the highest ABI that works.
func Probe() Support { return probe(host) }

func probe(k kernel) Support {
	version, err := k.version()
	if err != nil {
		return unsupported(err)
	}
	if version < 1 {
		return Support{State: Blocked, Err: fmt.Errorf("%w: something else than the kernel answers landlock_create_ruleset", errs.ErrLandlockBlocked)}
	}
	s := Support{Claimed: version, ABI: min(version, profile.MaxABI)}
	for s.ABI > 0 {
		err = k.create(fullAttr(s.ABI))
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.E2BIG) {
			return unsupported(err)
		}
		s.ABI--
	}
	if s.ABI < 1 {
		return Support{State: Disabled, Claimed: version, Err: fmt.Errorf("%w: the kernel says ABI %d and then refuses every ruleset: %w",
			errs.ErrLandlockDisabled, version, err)}
	}
	if mask, err := k.errata(); err == nil && mask > 0 { // EINVAL: a kernel without the question
		for i := range 31 {
			if mask&(1<<i) != 0 {
				s.Errata = append(s.Errata, i+1)
			}
		}
	}
	return s
}

// fullAttr handles all that an ABI has, with all quiet fields where it has them.
func fullAttr(abi int) *ll.RulesetAttr {
	attr := &ll.RulesetAttr{
		HandledAccessFS:  uint64(profile.Handled(profile.FS, abi)),
		HandledAccessNet: uint64(profile.Handled(profile.Net, abi)),
		Scoped:           uint64(profile.Handled(profile.Scope, abi)),
	}
	if abi >= abiQuiet {
		attr.QuietAccessFS, attr.QuietAccessNet, attr.QuietScoped = attr.HandledAccessFS, attr.HandledAccessNet, attr.Scoped
	}
	return attr
}

// The first ABIs of what is not a right of profile's table.
const (
	abiQuiet      = 10
	abiNoNewPrivs = 11
)

func unsupported(err error) Support {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return Support{State: NotBuilt, Err: fmt.Errorf("%w: needs linux 5.13 or later with CONFIG_SECURITY_LANDLOCK=y (or a container runtime that knows the system call): %w",
			errs.ErrLandlockNotBuilt, err)}
	case errors.Is(err, unix.EOPNOTSUPP):
		return Support{State: Disabled, Err: fmt.Errorf("%w: add landlock to the list of lsm= on the kernel's command line (or to CONFIG_LSM) and boot again: %w",
			errs.ErrLandlockDisabled, err)}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return Support{State: Blocked, Err: fmt.Errorf("%w: allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self in the filter of the container or unit policyd runs in: %w",
			errs.ErrLandlockBlocked, err)}
	}
	return Support{State: Blocked, Err: fmt.Errorf("%w: landlock_create_ruleset: %w", errs.ErrLandlockBlocked, err)}
}

// Limit gives support as of a kernel with only that ABI: 0 has no Landlock.
// It never raises.
func (s Support) Limit(abi int) Support {
	if s.ABI <= abi {
		return s
	}
	if abi < 1 {
		return Support{State: NotBuilt, Claimed: s.Claimed, Err: fmt.Errorf("%w: its use is limited to ABI 0", errs.ErrLandlockNotBuilt)}
	}
	s.ABI = abi
	return s
}
