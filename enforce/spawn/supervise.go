package spawn

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
)

// Supervise is the life of a supervisor: start one program as the request on
// descriptor 3 says, adopt every orphan of it, tell how it ended, end whatever it
// left, and end. SIGTERM ends all at once. It returns the exit code of the process.
func Supervise() int {
	if _, err := unix.FcntlInt(superFD, unix.F_GETFD, 0); err != nil {
		fmt.Fprintln(os.Stderr, "policyd-launch supervise: only policyd starts this")
		return 2
	}
	unix.CloseOnExec(superFD)
	conn := os.NewFile(superFD, "policyd")
	// Before the first child: every orphan below comes to this process.
	err := step(stepReaper)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err != nil {
		return answer(nil, fmt.Errorf("%w: become a subreaper: %w", errs.ErrContainment, err))
	}
	// Caught, not ignored: what is ignored stays so in the program.
	events := make(chan os.Signal, 8)
	signal.Notify(events, syscall.SIGTERM, syscall.SIGCHLD, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)

	req, err := readRequest(conn)
	if err != nil {
		return answer(nil, fmt.Errorf("%w: %w", errs.ErrStart, err))
	}
	child, err := req.start()
	if code := answer(child, err); code != 0 {
		// What ran already, after exec, may have started others.
		(&supervision{conn: conn}).end(events)
		return code
	}
	s := supervision{conn: conn, main: child.PID, statusFile: req.StatusFile}
	child.Close() // this process waits for all its children alone, by wait4
	s.run(events)
	return 0
}

func readRequest(conn io.Reader) (*startRequest, error) {
	if err := step(stepRequest); err != nil {
		return nil, err
	}
	// The request is all there is on the socket, so what a buffer reads ahead is nothing.
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("read what to start: %w", err)
	}
	req := new(startRequest)
	return req, json.Unmarshal(line, req)
}

// start starts the program on a thread that stays: PDEATHSIG is about it.
func (req *startRequest) start() (*Child, error) {
	var stdio [3]*os.File
	for i := range stdio {
		stdio[i] = os.NewFile(uintptr(stdioFD+i), "stdio")
		defer stdio[i].Close()
	}
	layers := make([]landlock.Layer, len(req.Layers))
	for i, l := range req.Layers {
		layers[i] = landlock.Layer{Name: l.Name, FD: rulesetFD + i, Flags: l.Flags}
	}
	rs := landlock.FromFDs(layers, nil)
	defer rs.Release()
	cmd := &Command{
		Path: req.Path, Argv: req.Argv, Env: req.Env, Dir: req.Dir, Credential: req.Credential, Umask: req.Umask,
		Limits: req.Limits, TTY: req.TTY, SmackLabel: req.SmackLabel, SmackRelabel: req.SmackRelabel, Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2],
	}
	if err := cmd.check(); err != nil {
		return nil, err
	}
	s := NewSpawner(0) // marks the descriptors above close-on-exec
	j, err := newJob(cmd, rs)
	if err != nil {
		return nil, err
	}
	j.hold = make(chan struct{})
	j.sys.Pdeathsig = syscall.SIGKILL
	child, err := s.do(j)
	if err != nil {
		close(j.hold)
	}
	return child, err
}

// answer says what became of the start; the code is 0 when there is a program.
func answer(child *Child, err error) int {
	reply := startReply{}
	var rights []byte
	if err != nil {
		reply.Class, reply.Error = classOf(err), err.Error()
	} else {
		reply.PID = child.PID
		rights = unix.UnixRights(int(child.pidfd.Fd()))
	}
	b, _ := json.Marshal(&reply)
	serr := step(stepAnswer)
	if serr == nil {
		serr = unix.Sendmsg(superFD, append(b, '\n'), rights, nil, 0)
	}
	if serr != nil || err != nil {
		return 1
	}
	return 0
}

type supervision struct {
	conn       *os.File
	main       int
	statusFile string
}

func (s *supervision) run(events <-chan os.Signal) {
	for {
		ended, childless := s.reap()
		if childless {
			return
		}
		if ended || <-events == syscall.SIGTERM {
			s.end(events)
			return
		}
	}
}

// end kills and waits for all that is left.
func (s *supervision) end(events <-chan os.Signal) {
	for {
		killListed(func() ([]process, error) { return descendants(os.Getpid()) })
		if _, childless := s.reap(); childless {
			return
		}
		select { // a dying child, or a little patience
		case <-events:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// reap waits for all that has ended and tells of the program's end.
func (s *supervision) reap() (ended, childless bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case errors.Is(err, syscall.ECHILD):
			return ended, true
		case err != nil || pid == 0:
			return ended, false
		case pid == s.main:
			ended = true
			s.tell(statusOf(ws))
		}
	}
}

// tell leaves the status where a later policyd finds it and tells this one, if
// it is still there.
func (s *supervision) tell(st Status) {
	if s.statusFile != "" {
		_ = writeStatusFile(s.statusFile, st)
	}
	b, _ := json.Marshal(endReply{st})
	_, _ = s.conn.Write(append(b, '\n'))
}
