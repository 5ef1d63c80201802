package differential_test

import (
	"syscall"
	"unsafe"
)

// forkPaused makes a process under the calling thread's layers that does
// nothing. It makes none but direct system calls, as nothing of Go's runtime
// works after a bare fork, and dies with the thread.
//
//go:norace
//go:nosplit
func forkPaused() (pid int, errno syscall.Errno) {
	child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || child != 0 {
		return int(child), errno
	}
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	for {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// branchAnswer is what forkRestricted's process writes: two sockets of its own,
// or what went wrong.
type branchAnswer struct {
	errno uintptr
	fds   [2]uintptr
}

// forkRestricted makes a process as forkPaused does. It shares the caller's
// descriptors, stacks the rulesets, makes a datagram and a stream socket, and
// writes a branchAnswer to the pipe.
//
//go:norace
//go:nosplit
func forkRestricted(rulesets []int, pipe int) (pid int, errno syscall.Errno) {
	const restrictSelf, noNewPrivs = 446, 38 // landlock_restrict_self, PR_SET_NO_NEW_PRIVS
	child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|syscall.CLONE_FILES, 0, 0, 0, 0, 0)
	if errno != 0 || child != 0 {
		return int(child), errno
	}
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	var a branchAnswer
	_, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, noNewPrivs, 1, 0, 0, 0, 0)
	for i := 0; i < len(rulesets) && e == 0; i++ {
		_, _, e = syscall.RawSyscall(restrictSelf, uintptr(rulesets[i]), 0, 0)
	}
	const flags = syscall.SOCK_CLOEXEC | syscall.SOCK_NONBLOCK
	if e == 0 {
		a.fds[0], _, e = syscall.RawSyscall(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_DGRAM|flags, 0)
	}
	if e == 0 {
		a.fds[1], _, e = syscall.RawSyscall(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_STREAM|flags, 0)
	}
	a.errno = uintptr(e)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(pipe), uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	for {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
