package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
)

// Manager owns all sandboxes of one policyd. Its methods are safe for concurrent use.
// Where a method takes an id, a unique beginning of one does.
type Manager struct {
	cfg      Config
	boot     string
	rulesets *landlock.Cache
	ownCache bool
	spawner  *spawn.Spawner
	ledger   *ledger
	logs     *logKeeper
	spares   *spares

	// life ends with Stop: watchers stop watching then, sandboxes go on.
	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup // one for each goroutine of a box, and each start under way

	mu       sync.RWMutex
	stopping bool
	boxes    map[string]*box // starting, running, and ended but not yet stored
	alive    map[uint32]int  // by owner: starting and running
	requests map[requestKey]*box
	sessions map[string]*Attached // whose streams somebody carries, or shall
	// suspended: attached sandboxes are handed over
	suspended bool
	answered  []requestKey // of ended ones, oldest first
}

// maxAnswered is how many requests of sandboxes that have ended are remembered.
const maxAnswered = 4096

type requestKey struct {
	owner uint32
	id    string
}

// box is a sandbox in memory.
type box struct {
	id    string
	owner uint32
	label string                        // Smack label while it is alive, "" for policyd's own; with Manager.mu
	spare *spare                        // until the start is decided
	rec   atomic.Pointer[apiv1.Sandbox] // never changed, only replaced
	recMu sync.Mutex                    // held by who replaces it once the sandbox runs

	decided  chan struct{} // closed when the start succeeded or failed
	startErr error         // of it

	child *spawn.Child
	group spawn.Group
	term  *os.File      // master side of its terminal
	sess  *Attached     // nil when detached, or found again without streams
	done  chan struct{} // closed when it has ended and the record says so
	once  sync.Once     // hang-up
}

// New takes over the sandboxes an earlier policyd left: those alive are watched again,
// ended ones get the exit status that can still be learnt or one that says unknown,
// and processes of sandboxes nobody knows are ended. ctx limits only this.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, boot: boot, spares: newSpares(),
		boxes: map[string]*box{}, alive: map[uint32]int{}, requests: map[requestKey]*box{}, sessions: map[string]*Attached{},
	}
	logs, err := newLogKeeper(filepath.Join(cfg.StateDir, "sandboxes"), cfg)
	if err != nil {
		return nil, err
	}
	m.logs = logs
	j, old, damaged, err := openJournal(filepath.Join(cfg.RuntimeDir, "journal"))
	if err != nil {
		return nil, err
	}
	if damaged > 0 {
		cfg.Log.Warn("journal has damaged lines, left out", "lines", damaged)
	}
	m.life, m.end = context.WithCancel(context.Background())
	m.ledger = newLedger(j, cfg.Store, cfg.Log)
	if err := m.recover(ctx, old); err != nil {
		m.end()
		m.ledger.abandon()
		return nil, fmt.Errorf("sandboxes of an earlier policyd: %w", err)
	}
	m.rulesets = cfg.Rulesets
	if m.rulesets == nil {
		m.rulesets, m.ownCache = landlock.NewCache(cachedRulesets), true
	}
	m.spawner = spawn.NewSpawner(cfg.Threads)
	m.wg.Go(func() { m.logs.run(m.life) })
	m.wg.Go(m.fillSpares)
	m.ledger.begin()
	for _, b := range m.all() {
		m.resume(b)
	}
	for _, h := range cfg.Handed {
		h.Close() // what is used was taken
	}
	if err := m.ledger.flush(ctx); err != nil {
		// The journal still has it, and the ledger goes on trying.
		cfg.Log.Error("records of an earlier policyd could not be stored yet", "error", err)
	}
	return m, nil
}

