package spawn

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asUser calls look with the file system rights of a program's user, nil: with
// policyd's own. What is only looked at for words or a search must not tell a
// user more of the host than he could see, nor open for him what he could not.
// With an error look was not called.
func asUser(c *Credential, look func()) error {
	if c == nil || c.UID == 0 || os.Geteuid() != 0 {
		// Root sees all, and without privilege policyd's user is the only one there can be.
		look()
		return nil
	}
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err = actAs(c); err == nil {
			look()
		}
	}()
	<-done
	return err
}

// openDir opens a program's directory with its user's rights and not by way of a
// magic link. The child between fork and exec, which enters it, still has what
// policyd has open: to walk there as named would let a user in by /proc/self/fd.
func openDir(c *Credential, path string) (fd int, err error) {
	if err := step(stepDir); err != nil {
		return -1, err
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	aerr := asUser(c, func() {
		for {
			if fd, err = unix.Openat2(unix.AT_FDCWD, path, &how); err != unix.EINTR {
				return
			}
		}
	})
	if aerr != nil {
		return -1, fmt.Errorf("as uid %d: %w", c.UID, aerr)
	}
	if err == unix.ELOOP {
		err = fmt.Errorf("it leads through a magic link of /proc, or through too many links: %w", err)
	}
	return fd, err
}

// actAs changes this thread alone; the wrappers of package syscall change all.
func actAs(c *Credential) error {
	var p unsafe.Pointer
	if len(c.Groups) > 0 {
		p = unsafe.Pointer(&c.Groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(c.Groups)), uintptr(p), 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	for _, id := range [...]struct {
		call uintptr
		name string
		id   uint32
	}{{unix.SYS_SETFSGID, "gid", c.GID}, {unix.SYS_SETFSUID, "uid", c.UID}} {
		_, _, _ = unix.RawSyscall(id.call, uintptr(id.id), 0, 0)
		// The second call fails always and tells what the first one did.
		if now, _, _ := unix.RawSyscall(id.call, ^uintptr(0), 0, 0); uint32(now) != id.id {
			return fmt.Errorf("%s %d: %w", id.name, id.id, unix.EPERM)
		}
	}
	return nil
}
