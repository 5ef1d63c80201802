package spawn

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// Child is a started program. It holds one descriptor, in the netpoller: no
// thread waits for it. All methods are safe for concurrent use.
type Child struct {
	PID int

	pidfd *os.File
	reap  bool        // it is our child: nobody else waits for it
	super *supervisor // it is a supervisor's child

	turn   chan struct{} // held by the one Wait that polls
	done   chan struct{} // closed when status is there
	status Status

	ticksMu sync.Mutex
	ticks   uint64
}

// newChild takes the pidfd over, unless with an error.
func newChild(pid, pidfd int, reap bool) (*Child, error) {
	if err := step(stepPoll); err != nil {
		return nil, err
	}
	// Not blocking: that is what makes os.NewFile hand it to the netpoller.
	if err := unix.SetNonblock(pidfd, true); err != nil {
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	return &Child{
		PID: pid, pidfd: os.NewFile(uintptr(pidfd), "pidfd"), reap: reap,
		turn: make(chan struct{}, 1), done: make(chan struct{}),
	}, nil
}

// Signal sends a signal to the program itself, by pidfd: never to another that
// has its number by now. errs.ErrNotRunning when it has ended.
func (c *Child) Signal(sig syscall.Signal) error {
	raw, err := c.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("pid %d: %w", c.PID, errs.ErrNotRunning)
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil || sent == unix.ESRCH {
		return fmt.Errorf("pid %d: %w", c.PID, errs.ErrNotRunning)
	}
	if sent != nil {
		return fmt.Errorf("pid %d: signal %d: %w", c.PID, sig, sent)
	}
	return nil
}

// StartTicks tells when the program was started, in clock ticks since boot
// (proc_pid_stat(5), field 22): with the pid it names the process for good. It
// is read at the first call, unless the clock told it at the start; 0 when the
// process was gone by then.
func (c *Child) StartTicks() uint64 {
	c.ticksMu.Lock()
	defer c.ticksMu.Unlock()
	if c.ticks == 0 {
		if ticks, err := startTicks(c.PID); err == nil && c.Signal(0) == nil {
			c.ticks = ticks
		}
	}
	return c.ticks
}

// Close gives back the descriptors of a child that is not waited for any more.
// The program goes on running.
func (c *Child) Close() {
	c.pidfd.Close()
	if c.super != nil {
		c.super.conn.Close()
	}
}

// procStat is what is used of /proc/PID/stat.
type procStat struct {
	ppid       int
	state      byte
	utime      uint64 // clock ticks
	stime      uint64
	startTicks uint64
	rssPages   uint64
	waitStatus syscall.WaitStatus // of a zombie; 0 for whom the kernel does not tell it
}

func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	st, err := parseStat(b)
	if err != nil {
		err = fmt.Errorf("pid %d: %w", pid, err)
	}
	return st, err
}

func parseStat(b []byte) (st procStat, err error) {
	// The name may hold anything, so fields are counted from its last ")".
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[max(i+1, 0):])
	if i < 0 || len(f) < 50 || len(f[0]) != 1 {
		return procStat{}, fmt.Errorf("/proc/PID/stat: %q", b)
	}
	num := func(i int) uint64 {
		n, perr := strconv.ParseUint(string(f[i]), 10, 64)
		if perr != nil {
			err = fmt.Errorf("/proc/PID/stat: field %d: %w", i+3, perr)
		}
		return n
	}
	st = procStat{
		ppid: int(num(1)), state: f[0][0], utime: num(11), stime: num(12), startTicks: num(19), rssPages: num(21),
		waitStatus: syscall.WaitStatus(num(49)),
	}
	return st, err
}

// bootTicks is the time since boot as the kernel writes it into a process that is
// forked now: boot time, of this time namespace, in units of USER_HZ, cut off
// (start_boottime in kernel/fork.c, nsec_to_clock_t in fs/proc/array.c). 0 without
// that clock.
func bootTicks() uint64 {
	const tick = 1e9 / 100 // USER_HZ is 100 wherever Go runs
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano()) / tick
}

func startTicks(pid int) (uint64, error) {
	st, err := readStat(pid)
	return st.startTicks, err
}
