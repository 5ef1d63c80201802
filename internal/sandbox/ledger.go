package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

const (
	// commitDelay is how long changes are gathered for one commit of the store.
	commitDelay = 25 * time.Millisecond
	// commitRetry is the pause after a commit that failed.
	commitRetry = time.Second
	// journalMax is the size, bytes, from which a journal file is replaced although
	// nothing is to be stored: starts that fail leave lines, too.
	journalMax = 1 << 20
)

// ledger writes every change of a sandbox to the journal at once and to the store in
// groups. A record and the events that tell of it are in one transaction, so after a
// crash the store's record tells which events of the journal are still to be added.
type ledger struct {
	store Store
	log   *slog.Logger

	mu      sync.Mutex
	journal *journal
	// intents are the lines of starts under way: they are carried into each new file,
	// since the store does not know of them.
	intents map[string][]byte
	pending map[string]*apiv1.Sandbox
	events  []*apiv1.Event
	added   uint64 // changes so far
	stored  uint64 // of them in the store
	err     error  // why the last commit failed
	waiters []waiter

	wake chan struct{}
	life context.Context
	stop context.CancelFunc
	done chan struct{}
}

type waiter struct {
	until uint64
	ready chan error
}

// newLedger makes a ledger that commits nothing before begin.
func newLedger(j *journal, st Store, log *slog.Logger) *ledger {
	ctx, cancel := context.WithCancel(context.Background())
	l := &ledger{
		store: st, log: log, journal: j,
		intents: map[string][]byte{}, pending: map[string]*apiv1.Sandbox{},
		wake: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}),
	}
	l.life = ctx
	return l
}

// begin begins to commit.
func (l *ledger) begin() { go l.run(l.life) }

// recovered adds what the journal of an earlier policyd says, or what has become of a
// sandbox since; before begin, so that no journal file is dropped half read.
func (l *ledger) recovered(rec *apiv1.Sandbox, events ...*apiv1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(rec, events...)
}

// intent notes that a sandbox is about to be executed.
func (l *ledger) intent(rec *apiv1.Sandbox) error {
	line, err := encodeLine(lineIntent, rec)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		// The store does not take what happens: nothing more may begin.
		return fmt.Errorf("records of sandboxes cannot be stored: %w", l.err)
	}
	if err := l.journal.append(line); err != nil {
		return err
	}
	l.intents[rec.GetId()] = line
	return nil
}

// abort notes that nothing was executed for an intent.
func (l *ledger) abort(rec *apiv1.Sandbox) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.intents, rec.GetId())
	if l.journal.size > journalMax {
		l.wakeUp()
	}
	if err := l.appendLocked(lineAborted, rec); err != nil {
		// A restart would take the sandbox for one that ended unseen: harmless.
		l.log.Warn("start that failed was not noted", "sandbox", rec.GetId(), "error", err)
	}
}

// started notes that a sandbox runs. With an error nothing was noted but the intent.
func (l *ledger) started(rec *apiv1.Sandbox) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.appendLocked(lineStarted, rec); err != nil {
		return err
	}
	delete(l.intents, rec.GetId())
	l.addLocked(rec, startEvent(rec))
	return nil
}

// changed notes a new state of a sandbox that is known. With an error nothing was noted.
func (l *ledger) changed(rec *apiv1.Sandbox) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := byte(lineStarted)
	if ended(rec) {
		kind = lineEnded
	}
	if err := l.appendLocked(kind, rec); err != nil {
		return err
	}
	l.addLocked(rec)
	return nil
}

// ended notes the end. It is committed even when the journal could not be written.
func (l *ledger) ended(rec *apiv1.Sandbox, events ...*apiv1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.appendLocked(lineEnded, rec); err != nil {
		l.log.Error("end of sandbox is not in the journal", "sandbox", rec.GetId(), "error", err)
	}
	delete(l.intents, rec.GetId())
	l.addLocked(rec, events...)
}

// remove forgets a sandbox that has ended: what is known of it is committed first, so
// that the log has its start and end, then its record goes.
func (l *ledger) remove(ctx context.Context, rec *apiv1.Sandbox) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	err := l.appendLocked(lineRemoved, &apiv1.Sandbox{Id: rec.GetId()})
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.store.DeleteSandbox(ctx, rec.GetId())
}

func (l *ledger) appendLocked(kind byte, rec *apiv1.Sandbox) error {
	line, err := encodeLine(kind, rec)
	if err != nil {
		return err
	}
	return l.journal.append(line)
}

func (l *ledger) addLocked(rec *apiv1.Sandbox, events ...*apiv1.Event) {
	l.pending[rec.GetId()] = rec
	l.events = append(l.events, events...)
	l.added++
	l.wakeUp()
}

func (l *ledger) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// flush waits until all changes so far are in the store.
func (l *ledger) flush(ctx context.Context) error {
	l.mu.Lock()
	if l.stored >= l.added {
		l.mu.Unlock()
		return nil
	}
	w := waiter{l.added, make(chan error, 1)}
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	l.wakeUp()
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *ledger) run(ctx context.Context) {
	defer close(l.done)
	timer := time.NewTimer(0)
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		delay := commitDelay
		for {
			timer.Reset(delay)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if err := l.commit(ctx); err == nil {
				break
			}
			delay = commitRetry
		}
	}
}

// commit stores what is pending and drops the journal files that said it.
func (l *ledger) commit(ctx context.Context) error {
	l.mu.Lock()
	batch, events, upTo, gen := l.pending, l.events, l.added, l.journal.gen
	if len(batch) == 0 && l.journal.size <= journalMax {
		l.mu.Unlock()
		return nil
	}
	carried := slices.Collect(maps.Values(l.intents))
	if err := l.journal.rotate(carried...); err != nil {
		// The current file goes on; it is dropped by a later commit.
		gen--
		l.log.Warn("journal could not be rotated", "error", err)
	}
	l.pending, l.events = map[string]*apiv1.Sandbox{}, nil
	l.mu.Unlock()

	var err error
	if len(batch) > 0 {
		err = l.store.PutSandboxes(ctx, slices.Collect(maps.Values(batch)), events)
	}

	l.mu.Lock()
	if err != nil {
		if l.err == nil {
			l.log.Error("records of sandboxes could not be stored, no sandbox is started until they can", "error", err)
		}
		// Newer states of the same sandboxes stay; the events keep their order.
		maps.Copy(batch, l.pending)
		l.pending, l.events = batch, append(events, l.events...)
	} else {
		if l.err != nil {
			l.log.Info("records of sandboxes can be stored again")
		}
		l.stored = upTo
	}
	l.err = err
	var ready []waiter
	l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool {
		if err == nil && w.until > l.stored {
			return false
		}
		ready = append(ready, w)
		return true
	})
	l.mu.Unlock()

	if err == nil {
		if derr := l.journal.drop(gen); derr != nil {
			// Read again at the next start, where the store's records tell they are old.
			l.log.Warn("journal files could not be removed", "error", derr)
		}
	}
	for _, w := range ready {
		w.ready <- err
	}
	return err
}

// abandon lets go of the journal without storing anything; only instead of begin.
func (l *ledger) abandon() {
	l.stop()
	l.journal.close()
}

// close commits what is pending and lets go of the journal.
func (l *ledger) close(ctx context.Context) error {
	err := l.flush(ctx)
	l.stop()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journal.close()
	return err
}
