package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
)

// Offsets say how far a client has come with the output, bytes since the sandbox was started.
type Offsets struct{ Stdout, Stderr uint64 }

// Attach gives the streams of a sandbox of Run that an earlier policyd handed over to the client that comes back. The
// caller must call Stream, which begins at the offsets, and Close in any case; ctx is as in Run. Errors:
// errs.ErrNotFound, errs.ErrNotRunning for one without streams, errs.ErrExists when a client has them,
// errs.ErrInvalid for one whose output goes into logs, and for offsets that are wrong.
func (m *Manager) Attach(ctx context.Context, id string, at Offsets) (*Attached, error) {
	rec, _, err := m.find(id)
	if err != nil {
		return nil, err
	}
	id = rec.GetId()
	m.mu.RLock()
	a := m.sessions[id]
	m.mu.RUnlock()
	switch {
	case rec.GetDetached() || rec.GetOutputKept():
		return nil, fmt.Errorf("%w: the output of sandbox %s is in its logs", errs.ErrInvalid, id)
	case a == nil:
		return nil, fmt.Errorf("sandbox %s has no streams any more: %w", id, errs.ErrNotRunning)
	}
	if err := a.claim(at); err != nil {
		return nil, err
	}
	a.stop = context.AfterFunc(ctx, func() { m.hangup(a.b) })
	return a, nil
}

// claim makes the caller the client.
func (a *Attached) claim(at Offsets) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.state {
	case linkSuspended:
		return a.restarts()
	case linkCarried:
		return fmt.Errorf("%w: sandbox %s has a client", errs.ErrExists, a.b.id)
	case linkLeft:
		return fmt.Errorf("%w: the output of sandbox %s goes to its logs", errs.ErrInvalid, a.b.id)
	case linkGone:
		return fmt.Errorf("sandbox %s has no streams any more: %w", a.b.id, errs.ErrNotRunning)
	}
	for i, offset := range []uint64{at.Stdout, at.Stderr} {
		if _, ok := a.out[i].from(offset); !ok {
			return fmt.Errorf("%w: offset %d of an output that has %d bytes, of which the last %d are kept", errs.ErrInvalid, offset, a.out[i].read, len(a.out[i].data))
		}
	}
	a.out[0].sent, a.out[1].sent = at.Stdout, at.Stderr
	a.patience.Stop()
	a.state = linkCarried
	return nil
}

// StdinOffset is how much of standard input was given to the program, bytes.
func (a *Attached) StdinOffset() uint64 {
	a.inMu.Lock()
	defer a.inMu.Unlock()
	return a.in.Given
}

