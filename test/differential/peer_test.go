package differential_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
)

// Whoever is at the other end of a signal or an abstract socket is named by the
// number of the thread's layers it is under, or is one of these.
const (
	// sibling is another thread under the same rulesets, which share no layer
	// with this one's: a layer is what one call of landlock_restrict_self made.
	sibling = -1
	// ownProcess is the process that the restricted thread is one of.
	ownProcess = -2
	// branch - N is a process that is under the first N layers of the thread and,
	// apart from it, under others.
	branch = -100
)

func peerName(n int) string {
	switch {
	case n <= branch:
		return "branch:" + strconv.Itoa(branch-n)
	case n == sibling:
		return "sibling"
	case n == ownProcess:
		return "process"
	}
	return strconv.Itoa(n)
}

func parsePeer(word string) (n int, ok bool) {
	switch word {
	case "sibling":
		return sibling, true
	case "process":
		return ownProcess, true
	}
	number, of := strings.CutPrefix(word, "branch:")
	n, err := strconv.Atoi(number)
	if of {
		n = branch - n
	}
	return n, err == nil
}

// sharedWith is how many of the thread's layers the other end is under too.
func sharedWith(n int) int {
	if n <= branch {
		return branch - n
	}
	return max(n, 0)
}

// listen makes a socket with the caller's credentials, which it keeps, and
// binds it, from outside if the caller is restricted.
func (st *stage) listen(name string, typ int, restricted bool) error {
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return st.bindOutside(fd, name, typ, restricted)
}

// bindOutside binds a socket and keeps it, from outside if so wanted.
func (st *stage) bindOutside(fd int, name string, typ int, restricted bool) (err error) {
	st.fds = append(st.fds, fd)
	bind := func() {
		if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err == nil && typ == unix.SOCK_STREAM {
			err = unix.Listen(fd, 1024)
		}
	}
	if restricted {
		st.do(bind)
	} else {
		bind()
	}
	return err
}

// at makes what there is to be made when the thread is under so many layers;
// rest are the rulesets of the others.
func (st *stage) at(layers, of int, rest []int) error {
	for i := range st.sc.tree {
		e := &st.sc.tree[i]
		if st.m.made[i] && e.kind == sock && e.stage == layers && layers > 0 {
			if err := st.listen(st.m.path(e.path), unix.SOCK_DGRAM, true); err != nil {
				return fmt.Errorf("socket %s: %w", e.path, err)
			}
		}
	}
	var signals, sockets bool
	for i := range st.sc.steps {
		s := &st.sc.steps[i]
		signals = signals || s.op.Kind == opSignal && s.shared == layers
		sockets = sockets || s.op.Kind == opAbstract && s.shared == layers
	}
	if st.sc.random != nil && (layers <= 0 || layers == of || layers == of/2) {
		r := st.sc.random
		signals, sockets = r.signals, r.sockets || r.branch >= 0 || r.sibling
	}
	if st.branches(layers) {
		if err := st.startBranch(layers, rest); err != nil {
			return fmt.Errorf("branch at %d: %w", layers, err)
		}
	}
	if sockets {
		for _, typ := range []int{unix.SOCK_DGRAM, unix.SOCK_STREAM} {
			if err := st.listen(st.abstract(layers, typ), typ, layers != 0); err != nil {
				return fmt.Errorf("abstract socket: %w", err)
			}
		}
	}
	if signals {
		pid, errno := forkPaused()
		if errno != 0 {
			return fmt.Errorf("fork: %w", errno)
		}
		st.targets[layers] = pid
	}
	return nil
}

// startSibling restricts another thread in the same way and makes what there
// is to be made on it. It lives until close.
func (st *stage) startSibling(rs *landlock.Rulesets) error {
	ready := make(chan error)
	st.end = make(chan struct{})
	go func() {
		runtime.LockOSThread() // for good
		err := rs.RestrictThread()
		if err == nil {
			err = st.at(sibling, 0, nil)
		}
		ready <- err
		<-st.end
	}()
	return <-ready
}

// branches tells whether a branch is wanted at so many layers.
func (st *stage) branches(layers int) bool {
	if layers < 0 {
		return false
	}
	if r := st.sc.random; r != nil {
		return r.branch == layers
	}
	return slices.ContainsFunc(st.sc.steps, func(s step) bool { return s.shared == branch-layers })
}

// startBranch makes a process under the thread's layers so far, which stacks
// the rest once more, or where there is none the last again, and two sockets.
func (st *stage) startBranch(layers int, rest []int) error {
	if len(rest) == 0 {
		return errors.New("no ruleset to stack")
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	pid, errno := forkRestricted(rest, pipe[1])
	if errno != 0 {
		return fmt.Errorf("fork: %w", errno)
	}
	st.targets[branch-layers] = pid
	var answer branchAnswer
	if _, err := unix.Read(pipe[0], (*[unsafe.Sizeof(answer)]byte)(unsafe.Pointer(&answer))[:]); err != nil {
		return err
	}
	if answer.errno != 0 {
		return syscall.Errno(answer.errno)
	}
	for i, typ := range []int{unix.SOCK_DGRAM, unix.SOCK_STREAM} {
		if err := st.bindOutside(int(answer.fds[i]), st.abstract(branch-layers, typ), typ, true); err != nil {
			return err
		}
	}
	return nil
}

// abstract names the abstract socket made under so many layers.
func (st *stage) abstract(layers, typ int) string {
	return fmt.Sprintf("@policyd-differential-%d-%d-%d-%d", os.Getpid(), st.h.made, layers, typ)
}
