package landlock

import (
	"errors"
	"fmt"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// What is here believes no system call that says it worked: a seccomp filter
// may answer in the kernel's place (SECCOMP_RET_ERRNO with 0, "errnoRet": 0 in a
// container's configuration), and the program would run unconfined.

// setNoNewPrivs asks afterwards, for 1, which no filter can answer: seccomp(2)
// gives errors and 0.
func setNoNewPrivs() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	is, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("look whether no_new_privs is set: %w", err)
	}
	if is != 1 {
		return fmt.Errorf("%w: prctl says that no_new_privs was set, and it is not", errs.ErrLandlockBlocked)
	}
	return nil
}

// restrictSelf stacks a ruleset on the calling thread. The call is made twice,
// with the same arguments from the same place, which is all that a filter sees:
// the number first stands for what is no ruleset, and only the kernel knows.
// The number is of a descriptor of its own, since others share the ruleset's.
func restrictSelf(ruleset int, flags uint32) error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a descriptor to try it with: %w", err)
	}
	if fd <= 2 { // Go keeps those open: no kernel gives them
		return fmt.Errorf("%w: open is answered by something else than the kernel", errs.ErrLandlockBlocked)
	}
	defer unix.Close(fd)
	switch err := ll.LandlockRestrictSelf(fd, flags); {
	case err == nil:
		return fmt.Errorf("%w: something else than the kernel answers the call", errs.ErrLandlockBlocked)
	case !errors.Is(err, unix.EBADF) && !errors.Is(err, unix.EBADFD):
		return err
	}
	if err := unix.Dup3(ruleset, fd, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("dup3: %w", err)
	}
	return ll.LandlockRestrictSelf(fd, flags)
}
