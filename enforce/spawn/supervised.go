package spawn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
)

// supervisors holds each program by a process of its own, policyd-launch
// supervise, which all orphans of the program come to. It is for hosts whose
// cgroups policyd cannot write. A program that may signal its supervisor (the
// same user, and no layer with the scope signal) can kill it; the program then
// dies too, and what it has started comes to the orphanage, if there is one and
// the supervisor is its process's child: not one that was found again.
type supervisors struct {
	launcher string
	orphans  *orphanage // or nil
}

func (s *supervisors) Name() string                         { return "supervisor" }
func (s *supervisors) Root() string                         { return "" }
func (s *supervisors) Close() error                         { return nil }
func (s *supervisors) OpenGroup(path string) (Group, error) { return openGroup(path) }

func (s *supervisors) NewGroup(id string) (Group, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return &supervisedGroup{launcher: s.launcher, id: id, orphans: s.orphans}, nil
}

// supervisedPrefix begins a supervised group's path; its supervisor's pid and
// start ticks follow.
const supervisedPrefix = "supervisor:"

// SupervisorName is argv[0] of the supervisor of the group with that id.
func SupervisorName(id string) string { return "policyd-launch:" + id }

type supervisedGroup struct {
	launcher string
	id       string
	orphans  *orphanage // or nil

	mu         sync.Mutex
	supervisor *Child        // nil before Start
	over       chan struct{} // closed when neither it nor an orphan of it is left
}

// supervisor is the socket to a supervisor whose program is waited for.
type supervisor struct {
	conn *os.File
	buf  []byte // read beyond the startReply
}

func (g *supervisedGroup) start(cmd *Command, rs *landlock.Rulesets) (*Child, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.supervisor != nil {
		return nil, fmt.Errorf("%w: the group has a program already", errs.ErrStart)
	}
	conn, sup, err := g.launch(cmd, rs)
	if err != nil {
		return nil, fmt.Errorf("%w: supervisor: %w", errs.ErrStart, err)
	}
	over := make(chan struct{})
	go g.attend(sup, over)
	child, err := g.handOver(conn, cmd, rs)
	if err != nil {
		conn.Close()
		// Nothing stays of a program that ran already and did away with its supervisor.
		err = errors.Join(err, endSupervised(sup, over))
		if errors.Is(err, errs.ErrProgramRefused) && rs.Profile() != nil {
			if why := ExplainExec(rs.Profile(), cmd.Path); why != "" {
				err = fmt.Errorf("%w: %s", err, why)
			}
		}
		return nil, err
	}
	g.supervisor, g.over = sup, over
	sup.StartTicks()
	return child, nil
}

// attend waits for the end of a supervisor and of what it leaves: nothing when
// it returned by itself, for it does so when it has no child any more.
func (g *supervisedGroup) attend(sup *Child, over chan struct{}) {
	defer close(over)
	st, err := sup.Wait(context.Background())
	if g.orphans != nil {
		g.orphans.leave(sup)
		if err != nil || st != (Status{}) {
			g.orphans.end()
		}
	}
}

// launch starts the supervisor itself, which is not confined: it confines the program.
func (g *supervisedGroup) launch(cmd *Command, rs *landlock.Rulesets) (*os.File, *Child, error) {
	null, err := devNull()
	if err != nil {
		return nil, nil, err
	}
	if err := step(stepPair); err != nil {
		return nil, nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(pair[1])
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		return nil, nil, err
	}
	files := []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(pair[1])}
	for _, f := range [3]*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if f == nil {
			f = null
		}
		files = append(files, f.Fd())
	}
	for _, l := range rs.FDs() {
		files = append(files, uintptr(l.FD))
	}
	fork := func() (*Child, error) {
		if err := step(stepLaunch); err != nil {
			return nil, err
		}
		pidfd := -1
		// The id in its name is how a policyd that ended before it noted the pid finds it.
		pid, err := syscall.ForkExec(g.launcher, []string{SupervisorName(g.id), "supervise"},
			&syscall.ProcAttr{Dir: "/", Files: files, Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.launcher, err)
		}
		sup, err := newChild(pid, pidfd, true)
		if err != nil {
			abandon(pid, pidfd)
		}
		return sup, err
	}
	var sup *Child
	if g.orphans != nil {
		sup, err = g.orphans.enter(fork)
	} else {
		sup, err = fork()
	}
	if err != nil {
		// Its socket's end is what ends a supervisor without a program.
		unix.Close(pair[0])
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "supervisor"), sup, nil
}