// Stop ends the Manager, not the sandboxes: detached ones go on living and are found
// again by the next New. Attached ones lose their client, so they get SIGHUP and are
// ended after [Config.HangupGrace] or when ctx ends, whichever is first; after Suspend
// they are handed over instead. What is known
// is stored; an error says what is only in the journal, which the next New reads.
func (m *Manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	if m.stopping {
		m.mu.Unlock()
		return nil
	}
	m.stopping = true
	m.mu.Unlock()

	var attached []*box
	for _, b := range m.all() {
		<-b.decided
	}
	handed := m.handOverAll()
	for _, b := range m.all() {
		if b.startErr == nil && !b.rec.Load().GetDetached() && !handed[b.id] {
			attached = append(attached, b)
			m.hangup(b)
		}
	}
	for _, b := range attached {
		select {
		case <-b.done:
		case <-ctx.Done():
			if err := b.group.KillAll(); err != nil {
				m.cfg.Log.Error("attached sandbox could not be ended", "sandbox", b.id, "error", err)
			}
		}
	}
	// Their ends still go into the journal: watchers that saw them finish first.
	m.end()
	m.wg.Wait()
	err := m.ledger.close(ctx)
	m.spawner.Close()
	if m.ownCache {
		m.rulesets.Close()
	}
	for _, b := range m.all() {
		if b.child != nil {
			b.child.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("records of sandboxes are in the journal only: %w", err)
	}
	return nil
}

func (m *Manager) isStopping() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.stopping
}

func (m *Manager) all() []*box {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]*box, 0, len(m.boxes))
	for _, b := range m.boxes {
		out = append(out, b)
	}
	return out
}

// reserve makes a box with a new id, or finds the one of a repeated request.
func (m *Manager) reserve(r *Request, detached bool) (b *box, repeated bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return nil, false, errs.ErrShutdown
	}
	key := requestKey{r.OwnerUID, r.RequestID}
	if r.RequestID != "" {
		if b := m.requests[key]; b != nil {
			return b, true, nil
		}
	}
	if r.Admit != nil {
		if err := r.Admit(m.alive[r.OwnerUID]); err != nil {
			return nil, false, err
		}
	}
	label, err := m.label(r)
	if err != nil {
		return nil, false, err
	}
	b = &box{owner: r.OwnerUID, label: label, decided: make(chan struct{}), done: make(chan struct{})}
	if b.spare = m.spares.take(r.spareKind(detached)); b.spare != nil {
		b.id = b.spare.id
	}
	for b.id == "" {
		id, err := m.freeID()
		if err != nil {
			return nil, false, err
		}
		if m.boxes[id] == nil {
			b.id = id
		}
	}
	m.boxes[b.id] = b
	m.alive[b.owner]++
	if r.RequestID != "" {
		m.requests[key] = b
	}
	m.wg.Add(1)
	return b, false, nil
}

// label gives the label of a start: that of the request, or the first of its pool that nobody alive has. Wants m.mu.
func (m *Manager) label(r *Request) (string, error) {
	if len(r.SmackPool) == 0 {
		return r.SmackLabel, nil
	}
	taken := make(map[string]bool, len(m.boxes))
	for _, b := range m.boxes {
		taken[b.label] = true
	}
	for _, l := range r.SmackPool {
		if !taken[l] {
			return l, nil
		}
	}
	return "", fmt.Errorf("%w: every label of the pool, %s to %s, is that of a sandbox alive", errs.ErrLimit, r.SmackPool[0], r.SmackPool[len(r.SmackPool)-1])
}

// unreserve forgets a box whose start failed.
func (m *Manager) unreserve(b *box, r *Request, err error) {
	b.startErr = err
	m.mu.Lock()
	delete(m.boxes, b.id)
	m.lessAlive(b.owner)
	if r.RequestID != "" {
		delete(m.requests, requestKey{r.OwnerUID, r.RequestID})
	}
	m.mu.Unlock()
	close(b.decided)
	close(b.done)
	m.wg.Done()
}

// answer remembers the request of a sandbox that has ended, without what it held while it
// lived; wants m.mu.
func (m *Manager) answer(rec *apiv1.Sandbox) {
	if rec.GetRequestId() == "" {
		return
	}
	key := requestKey{rec.GetOwnerUid(), rec.GetRequestId()}
	m.requests[key] = endedBox(rec)
	if m.answered = append(m.answered, key); len(m.answered) > maxAnswered {
		delete(m.requests, m.answered[0])
		m.answered = m.answered[1:]
	}
}

// lessAlive wants m.mu.
func (m *Manager) lessAlive(owner uint32) {
	if m.alive[owner]--; m.alive[owner] <= 0 {
		delete(m.alive, owner)
	}
}
