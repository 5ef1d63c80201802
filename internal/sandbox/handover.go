package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
)

// Names of the descriptors of a sandbox that one policyd hands to the next. With a terminal its master side is there
// instead of the pipes; input that has ended is not.
const (
	handedState  = "state" // a memfd with a handedLink
	handedPID    = "pid"   // pidfd, unless the end was seen
	handedStdin  = "stdin"
	handedStdout = "stdout"
	handedStderr = "stderr"
	handedTTY    = "tty"
)

// Handed are the descriptors of one sandbox by their names.
type Handed map[string]*os.File

// Close gives them back.
func (h Handed) Close() {
	for _, f := range h {
		f.Close()
	}
}

// input is how far standard input has come.
type input struct {
	Given   uint64 // to the program, bytes
	Closed  bool
	MidLine bool // the last byte was no end of a line
}

// handedLink is what the descriptors do not say themselves, as JSON. A policyd that does not understand it hangs the
// sandbox up, as one without a client.
type handedLink struct {
	Version int
	Input   input
	Output  [2]handedTail
	Left    bool // its output goes into logs
}

// handedTail is a tail.
type handedTail struct {
	Read, Sent uint64
	Data       []byte
}

const handedVersion = 1

// maxHanded bounds what is read of a state, bytes.
const maxHanded = 8 << 20

var past = time.Unix(1, 0)

// Suspend stops to carry the streams of attached sandboxes: their Stream ends with errs.ErrRestart, nothing more is
// read from them or written to them, and Stop hands them over instead of hanging them up. It takes a Config.HandOver.
func (m *Manager) Suspend() {
	m.mu.Lock()
	m.suspended = true
	var all []*Attached
	for _, a := range m.sessions {
		all = append(all, a)
	}
	m.mu.Unlock()
	for _, a := range all {
		a.suspend()
	}
}

// suspend does nothing to streams that are closed already.
func (a *Attached) suspend() {
	a.mu.Lock()
	if a.state == linkGone || a.state == linkSuspended {
		a.mu.Unlock()
		return
	}
	a.left = a.state == linkLeft
	a.state = linkSuspended
	close(a.suspended)
	if a.patience != nil {
		a.patience.Stop()
	}
	a.mu.Unlock()
	a.io.setDeadline(past)
}

// handOver gives the streams away. An error: they are still here.
func (m *Manager) handOver(a *Attached) error {
	a.inMu.Lock() // who wrote input has been woken by the deadline
	defer a.inMu.Unlock()
	a.mu.Lock()
	link := handedLink{Version: handedVersion, Input: a.in, Left: a.left}
	for i, t := range a.out {
		link.Output[i] = handedTail{Read: t.read, Sent: t.sent, Data: t.data}
	}
	a.mu.Unlock()
	state, err := memory(link)
	if err != nil {
		return err
	}
	defer state.Close()
	h := Handed{handedState: state}
	if a.io.term {
		h[handedTTY] = a.io.in
	} else {
		h[handedStdout], h[handedStderr] = a.io.out, a.io.err
		if !a.in.Closed && a.io.in != nil {
			h[handedStdin] = a.io.in
		}
	}
	if a.b.child != nil {
		if pidfd, err := a.b.child.Descriptor(); err == nil { // it has ended else, and the record says how
			defer pidfd.Close()
			h[handedPID] = pidfd
		}
	}
	if err := m.cfg.HandOver(a.b.id, h); err != nil {
		return err
	}
	a.io.closeOurs()
	return nil
}

// handOverAll hands over what is suspended, and tells which sandboxes are the next policyd's now. What could not be
// handed over is hung up.
func (m *Manager) handOverAll() map[string]bool {
	m.mu.RLock()
	var all []*Attached
	for _, a := range m.sessions {
		all = append(all, a)
	}
	m.mu.RUnlock()
	handed := map[string]bool{}
	for _, a := range all {
		if !a.isSuspended() {
			continue
		}
		if err := m.handOver(a); err != nil {
			m.cfg.Log.Error("streams of a sandbox could not be handed over, it is hung up", "sandbox", a.b.id, "error", err)
			a.mu.Lock()
			a.state = linkCarried
			a.mu.Unlock()
			continue
		}
		handed[a.b.id] = true
	}
	return handed
}

