package spawn

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs f on a goroutine that is locked to its thread for good, so
// that the runtime ends the thread when f returns.
//
// The process's first thread is never used: the runtime does not end it but
// parks it, restricted as it would be, and it is the one the kernel and others
// take for the process (/proc/PID/status, its Smack label).
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// While this goroutine holds the first thread, the next cannot get it.
		elsewhere := make(chan struct{})
		onOwnThread(func() {
			close(elsewhere)
			f()
		})
		<-elsewhere
		runtime.UnlockOSThread()
	}()
}
