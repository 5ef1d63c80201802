package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// keepToSelf takes from every thread what a program would inherit of a policyd that is not root's: the ambient capabilities that
// a service manager gave it (capabilities(7)). policyd goes on having them as permitted ones. What is inheritable alone takes a
// file with capabilities, which no_new_privs makes the kernel ignore.
func keepToSelf() error {
	if os.Geteuid() == 0 {
		return nil // what is started as another user loses them, and root's programs have them as root
	}
	if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 && !errors.Is(errno, syscall.EINVAL) {
		return fmt.Errorf("give up ambient capabilities: %w", errno)
	}
	return nil
}
