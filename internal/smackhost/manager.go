package smackhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
)

// Store is what the manager needs of the store; [store.Store] has it.
type Store interface {
	SmackState() (*apiv1.SmackState, error)
	// SetSmackState replaces the record and appends events in one transaction.
	SetSmackState(ctx context.Context, st *apiv1.SmackState, events ...*apiv1.Event) error
	Get(kind, ref string) (*apiv1.Version, error)
}

// Config of [New]. Store must be given.
type Config struct {
	Store Store
	// Find finds the host's smackfs. nil: smackfs.Find.
	Find func() (smackfs.FS, error)
	// Log gets what nobody is waiting to be told. nil: slog.Default().
	Log *slog.Logger
}

// Manager makes changes of the host's smackfs, one at a time. Its methods are safe for concurrent use.
type Manager struct {
	cfg  Config
	turn chan struct{} // holds a token while a change or a comparison is under way

	// Of the policy that was asked for last; by the turn's holder alone.
	compiled    *policy.CompiledSmack
	compiledKey string
	memory      *smackfs.Memory // of memoryOf's rules
	memoryOf    smackfs.FS

	mu          sync.Mutex
	failed      error    // why the assigned policy is not in force
	interrupted string   // what became of a change that was cut off
	relabel     []string // of relabelKey, a version
	relabelKey  string
}

// New makes a manager. It looks at nothing: [Manager.Boot] does.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Find == nil {
		cfg.Find = func() (smackfs.FS, error) { return smackfs.Find() }
	}
	return &Manager{cfg: cfg, turn: make(chan struct{}, 1)}
}

// take waits for the turn.
func (m *Manager) take(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *Manager) give() { <-m.turn }

// Failed tells why the assigned policy is not in force; nil when it is, or when none is assigned.
func (m *Manager) Failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

func (m *Manager) setFailed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = err
}

func (m *Manager) setInterrupted(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interrupted = text
}

func (m *Manager) told() (interrupted string, failed error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.interrupted, m.failed
}

// Labels tells why no process can be started with a label: the assigned policy is not in force, or Smack is not there.
// The error wraps errs.ErrSmackUnavailable.
func (m *Manager) Labels() error {
	if err := m.Failed(); err != nil {
		return fmt.Errorf("%w: the assigned policy is not in force: %w", errs.ErrSmackUnavailable, err)
	}
	if _, err := m.cfg.Find(); err != nil {
		return fmt.Errorf("%w: %w", errs.ErrSmackUnavailable, err)
	}
	return nil
}

// RelabelSelf gives the labels that processes started with a label may take, once, without privilege: what the policy
// in force says. The kernel keeps them for each process, not for the host.
func (m *Manager) RelabelSelf() ([]string, error) {
	st, err := m.cfg.Store.SmackState()
	if err != nil {
		return nil, err
	}
	if r := (&record{SmackState: st}); !r.inForce() {
		return nil, nil
	}
	key := title(st.GetPolicy(), st.GetVersion())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.relabelKey != key {
		v, err := m.version(st.GetPolicy(), st.GetVersion())
		if err != nil {
			return nil, err
		}
		m.relabel, m.relabelKey = v.GetResource().GetSmackPolicy().GetSpec().GetSettings().GetRelabelSelf(), key
	}
	return m.relabel, nil
}

// remembered gives what is known of the kernel's rules from the load before; nil where others cannot be watched.
func (m *Manager) remembered(fs smackfs.FS) *smackfs.Memory {
	if m.memory != nil && m.memoryOf == fs {
		return m.memory
	}
	m.memory.Close()
	var err error
	if m.memory, err = smackfs.NewMemory(fs); err != nil {
		m.cfg.Log.Debug("every load reads the kernel's rules, since others cannot be watched", "error", err)
	}
	m.memoryOf = fs
	return m.memory
}

// available gives the state of Smack on this host for people and programs, with the smackfs when there is one.
func (m *Manager) available() (smackfs.FS, apiv1.GetSmackResponse_State, error) {
	fs, err := m.cfg.Find()
	if err != nil {
		fs = nil
	} else {
		err = smackfs.CanWrite(fs)
	}
	for _, row := range []struct {
		sentinel error
		state    apiv1.GetSmackResponse_State
	}{
		{errs.ErrSmackNotBuilt, apiv1.GetSmackResponse_STATE_NOT_BUILT},
		{errs.ErrSmackDisabled, apiv1.GetSmackResponse_STATE_DISABLED},
		{errs.ErrSmackNotMounted, apiv1.GetSmackResponse_STATE_NOT_MOUNTED},
		{errs.ErrSmackOnlycap, apiv1.GetSmackResponse_STATE_ONLYCAP},
		{errs.ErrSmackPrivilege, apiv1.GetSmackResponse_STATE_NOT_PRIVILEGED},
	} {
		if errors.Is(err, row.sentinel) {
			return fs, row.state, err
		}
	}
	if err != nil {
		return fs, apiv1.GetSmackResponse_STATE_UNSPECIFIED, err
	}
	return fs, apiv1.GetSmackResponse_STATE_AVAILABLE, nil
}

// version reads a stored SmackPolicy that has not been deleted.
func (m *Manager) version(name string, number uint64) (*apiv1.Version, error) {
	ref := store.Ref{Name: name, Number: number}.String()
	v, err := m.cfg.Store.Get(store.KindSmackPolicy, ref)
	if err == nil && v.GetInfo().GetDeleted() {
		err = fmt.Errorf("policy %s: %w", ref, errs.ErrDeleted)
	}
	return v, err
}

// compile compiles a version, or gives what the last call compiled.
func (m *Manager) compile(v *apiv1.Version) (*policy.CompiledSmack, error) {
	key := title(v.GetInfo().GetName(), v.GetInfo().GetNumber()) + " " + v.GetInfo().GetDigest()
	if m.compiledKey == key {
		return m.compiled, nil
	}
	c, err := policy.CompileSmackVersion(v)
	if err != nil {
		return nil, err
	}
	m.compiled, m.compiledKey = c, key
	return c, nil
}

// title is how messages name a version.
func title(name string, number uint64) string { return fmt.Sprintf("%s@%d", name, number) }
