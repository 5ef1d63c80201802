package spawn

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
)

// job is one start.
type job struct {
	cmd   *Command
	rs    *landlock.Rulesets
	argv  []string
	attr  syscall.ProcAttr
	sys   syscall.SysProcAttr
	files [3]uintptr
	cred  syscall.Credential
	dir   int // the working directory, or -1 for /
	pidfd int

	hold chan struct{} // the thread stays until this is closed: its end would be the parent's for PDEATHSIG

	done  chan struct{}
	child *Child
	err   error
	ran   bool // with an error: the program may have left descendants
	found diagnosis
}

// newJob prepares all that can be before the thread is restricted.
func newJob(cmd *Command, rs *landlock.Rulesets) (*job, error) {
	j := &job{cmd: cmd, rs: rs, argv: cmd.Argv, dir: -1, pidfd: -1, done: make(chan struct{})}
	if len(j.argv) == 0 {
		j.argv = []string{cmd.Path}
	}
	for i, f := range [3]*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if f == nil {
			null, err := devNull()
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errs.ErrStart, err)
			}
			f = null
		}
		// Fd also makes the file block, as programs expect of their stdio.
		if j.files[i] = f.Fd(); j.files[i] == ^uintptr(0) {
			return nil, fmt.Errorf("%w: descriptor %d: %w", errs.ErrStart, i, errNoFile)
		}
	}
	j.attr = syscall.ProcAttr{Dir: "/", Env: cmd.Env, Files: j.files[:], Sys: &j.sys}
	j.sys = syscall.SysProcAttr{Setctty: cmd.TTY, PidFD: &j.pidfd, Ptrace: len(cmd.Limits) > 0}
	j.sys.Setsid = cmd.TTY || hasTerminal()
	j.sys.Setpgid = !j.sys.Setsid
	if c := cmd.Credential; c != nil {
		j.cred = syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.Groups}
		j.sys.Credential = &j.cred
	}
	if g, ok := cmd.Group.(*cgroupGroup); ok {
		j.sys.UseCgroupFD, j.sys.CgroupFD = true, int(g.dir.Fd())
	}
	if cmd.Dir != "" && cmd.Dir != "/" {
		dir, err := openDir(cmd.Credential, cmd.Dir)
		if err != nil {
			return nil, fmt.Errorf("%w: directory %q: %w", errs.ErrStart, cmd.Dir, err)
		}
		j.dir, j.attr.Dir = dir, "/proc/self/fd/"+strconv.Itoa(dir)
	}
	return j, nil
}

// hasTerminal tells whether this process may have a controlling terminal, which
// a child must not keep: it could type into it (TIOCSTI). Without one a process
// group is as good as a session, and a tenth of a start cheaper: the scheduler
// makes a group of its own for every session.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err != unix.ENXIO
}

// run is the whole way, on a locked thread that ends afterwards whatever
// happens: after the first step it is not what it was.
func (j *job) run() {
	j.child, j.err = j.start()
	if j.err != nil {
		j.diagnose()
	}
	close(j.done)
	if j.hold != nil {
		<-j.hold
	}
}

func (j *job) start() (*Child, error) {
	if err := j.confine(); err != nil {
		return nil, err
	}
	if err := step(stepFork); err != nil {
		return nil, err
	}
	before := bootTicks()
	pid, err := syscall.ForkExec(j.cmd.Path, j.argv, &j.attr)
	if err != nil {
		return nil, &execError{err}
	}
	after := bootTicks()
	if err := j.setLimits(pid); err != nil {
		abandon(pid, j.pidfd)
		return nil, err
	}
	child, err := newChild(pid, j.pidfd, true)
	if err != nil {
		j.ran = true
		abandon(pid, j.pidfd)
		return nil, err
	}
	if before == after {
		child.ticks = after
	}
	return child, nil
}

// confine restricts the thread: the label first, because writing it is a write
// to /proc, which the rulesets would refuse.
func (j *job) confine() error {
	if j.cmd.Umask != nil {
		if err := threadUmask(*j.cmd.Umask); err != nil {
			return err
		}
	}
	if j.cmd.SmackLabel != "" {
		if err := setSmackLabel(j.cmd.SmackLabel); err != nil {
			return err
		}
		if err := setSmackRelabel(j.cmd.SmackLabel, j.cmd.SmackRelabel); err != nil {
			return err
		}
	}
	return j.rs.RestrictThreadStep(fault)
}

// threadUmask gives the thread a umask, root and working directory of its own
// and sets the first; the child has a copy.
func threadUmask(mask int) error {
	if err := step(stepUnshareFS); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare(CLONE_FS): %w", err)
	}
	if err := step(stepUmask); err != nil {
		return err
	}
	unix.Umask(mask)
	return nil
}

// setLimits sets the resource limits while the child, traced, has stopped right
// after its exec and has not run an instruction of the program. Limits belong to
// a process, so they cannot be set on this thread beforehand. If policyd dies
// meanwhile, the child dies too: of the signal it has stopped for, or of EXITKILL.
func (j *job) setLimits(pid int) error {
	if len(j.cmd.Limits) == 0 {
		return nil
	}
	if err := step(stepStop); err != nil {
		return err
	}
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, unix.WALL, nil)
		if err == nil {
			break
		}
		if err != syscall.EINTR {
			return fmt.Errorf("wait for the stop at exec: %w", err)
		}
	}
	if !ws.Stopped() {
		return fmt.Errorf("the program ended before its limits were set: %v", ws)
	}
	if err := step(stepExitKill); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	for _, l := range j.cmd.Limits {
		if err := step(stepLimits); err != nil {
			return err
		}
		lim := unix.Rlimit{Cur: l.Soft, Max: l.Hard}
		if err := unix.Prlimit(pid, l.Resource, &lim, nil); err != nil {
			return fmt.Errorf("limit %s: %w", l.Name, err)
		}
	}
	if err := step(stepDetach); err != nil {
		return err
	}
	if err := syscall.PtraceDetach(pid); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	return nil
}

// abandon ends a child that must not run. Up to here it has not run, or, where
// it has, it is as confined as was asked.
func abandon(pid, pidfd int) {
	// By pid: it is our child and not waited for, so the number is its own.
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(pid, &ws, unix.WALL, nil)
		if err == syscall.EINTR || err == nil && ws.Stopped() {
			continue
		}
		break
	}
	if pidfd >= 0 {
		unix.Close(pidfd)
	}
}

// execError is an errno of fork, of what comes between, or of exec.
type execError struct{ err error }

func (e *execError) Error() string { return e.err.Error() }
func (e *execError) Unwrap() error { return e.err }
