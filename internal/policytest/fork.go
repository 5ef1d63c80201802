package policytest

import "syscall"

// forkPaused makes a process under the calling thread's layers, and so in the
// same sandbox: one that is executed would be under the policy's execute. It
// makes none but direct system calls, as nothing of Go's runtime works after a
// bare fork, and dies with the thread.
//
//go:norace
//go:nosplit
func forkPaused() (pid int, errno syscall.Errno) {
	child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || child != 0 {
		return int(child), errno
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	for {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