// memory is a file in memory with the value as JSON.
func memory(v any) (*os.File, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("state of streams: %w", err)
	}
	fd, err := unix.MemfdCreate("policyd-streams", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("policyd-streams", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("state of streams: %w", os.NewSyscallError("memfd_create", err))
	}
	f := os.NewFile(uintptr(fd), "state of streams")
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, fmt.Errorf("state of streams: %w", err)
	}
	return f, nil
}

// adopt finds the first process of a sandbox of an earlier policyd.
func (m *Manager) adopt(rec *apiv1.Sandbox) (*spawn.Child, error) {
	if h := m.cfg.Handed[rec.GetId()]; h[handedPID] != nil {
		child, err := spawn.AdoptHeld(h[handedPID], int(rec.GetPid()), rec.GetStartTicks())
		if err == nil {
			return child, nil
		}
		m.cfg.Log.Warn("pidfd of an earlier policyd cannot be used", "sandbox", rec.GetId(), "error", err)
	}
	return spawn.Adopt(int(rec.GetPid()), rec.GetStartTicks())
}

// takeStreams makes the streams of an earlier policyd those of the box. Without any, or with some that cannot be
// used, the box has none.
func (m *Manager) takeStreams(b *box) {
	h := m.cfg.Handed[b.id]
	if h == nil || b.rec.Load().GetDetached() {
		return
	}
	a := &Attached{}
	link, io, err := h.open(b.rec.Load().GetTty())
	if err != nil {
		m.cfg.Log.Error("streams of an earlier policyd cannot be used", "sandbox", b.id, "error", err)
		return
	}
	a.state, a.in, a.left = linkAwaited, link.Input, link.Left
	for i, t := range link.Output {
		a.out[i] = tail{keep: tailKept, data: t.Data, read: t.Read, sent: t.Sent}
	}
	a.begin(m, b, io)
}

// open takes the descriptors over that carry streams.
func (h Handed) open(tty bool) (link handedLink, s *stdio, err error) {
	if h[handedState] == nil {
		return link, nil, errors.New("their state is missing")
	}
	data, err := io.ReadAll(io.NewSectionReader(h[handedState], 0, maxHanded))
	if err != nil {
		return link, nil, fmt.Errorf("state of streams: %w", err)
	}
	if err := json.Unmarshal(data, &link); err != nil {
		return link, nil, fmt.Errorf("state of streams: %w", err)
	}
	if link.Version != handedVersion {
		return link, nil, fmt.Errorf("state of streams has version %d, this policyd knows %d", link.Version, handedVersion)
	}
	for _, t := range link.Output {
		if t.Sent > t.Read || uint64(len(t.Data)) > t.Read {
			return link, nil, errors.New("state of streams contradicts itself")
		}
	}
	s = &stdio{term: tty}
	if tty {
		if s.in, err = h.take(handedTTY, unix.S_IFCHR); err != nil {
			return link, nil, err
		}
		s.out = s.in
		return link, s, nil
	}
	if s.out, err = h.take(handedStdout, unix.S_IFIFO); err == nil {
		s.err, err = h.take(handedStderr, unix.S_IFIFO)
	}
	if err == nil && !link.Input.Closed {
		s.in, err = h.take(handedStdin, unix.S_IFIFO)
	}
	if err != nil {
		s.closeOurs()
		return link, nil, err
	}
	return link, s, nil
}

// take makes a descriptor ours that is of this type, in the netpoller.
func (h Handed) take(name string, format uint32) (*os.File, error) {
	f := h[name]
	if f == nil {
		return nil, fmt.Errorf("%s is missing", name)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != format {
		return nil, fmt.Errorf("%s is of another type (%o)", name, st.Mode&unix.S_IFMT)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// holdEnded keeps the streams of a sandbox that ended before its client had all output.
func (m *Manager) holdEnded(rec *apiv1.Sandbox) {
	if m.cfg.Handed[rec.GetId()] == nil {
		return
	}
	b := endedBox(rec)
	m.takeStreams(b)
	if b.sess == nil {
		return
	}
	m.boxes[b.id] = b
	b.sess.drain()
}
