package testkernel

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ABI returns the Landlock ABI version of the running kernel, at least 1. The error is that of
// landlock_create_ruleset(2) with LANDLOCK_CREATE_RULESET_VERSION: ENOSYS when the kernel was built without Landlock,
// EOPNOTSUPP when it was not enabled at boot.
func ABI() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	return int(v), nil
}

// probe says whether the running kernel has the features.
func probe(want Feature) error {
	if want&Landlock != 0 {
		if _, err := ABI(); err != nil {
			return err
		}
	}
	if want&Smack != 0 {
		if _, err := os.Stat("/sys/fs/smackfs/load2"); err != nil {
			return fmt.Errorf("smackfs is not mounted: %w", err)
		}
	}
	return nil
}
