package spawn

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

type process struct {
	pid   int
	ticks uint64
}

// node is a process in the tree of all.
type node struct {
	process
	ended bool // and was not waited for yet
}

// processTree gives the children of each process, as /proc tells. It is an
// error when one that may be there could not be read.
func processTree() (map[int][]node, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	tree := make(map[int][]node)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrPermission) {
			continue // gone meanwhile, or hidden from this user (hidepid, proc(5))
		}
		if err != nil {
			return nil, err
		}
		tree[st.ppid] = append(tree[st.ppid], node{process{pid, st.startTicks}, st.state == 'Z' || st.state == 'X'})
	}
	return tree, nil
}

// below lists the nodes and their descendants, without those that have ended.
func below(tree map[int][]node, nodes []node) []process {
	var found []process
	for queue := nodes; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		queue = append(queue, tree[n.pid]...)
		if !n.ended {
			found = append(found, n.process)
		}
	}
	return found
}

// descendants lists the processes below one, without those that have ended.
func descendants(root int) ([]process, error) {
	tree, err := processTree()
	return below(tree, tree[root]), err
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

// killListed stops the processes of a list, again and again until there is none
// that was not seen (a stopped one starts no others), and kills them then.
func killListed(list func() ([]process, error)) {
	const passes = 100
	stopped := make(map[process]bool)
	for range passes {
		procs, err := list()
		if err != nil {
			break
		}
		fresh := 0
		for _, p := range procs {
			if !stopped[p] {
				stopped[p] = true
				fresh++
				p.send(syscall.SIGSTOP)
			}
		}
		if fresh == 0 {
			break
		}
	}
	for p := range stopped {
		p.send(syscall.SIGKILL)
	}
}