// status waits for the supervisor to tell how its program ended. If it dies
// first, the program dies with it and nobody knows how.
func (s *supervisor) status() (Status, error) {
	for {
		if i := bytes.IndexByte(s.buf, '\n'); i >= 0 {
			var end endReply
			if err := json.Unmarshal(s.buf[:i], &end); err != nil {
				return Status{Unknown: true}, nil
			}
			return end.Status, nil
		}
		var buf [512]byte
		n, err := s.conn.Read(buf[:])
		s.buf = append(s.buf, buf[:n]...)
		if n == 0 && (err == nil || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
			return Status{Unknown: true}, nil
		}
		if n == 0 {
			return Status{}, err
		}
	}
}

func openSupervised(spec string) (Group, error) {
	pidText, ticksText, _ := strings.Cut(spec, ":")
	pid, err := strconv.Atoi(pidText)
	ticks, err2 := strconv.ParseUint(ticksText, 10, 64)
	if err != nil || err2 != nil || pid <= 1 {
		return nil, fmt.Errorf("%w: %q is not the path of a group", errs.ErrContainment, supervisedPrefix+spec)
	}
	sup, err := Adopt(pid, ticks)
	if err != nil {
		return nil, fmt.Errorf("%w: its supervisor is gone: %w", errs.ErrContainment, err)
	}
	return &supervisedGroup{supervisor: sup}, nil
}

func (g *supervisedGroup) child() *Child {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.supervisor
}

func (g *supervisedGroup) Path() string {
	sup := g.child()
	if sup == nil {
		return ""
	}
	return supervisedPrefix + strconv.Itoa(sup.PID) + ":" + strconv.FormatUint(sup.StartTicks(), 10)
}

func (g *supervisedGroup) Processes() ([]int, error) {
	sup := g.child()
	if sup == nil || sup.Signal(0) != nil {
		return nil, nil
	}
	procs, err := descendants(sup.PID)
	pids := make([]int, 0, len(procs))
	for _, p := range procs {
		pids = append(pids, p.pid)
	}
	return pids, err
}

func (g *supervisedGroup) Usage() (Usage, error) {
	pids, err := g.Processes()
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Processes: len(pids)}
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil {
			u.MemoryBytes += st.rssPages * uint64(os.Getpagesize())
			u.CPUUsec += (st.utime + st.stime) * (1e6 / ticksPerSecond)
		}
	}
	return u, nil
}

// ticksPerSecond is USER_HZ, 100 on every architecture Go runs on.
const ticksPerSecond = 100

func (g *supervisedGroup) Signal(sig syscall.Signal) error {
	return signalAll(g.Processes, sig)
}

func (g *supervisedGroup) KillAll() error {
	sup := g.child()
	if sup == nil {
		return nil
	}
	return endSupervised(sup, g.over)
}

// endSupervised asks the supervisor to end all and itself. One that does not do
// so, stopped by its program for example, still gets all orphans: what is below
// it is ended from here, and then it.
func endSupervised(sup *Child, over <-chan struct{}) error {
	if sup.Signal(syscall.SIGTERM) == nil && sup.Signal(syscall.SIGCONT) == nil && supervisedEnd(sup, over, killPatience/5) {
		return nil
	}
	list := func() ([]process, error) { return descendants(sup.PID) }
	for deadline := time.Now().Add(killPatience); sup.Signal(0) == nil && time.Now().Before(deadline); {
		if procs, err := list(); err == nil && len(procs) == 0 {
			break
		}
		killListed(list)
		time.Sleep(10 * time.Millisecond)
	}
	_ = sup.Signal(syscall.SIGKILL)
	if !supervisedEnd(sup, over, killPatience) {
		return fmt.Errorf("%w: processes of supervisor %d do not end", errs.ErrContainment, sup.PID)
	}
	return nil
}

// supervisedEnd tells whether over is closed in time; without it, of an earlier
// policyd's supervisor, whether that one ends.
func supervisedEnd(sup *Child, over <-chan struct{}, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if over == nil {
		_, err := sup.Wait(ctx)
		return err == nil || ctx.Err() == nil
	}
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}

// Remove has nothing to remove: the supervisor ends with the last process.
func (g *supervisedGroup) Remove() error { return nil }