// repeat sends what was read before and is not sent.
func (a *Attached) repeat(stream int, use func(p []byte) error) error {
	a.mu.Lock()
	p, _ := a.out[stream].from(a.out[stream].sent) // claim has looked; nothing is there at a start
	a.mu.Unlock()
	// Nobody adds to it before this has ended.
	for len(p) > 0 {
		n := min(len(p), chunk)
		if a.isSuspended() {
			return a.restarts()
		}
		if err := use(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// reader reads a stream and remembers its end. After suspend it reads nothing more.
func (a *Attached) reader(stream int) reader {
	return func(fd int, p []byte) (int, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.state == linkSuspended {
			return 0, a.restarts()
		}
		n, err := readRetry(fd, p)
		a.out[stream].add(p[:n])
		return n, err
	}
}

// await gives the client time to come back.
func (a *Attached) await() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == linkAwaited {
		a.patience = time.AfterFunc(a.m.cfg.AttachWait, func() { a.leave("the client did not come back") })
	}
}

// leave has the output written into logs from now on, so that the program is not held up for ever: nobody takes it
// any more. Input has ended for it.
func (a *Attached) leave(why string) {
	a.mu.Lock()
	if a.state != linkAwaited {
		a.mu.Unlock()
		return
	}
	a.state = linkLeft
	a.mu.Unlock()
	m, b := a.m, a.b
	logs, err := m.keepOutput(b)
	if err != nil {
		m.cfg.Log.Error("sandbox without client cannot go on", "sandbox", b.id, "error", err)
		close(a.pumped)
		m.hangup(b)
		return
	}
	m.cfg.Log.Warn("sandbox goes on without client, its output is in its logs", "sandbox", b.id, "reason", why)
	go func() { _ = a.CloseStdin() }() // a terminal that is full takes none
	m.goAhead(func() { a.carryToLogs(logs) })
}

// keepOutput makes the logs of a sandbox and notes that it has some.
func (m *Manager) keepOutput(b *box) (*stdio, error) {
	if err := m.logs.ensureFolder(b.id); err != nil {
		return nil, err
	}
	logs, err := m.logs.open(b.id)
	if err != nil {
		return nil, err
	}
	b.recMu.Lock()
	defer b.recMu.Unlock()
	if rec := b.rec.Load(); !rec.GetOutputKept() {
		rec = proto.CloneOf(rec)
		rec.OutputKept, rec.LogLimit = true, m.cfg.LogLimit
		if err := m.ledger.changed(rec); err != nil {
			logs.closeChild()
			return nil, err
		}
		b.rec.Store(rec)
		m.logs.add(b.id, b.owner, rec.GetLogLimit())
	}
	return logs, nil
}

// carryToLogs writes the output into logs to its end.
func (a *Attached) carryToLogs(logs *stdio) {
	defer logs.closeChild()
	result := make(chan error, 2)
	var full sync.Once
	n := a.copyAll(result, func(stream int, p []byte) error {
		if _, err := logs.child[stream+1].Write(p); err != nil {
			// As for a detached one, whose own write would fail: what there is no room for is lost, and it goes on.
			full.Do(func() {
				a.m.cfg.Log.Error("output of a sandbox could not be kept", "sandbox", a.b.id, "error", err)
			})
		}
		return nil
	})
	for range n {
		if err := <-result; err != nil && !errors.Is(err, errs.ErrRestart) && !errors.Is(err, errCut) {
			a.m.cfg.Log.Error("output of a sandbox could not be read", "sandbox", a.b.id, "error", err)
		}
	}
	if a.isSuspended() {
		return
	}
	close(a.pumped)
	select {
	case <-a.b.done:
		a.m.logs.endedBox(a.b.id) // it may have ended before it had logs
		a.cut()
	case <-a.suspended:
	case <-a.m.life.Done():
	}
}

// goAhead runs f in a goroutine that Stop waits for, unless it has begun.
func (m *Manager) goAhead(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.stopping {
		m.wg.Go(f)
	}
}

// register makes the streams known while somebody carries them, or shall.
func (m *Manager) register(a *Attached) {
	m.mu.Lock()
	m.sessions[a.b.id] = a
	suspended := m.suspended
	m.mu.Unlock()
	if suspended {
		a.suspend()
	}
}

func (m *Manager) unregister(a *Attached) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[a.b.id] == a {
		delete(m.sessions, a.b.id)
	}
	close(a.over)
}

// settle holds back the end of a sandbox until its output is where it belongs.
func (a *Attached) settle() {
	a.mu.Lock()
	left := a.state == linkLeft
	a.mu.Unlock()
	if !left {
		return
	}
	a.drain()
	select {
	case <-a.pumped:
	case <-a.suspended:
	case <-a.m.life.Done():
	}
}

// consumed waits until nobody needs the record of an ended sandbox to come back to its output; false when this
// policyd ends first.
func (a *Attached) consumed() bool {
	select {
	case <-a.over:
		return true
	case <-a.m.life.Done():
		return false
	}
}

func (a *Attached) isSuspended() bool {
	select {
	case <-a.suspended:
		return true
	default:
		return false
	}
}

func (a *Attached) isGone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == linkGone
}

// restarts is what the client is told.
func (a *Attached) restarts() error {
	return fmt.Errorf("%w: sandbox %s goes on", errs.ErrRestart, a.b.id)
}

// keepsOutput tells whether a sandbox has logs.
func keepsOutput(rec *apiv1.Sandbox) bool { return rec.GetDetached() || rec.GetOutputKept() }

// ensureFolder is makeFolder where part of it may be there.
func (k *logKeeper) ensureFolder(id string) error {
	path := k.folder(id)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("logs: %w", err)
	}
	for _, name := range []string{stdoutLog, stderrLog} {
		f, err := os.OpenFile(filepath.Join(path, name), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		f.Close()
	}
	return nil
}
