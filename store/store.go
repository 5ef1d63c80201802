package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"policyd.dev/policyd/internal/errs"
)

const (
	defaultTimeout      = time.Second
	defaultKeepVersions = 50
)

// Store is an open store. Its methods may be called by many goroutines.
type Store struct {
	path    string
	options Options

	dbMu sync.RWMutex // held for reading while a transaction of db is open, for writing while db is replaced
	db   *bolt.DB
	file *os.File // the file db has open

	queueMu sync.Mutex
	queue   []*change
	closing bool
	wake    chan struct{} // one token: the queue is not empty, or closing
	ended   chan struct{} // closed when the writer has ended

	failed   atomic.Pointer[error] // set when the file's state is not known any more; nothing is written then
	panicked bool                  // a write transaction panicked: bbolt may hold its locks for good
	commits  atomic.Uint64
	watchers watchers
}

// Open opens the store at path, making a new one when there is none. Its folder must exist.
//
// Errors wrap errs.ErrStoreLocked when another process keeps the file longer than the time-out, errs.ErrStoreNewer,
// errs.ErrStoreCorrupt when the file is not a store or a page of it is damaged, errs.ErrStoreReadOnly when file or
// folder cannot be written, errs.ErrStoreFull; nothing was changed then. A store of an older schema is migrated in one
// transaction, after a copy of it was put beside it as path.schema-N.
func Open(path string, o Options) (*Store, error) {
	s, schema, err := open(path, o)
	if err != nil {
		return nil, err
	}
	if !o.ReadOnly {
		removeStale(s.path)
	}
	switch {
	case schema == schemaVersion:
	case o.ReadOnly:
		err = fmt.Errorf("%w: its schema %d must be migrated to %d first", errs.ErrStoreReadOnly, schema, schemaVersion)
	default:
		if err = s.migrate(schema); err != nil {
			err = fmt.Errorf("migrate from schema %d to %d: %w", schema, schemaVersion, err)
		}
	}
	if err == nil {
		err = s.view(func(tx *bolt.Tx) error { return checkBuckets(tx, schemaVersion) })
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open store %s: %w", s.path, err)
	}
	return s, nil
}

// open is Open for a store of any schema this code knows, which it tells.
func open(path string, o Options) (s *Store, schema uint32, err error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.KeepVersions <= 0 {
		o.KeepVersions = defaultKeepVersions
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, 0, fmt.Errorf("open store: %w", err)
	}
	s = &Store{path: path, options: o, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && !o.ReadOnly {
		if err := create(path, o); err != nil {
			return nil, 0, fmt.Errorf("create store %s: %w", path, err)
		}
	}
	if err := s.openDB(); err != nil {
		return nil, 0, fmt.Errorf("open store %s: %w", path, err)
	}
	err = s.view(func(tx *bolt.Tx) (err error) {
		schema, err = readSchema(tx)
		return err
	})
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open store %s: %w", path, err), s.closeDB())
	}
	go s.writer()
	return s, schema, nil
}

// Close waits for the changes under way and closes the file. Later changes are refused with errs.ErrShutdown.
func (s *Store) Close() error {
	s.queueMu.Lock()
	first := !s.closing
	s.closing = true
	s.queueMu.Unlock()
	s.signal()
	<-s.ended
	if !first {
		return nil
	}
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	s.watchers.close()
	return s.closeDB()
}

func boltOptions(o Options) *bolt.Options {
	return &bolt.Options{
		Timeout:        o.Timeout,
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		ReadOnly:       o.ReadOnly,
		NoSync:         o.NoSync,
		// Address space only: below this size the file is never mapped anew, for which bbolt has to wait for every
		// reader, so a slow backup does not hold up writers.
		InitialMmapSize: 1 << 30,
	}
}

// allocSize is by how much the file grows, bytes.
const allocSize = 1 << 20

// openDB locks and verifies the file, then gives it to bbolt.
func (s *Store) openDB() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = corrupt("bbolt: %v", r)
		}
		if err != nil && s.file != nil {
			s.file.Close()
			s.file = nil
		}
	}()
	o := boltOptions(s.options)
	o.OpenFile = func(path string, _ int, _ os.FileMode) (*os.File, error) {
		f, err := openLocked(path, s.options.ReadOnly, s.options.Timeout)
		if err != nil {
			return nil, err
		}
		s.file = f
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		return f, verifyFile(f, info.Size())
	}
	db, err := bolt.Open(s.path, 0o600, o)
	if err != nil {
		return classify(err)
	}
	db.AllocSize = allocSize
	s.db = db
	return nil
}

func (s *Store) closeDB() (err error) {
	if s.db == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = corrupt("bbolt: %v", r)
		}
	}()
	db, file := s.db, s.file
	s.db, s.file = nil, nil
	if s.panicked {
		return file.Close()
	}
	return db.Close()
}

// view runs fn in a read transaction. Damage that bbolt or a page fault turns into a panic becomes errs.ErrStoreCorrupt.
func (s *Store) view(fn func(*bolt.Tx) error) (err error) {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	if s.db == nil {
		return s.notOpen()
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = corrupt("reading: %v", r)
		}
	}()
	return s.db.View(fn)
}

func (s *Store) notOpen() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return fmt.Errorf("%w: the store is closed", errs.ErrShutdown)
}

// Sizer is a writer that wants to know the size of a backup before its first byte.
type Sizer interface{ SetSize(bytes int64) }

// Backup writes a consistent copy of the store to w while it is in use, and returns its size, bytes. When w is a Sizer
// it is told the size first. The copy is a store file; Restore takes it.
func (s *Store) Backup(w io.Writer) (n int64, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		if sizer, ok := w.(Sizer); ok {
			sizer.SetSize(tx.Size())
		}
		n, err = tx.WriteTo(w)
		return err
	})
	if err != nil {
		return n, fmt.Errorf("backup: %w", err)
	}
	return n, nil
}
