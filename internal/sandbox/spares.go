package sandbox

import (
	"errors"
	"os"
	"syscall"
	"time"

	"policyd.dev/policyd/enforce/spawn"
	"policyd.dev/policyd/internal/errs"
)

const (
	// sparesKept is how many spares of a kind are kept ready.
	sparesKept = 8
	// sparePause is how long making new ones is put off: a program that has just begun
	// has the processor first.
	sparePause = 3 * time.Millisecond
	// spareRetry is the pause after one could not be made.
	spareRetry = 10 * time.Second
)

// spare is an id with what a sandbox of that id needs of the host whatever it runs: made
// in advance, because folders and inodes take as long to make as a program to start.
// Everything has its final name, so what a killed policyd leaves of it is found by
// sweepOrphans.
type spare struct {
	id    string
	group spawn.Group
	io    *stdio // nil for a terminal, which is made for a user
}

// spareKind is what the streams are.
type spareKind int

const (
	spareLogs  spareKind = iota // of a detached sandbox
	sparePipes                  // of an attached one
	spareKinds                  // how many are kept ready
	spareBare                   // no streams; never kept ready
)

func (r *Request) spareKind(detached bool) spareKind {
	switch {
	case r.Spec.GetTerminal() != nil:
		return spareBare
	case detached:
		return spareLogs
	}
	return sparePipes
}

// spares are the ones kept ready.
type spares struct {
	ready [spareKinds]chan *spare
	wake  chan struct{}
}

func newSpares() *spares {
	s := &spares{wake: make(chan struct{}, 1)}
	for k := range s.ready {
		s.ready[k] = make(chan *spare, sparesKept)
	}
	return s
}

// take gives one that is ready, or nil.
func (s *spares) take(kind spareKind) *spare {
	if kind >= spareKinds {
		return nil
	}
	defer func() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}()
	select {
	case sp := <-s.ready[kind]:
		return sp
	default:
		return nil
	}
}

// fillSpares makes spares until life ends, and removes those left then.
func (m *Manager) fillSpares() {
	defer m.removeSpares()
	for {
		pause := sparePause
		if err := m.makeSpares(); err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				m.removeSpares() // connections and starts need the descriptors more
			}
			// A full disk, say: the next start tells who asked for it.
			m.cfg.Log.Warn("nothing could be made ready for sandboxes", "error", err)
			pause = spareRetry
		}
		select {
		case <-m.spares.wake:
		case <-m.life.Done():
			return
		}
		select {
		case <-time.After(pause):
		case <-m.life.Done():
			return
		}
	}
}

func (m *Manager) makeSpares() error {
	for kind, ready := range m.spares.ready {
		for len(ready) < cap(ready) && m.life.Err() == nil { // nobody else adds
			id, err := m.freeID()
			if err != nil {
				return err
			}
			sp, err := m.makeSpare(id, spareKind(kind))
			if err != nil {
				return err
			}
			ready <- sp
		}
	}
	return nil
}

func (m *Manager) removeSpares() {
	for _, ready := range m.spares.ready {
		for {
			select {
			case sp := <-ready:
				m.removeSpare(sp)
				continue
			default:
			}
			break
		}
	}
}

// freeID is an id no sandbox has. A record that is only in the store shows as its folder
// or not at all: the store is asked, too, so that an id is never used twice.
func (m *Manager) freeID() (string, error) {
	for {
		id := newID()
		if _, err := m.cfg.Store.Sandbox(id); err != nil {
			if errors.Is(err, errs.ErrNotFound) {
				return id, nil
			}
			return "", err
		}
	}
}

// makeSpare makes the folder, the group and the streams of a sandbox.
func (m *Manager) makeSpare(id string, kind spareKind) (_ *spare, err error) {
	made := &spare{id: id}
	defer func() {
		if err != nil {
			m.removeSpare(made)
		}
	}()
	if kind == spareLogs || m.supervised() {
		if err := m.logs.makeFolder(id); err != nil {
			return nil, err
		}
	}
	if made.group, err = m.cfg.Containment.NewGroup(id); err != nil {
		return nil, err
	}
	switch kind {
	case spareLogs:
		made.io, err = m.logs.open(id)
	case sparePipes:
		made.io, err = openPipes()
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}

// intact tells whether nobody has tidied away what was made in advance.
func (m *Manager) intact(sp *spare) bool {
	paths := []string{sp.group.Path()} // "" of a supervised one
	if sp.io.in == nil || m.supervised() {
		paths = append(paths, m.logs.folder(sp.id))
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		if _, err := os.Lstat(path); err != nil {
			return false
		}
	}
	return true
}

// removeSpare removes what no sandbox has been started in, or nothing is left of.
func (m *Manager) removeSpare(sp *spare) {
	if sp.io != nil {
		sp.io.closeChild()
		sp.io.closeOurs()
	}
	if sp.group != nil {
		m.discard(sp.id, sp.group)
	}
	m.logs.removeFolder(sp.id)
}
