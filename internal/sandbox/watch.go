package sandbox

import (
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/spawn"
)

// killRetries and killPause bound how long the end of a sandbox is held back by
// descendants that cannot be ended (in uninterruptible sleep).
const (
	killRetries = 5
	killPause   = 250 * time.Millisecond
)

// watch waits for the end of the first process and then ends the rest. It parks in the
// runtime's poller, not in a thread.
func (m *Manager) watch(b *box) {
	status, err := b.child.Wait(m.life)
	if err != nil {
		if m.life.Err() != nil {
			return // the sandbox goes on without us
		}
		m.cfg.Log.Error("sandbox cannot be waited for, it is ended", "sandbox", b.id, "error", err)
		status = spawn.Status{Unknown: true}
	}
	m.finish(b, status)
}

// finish ends what is left of a sandbox whose first process has ended, and says so.
func (m *Manager) finish(b *box, status spawn.Status) {
	m.killAll(b)
	if b.sess != nil {
		b.sess.settle()
	}
	b.recMu.Lock()
	rec := m.closed(b.rec.Load(), status)
	m.logs.endedBox(b.id)
	m.ledger.ended(rec, exitEvent(rec))
	b.rec.Store(rec)
	b.recMu.Unlock()

	m.mu.Lock()
	m.lessAlive(b.owner)
	b.label = "" // killAll has ended everything that had it
	m.answer(rec)
	m.mu.Unlock()
	close(b.done)
	// Nobody waits for the tidying up: what waits for the end has the processor first.
	select {
	case <-time.After(sparePause):
	case <-m.life.Done():
	}
	if b.sess != nil {
		b.sess.drain()
	}
	b.child.Close()
	m.discard(b.id, b.group)
	m.retire(b)
}

// retire forgets an ended sandbox when its client has all output.
func (m *Manager) retire(b *box) {
	if b.sess != nil && !b.sess.consumed() {
		return // the next policyd's
	}
	rec := b.rec.Load()
	if !keepsOutput(rec) {
		m.logs.removeFolder(b.id)
	}
	m.forget(b, rec)
}

// forget drops the box once the store has its end, and the record too when that was
// asked for at start.
func (m *Manager) forget(b *box, rec *apiv1.Sandbox) {
	var err error
	if rec.GetRemove() {
		err = m.remove(m.life, rec)
	} else {
		err = m.ledger.flush(m.life)
	}
	if err != nil && m.life.Err() == nil {
		m.cfg.Log.Warn("ended sandbox stays in memory", "sandbox", b.id, "error", err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, b.id)
}

func (m *Manager) killAll(b *box) {
	for i := 0; ; i++ {
		err := b.group.KillAll()
		if err == nil {
			return
		}
		if i == killRetries {
			m.cfg.Log.Error("descendants of a sandbox could not be ended", "sandbox", b.id, "error", err)
			return
		}
		select {
		case <-time.After(killPause):
		case <-m.life.Done():
			return
		}
	}
}

// closed is the record of a sandbox that has ended.
func (m *Manager) closed(rec *apiv1.Sandbox, status spawn.Status) *apiv1.Sandbox {
	if status.Unknown {
		// A supervisor may have seen it.
		if s, err := spawn.ReadStatusFile(m.logs.statusFile(rec.GetId())); err == nil {
			status = s
		}
	}
	rec = proto.CloneOf(rec)
	rec.Ended = timestamppb.Now()
	rec.State = apiv1.SandboxState_SANDBOX_STATE_EXITED
	rec.Exit = &apiv1.ExitStatus{
		Code: int32(status.Code), Signal: int32(status.Signal),
		CoreDumped: status.CoreDumped, Unknown: status.Unknown,
	}
	if status.Unknown {
		rec.State = apiv1.SandboxState_SANDBOX_STATE_UNKNOWN
	}
	return rec
}

// hangup tells an attached sandbox that its client is gone, and ends it after the grace.
func (m *Manager) hangup(b *box) {
	if b.sess != nil && !b.sess.cut() || closed(b.done) {
		return
	}
	b.once.Do(func() {
		_ = b.child.Signal(syscall.SIGHUP) // ended already: nothing to tell
		time.AfterFunc(m.cfg.HangupGrace, func() {
			select {
			case <-b.done:
				return
			case <-m.life.Done():
				return
			default:
			}
			if err := b.group.KillAll(); err != nil {
				m.cfg.Log.Error("sandbox without client could not be ended", "sandbox", b.id, "error", err)
			}
		})
	})
}
