package spawn

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reapPatience bounds how long the status of a program that is not our child and
// shows it to us only once its parent has waited for it is waited for.
const reapPatience = 100 * time.Millisecond

// adoptedStatus learns how a process ended that is not our child: from /proc
// until its parent, init mostly, has waited for it, which may be much later or
// never; after that by pidfd, if the kernel is 6.15 or newer. An older one tells
// nobody but the parent.
func (c *Child) adoptedStatus(fd int) (Status, bool) {
	if !readable(fd, 0) {
		return Status{}, false
	}
	for deadline := time.Now().Add(reapPatience); ; time.Sleep(2 * time.Millisecond) {
		st, err := zombieStatus(c.PID, c.StartTicks())
		if err == nil {
			return st, true
		}
		// Asked after /proc was: what was waited for in between is found here.
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		kerr := unix.IoctlPidfdInfo(fd, &info)
		if kerr == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return statusOf(syscall.WaitStatus(info.Exit_code)), true
		}
		gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
		untold := kerr != nil && kerr != unix.ESRCH // ENOTTY, EINVAL: the kernel has no such question
		if gone && untold || time.Now().After(deadline) {
			return Status{Unknown: true}, true
		}
	}
}

var errNotShown = errors.New("/proc does not show its exit status")

// zombieStatus reads how a process ended that nobody has waited for yet: field
// 52 of proc_pid_stat(5). The kernel writes 0 there for whom it does not tell
// (PTRACE_MODE_READ in do_task_stat, fs/proc/array.c), so a 0 is only believed
// of a process that shows what is guarded alike. Only for one whose pidfd says
// that it has ended: until then a first thread that has left looks the same.
func zombieStatus(pid int, ticks uint64) (Status, error) {
	// All below is of this one process, whoever has its number meanwhile.
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Status{}, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, "stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Status{}, err
	}
	var buf [4096]byte
	n, err := unix.Read(fd, buf[:])
	unix.Close(fd)
	if err != nil {
		return Status{}, err
	}
	st, err := parseStat(buf[:n])
	switch {
	case err != nil:
		return Status{}, err
	case st.startTicks != ticks:
		return Status{}, os.ErrNotExist
	case st.state != 'Z':
		return Status{}, errNotShown // X: it is being waited for
	case st.waitStatus == 0:
		var name [64]byte
		if _, err := unix.Readlinkat(dir, "ns/user", name[:]); err != nil {
			return Status{}, errNotShown
		}
	}
	return statusOf(st.waitStatus), nil
}

func readable(fd int, timeout int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, timeout)
	return err == nil && n > 0
}
