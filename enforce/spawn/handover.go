package spawn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/errs"
)

// handOver says what to start and takes the answer.
func (g *supervisedGroup) handOver(conn *os.File, cmd *Command, rs *landlock.Rulesets) (*Child, error) {
	req := startRequest{
		Path: cmd.Path, Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, Credential: cmd.Credential, Umask: cmd.Umask,
		Limits: cmd.Limits, TTY: cmd.TTY, SmackLabel: cmd.SmackLabel, StatusFile: cmd.StatusFile,
		SmackRelabel: cmd.SmackRelabel,
	}
	for _, l := range rs.FDs() {
		req.Layers = append(req.Layers, layerRequest{l.Name, l.Flags})
	}
	_ = conn.SetDeadline(time.Now().Add(handOverPatience))
	err := step(stepSend)
	if err == nil {
		err = json.NewEncoder(conn).Encode(&req)
	}
	if err == nil {
		err = step(stepReply)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: supervisor: %w", errs.ErrStart, err)
	}
	line, rest, fds, err := receive(conn)
	if err != nil {
		return nil, fmt.Errorf("%w: supervisor: %w", errs.ErrStart, err)
	}
	var reply startReply
	err = json.Unmarshal(line, &reply)
	if err == nil {
		err = reply.err()
	}
	if err == nil && (len(fds) != 1 || reply.PID <= 0) {
		err = fmt.Errorf("%w: supervisor: no pidfd came", errs.ErrStart)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	child, err := newChild(reply.PID, fds[0], false)
	if err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("%w: %w", errs.ErrStart, err)
	}
	child.super = &supervisor{conn: conn, buf: rest}
	return child, nil
}

const handOverPatience = 30 * time.Second

// receive reads up to the end of a line, with the descriptors that come along.
func receive(conn *os.File) (line, rest []byte, fds []int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, nil, nil, err
	}
	var got []byte
	for {
		buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
		var n, oobn int
		var rerr error
		if err := raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, rerr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			return rerr != unix.EAGAIN
		}); err != nil {
			closeAll(fds)
			return nil, nil, nil, err
		}
		if rerr == nil && n == 0 {
			rerr = io.ErrUnexpectedEOF
		}
		if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
			for i := range msgs {
				more, _ := unix.ParseUnixRights(&msgs[i])
				fds = append(fds, more...)
			}
		}
		if rerr != nil {
			closeAll(fds)
			return nil, nil, nil, rerr
		}
		got = append(got, buf[:n]...)
		if i := bytes.IndexByte(got, '\n'); i >= 0 {
			return got[:i], got[i+1:], fds, nil
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
