package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
)

// Spawner starts programs. It keeps threads ready, each made for one start: a
// thread is restricted, starts its program and ends. Without a ready one, Start
// makes one. All methods are safe for concurrent use.
type Spawner struct {
	jobs   chan *job
	closed chan struct{}
	once   sync.Once
}

// NewSpawner keeps n threads ready. It marks every descriptor the process was
// started with, but 0, 1 and 2, close-on-exec: Go opens its own that way, so
// nothing of policyd is left open in a child.
func NewSpawner(n int) *Spawner {
	// Errors mean a kernel before 5.11, which has no Landlock either.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	s := &Spawner{jobs: make(chan *job), closed: make(chan struct{})}
	for range n {
		onOwnThread(s.ready)
	}
	return s
}

// Close ends the threads kept ready. Programs go on running, and so do starts under way.
func (s *Spawner) Close() {
	s.once.Do(func() { close(s.closed) })
}

// restartPause is how long a thread sleeps after its job before it ends and has a
// successor made. Both take processor time from the program that has just begun,
// mostly on its own processor: a tenth of what a short one needs.
const restartPause = 4 * time.Millisecond

// ready is a thread's life: it waits for one job and sees to a successor.
func (s *Spawner) ready() {
	select {
	case j := <-s.jobs:
		j.run()
		time.Sleep(restartPause)
		select {
		case <-s.closed:
		default:
			onOwnThread(s.ready)
		}
	case <-s.closed:
	}
}

// devNull is opened once, before and apart from any restriction.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// Start starts a program under the rulesets and gives it once its exec has
// succeeded. With an error nothing was started. It wraps
// errs.ErrProgramNotFound, errs.ErrProgramRefused, errs.ErrSmackUnavailable or
// errs.ErrStart. Rulesets are needed: a program without any confinement is none
// of this package's. The caller still releases rs afterwards.
func (s *Spawner) Start(cmd *Command, rs *landlock.Rulesets) (*Child, error) {
	if rs == nil {
		return nil, fmt.Errorf("%w: no rulesets", errs.ErrStart)
	}
	if err := cmd.check(); err != nil {
		return nil, err
	}
	if g, ok := cmd.Group.(*supervisedGroup); ok {
		return g.start(cmd, rs)
	}
	j, err := newJob(cmd, rs)
	if err != nil {
		return nil, err
	}
	return s.do(j)
}

// do runs a job on a thread of its own.
func (s *Spawner) do(j *job) (*Child, error) {
	select {
	case s.jobs <- j:
	default:
		onOwnThread(j.run)
	}
	<-j.done
	if j.dir >= 0 {
		unix.Close(j.dir)
	}
	if j.err != nil {
		err := j.explain()
		if j.ran && j.cmd.Group != nil {
			// Not on the job's thread: its rulesets would refuse it.
			err = errors.Join(err, j.cmd.Group.KillAll())
		}
		return nil, err
	}
	return j.child, nil
}

// check finds what the way to exec would otherwise trip over late.
func (c *Command) check() error {
	switch {
	case c.Path == "" || !strings.Contains(c.Path, "/"):
		return fmt.Errorf("%w: program %q needs a path", errs.ErrStart, c.Path)
	case c.Dir != "" && !filepath.IsAbs(c.Dir):
		return fmt.Errorf("%w: directory %q is not absolute", errs.ErrStart, c.Dir)
	case c.TTY && c.Stdin == nil:
		return fmt.Errorf("%w: a terminal was asked for and none was given", errs.ErrStart)
	case c.Umask != nil && *c.Umask&^0o777 != 0:
		return fmt.Errorf("%w: umask %#o", errs.ErrStart, *c.Umask)
	}
	for _, l := range c.Limits {
		if l.Soft > l.Hard {
			return fmt.Errorf("%w: limit %s: the soft limit is above the hard one", errs.ErrStart, l.Name)
		}
	}
	return nil
}

// closed descriptors and the like; kept apart from the program's own errors.
var errNoFile = errors.New("file is closed")
