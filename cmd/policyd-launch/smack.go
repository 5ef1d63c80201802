package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
)

// takeLabel gives the thread, and what it becomes, a Smack label; "" does nothing. Without CAP_MAC_ADMIN it works only
// when whoever started the launcher has put the label on its relabel-self list, which the kernel then forgets: the
// program has the label for good.
//
// With CAP_MAC_ADMIN the program could take any other, so nothing is started then. no_new_privs, which Landlock needs,
// keeps exec from giving it later.
func takeLabel(label string) error {
	if label == "" {
		return nil
	}
	// In a container /proc is what its image and its configuration make of it. On another file system the label would
	// be a text in a file.
	var st unix.Statfs_t
	if err := unix.Statfs("/proc/thread-self/attr", &st); err != nil {
		return fmt.Errorf("%w: label %q: /proc/thread-self/attr: %w", errs.ErrSmackUnavailable, label, err)
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("%w: label %q: /proc is not the kernel's", errs.ErrSmackUnavailable, label)
	}
	if may, err := macAdmin(); err != nil || may {
		if err == nil {
			err = errors.New("the process has CAP_MAC_ADMIN, with which it could take another one; drop it")
		}
		return fmt.Errorf("%w: label %q: %w", errs.ErrSmackUnavailable, label, err)
	}
	return spawn.SetThreadLabel(label)
}

// macAdmin tells whether the calling thread may have CAP_MAC_ADMIN (capget(2), version 3).
func macAdmin() (bool, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := unix.CapUserData{Permitted: ^uint32(0)} // for an answer that is none of the kernel's
	data := [2]unix.CapUserData{all, all}
	if err := unix.Capget(&head, &data[0]); err != nil {
		return false, fmt.Errorf("capget: %w", err)
	}
	return data[unix.CAP_MAC_ADMIN/32].Permitted&(1<<(unix.CAP_MAC_ADMIN%32)) != 0, nil
}
