package spawn

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// Unlimited is RLIM_INFINITY.
const Unlimited = math.MaxUint64

// Limit is a resource limit (setrlimit(2)), in the unit of its resource.
type Limit struct {
	Resource   int
	Name       string
	Soft, Hard uint64
}

// resources is the one table of resource limits (asm-generic/resource.h), in
// lower case without RLIMIT_.
var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
	"fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS, "memlock": unix.RLIMIT_MEMLOCK,
	"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO,
	"rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

// LimitNames lists the names ParseLimit knows, sorted.
func LimitNames() []string {
	names := make([]string, 0, len(resources))
	for n := range resources {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// ParseLimit reads a limit: a number for both soft and hard, or "soft:hard".
// A number may end in K, M, G or T (1024 each); "unlimited" is none. Errors wrap
// errs.ErrInvalid.
func ParseLimit(name, value string) (Limit, error) {
	resource, ok := resources[name]
	if !ok {
		return Limit{}, fmt.Errorf("%w: no resource limit %q; there are %s", errs.ErrInvalid, name, strings.Join(LimitNames(), ", "))
	}
	soft, hard, both := strings.Cut(value, ":")
	l := Limit{Resource: resource, Name: name}
	var err error
	if l.Soft, err = parseAmount(soft); err == nil {
		l.Hard = l.Soft
		if both {
			l.Hard, err = parseAmount(hard)
		}
	}
	if err != nil {
		return Limit{}, fmt.Errorf("%w: limit %s: %q: %w", errs.ErrInvalid, name, value, err)
	}
	if l.Soft > l.Hard {
		return Limit{}, fmt.Errorf("%w: limit %s: %q: the soft limit is above the hard one", errs.ErrInvalid, name, value)
	}
	return l, nil
}

func parseAmount(s string) (uint64, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	shift := 0
	if i := len(s) - 1; i > 0 {
		if unit := strings.IndexByte("KMGT", s[i]); unit >= 0 {
			shift, s = 10*(unit+1), s[:i]
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("not a number or unlimited")
	}
	if n > (Unlimited-1)>>shift {
		return 0, fmt.Errorf("too large")
	}
	return n << shift, nil
}
