package spawn

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

type process struct {
	pid   int
	ticks uint64
}

// descendants lists the processes below one, by their parents in /proc. What
// has ended and was not waited for yet is left out.
func descendants(root int) ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	children := make(map[int][]process)
	ended := make(map[process]bool)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		if err != nil {
			continue
		}
		p := process{pid, st.startTicks}
		children[st.ppid] = append(children[st.ppid], p)
		if st.state == 'Z' || st.state == 'X' {
			ended[p] = true
		}
	}
	var found []process
	queue := []int{root}
	for len(queue) > 0 {
		for _, p := range children[queue[0]] {
			queue = append(queue, p.pid)
			if !ended[p] {
				found = append(found, p)
			}
		}
		queue = queue[1:]
	}
	return found, nil
}

// send signals exactly this process, or nobody when it is gone.
func (p process) send(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if ticks, err := startTicks(p.pid); err == nil && ticks == p.ticks {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}
