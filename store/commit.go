package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"policyd.dev/policyd/internal/errs"
)

// maxBatch is how many changes share a commit at most.
const maxBatch = 256

// change is one call's work in the queue of the writer.
type change struct {
	fn    func(*wtx) error // may run more than once: sets what it returns anew each time
	state atomic.Int32
	done  chan error
}

const (
	changeQueued = iota
	changeTaken
	changeGivenUp
)

// wtx is a write transaction. All writes go through it, so that a change that failed before it wrote anything leaves
// the others of its batch alone.
type wtx struct {
	tx    *bolt.Tx
	now   time.Time
	dirty bool
}

func (t *wtx) bucket(key []byte) *bolt.Bucket { return t.tx.Bucket(key) }

// kind gives the bucket of a kind in a bucket of the layout, made when it is not there.
func (t *wtx) kind(key []byte, kind string) (*bolt.Bucket, error) {
	top := t.tx.Bucket(key)
	if b := top.Bucket([]byte(kind)); b != nil {
		return b, nil
	}
	t.dirty = true
	return top.CreateBucket([]byte(kind))
}

func (t *wtx) put(b *bolt.Bucket, key, payload []byte) error {
	t.dirty = true
	return b.Put(key, seal(key, payload))
}

func (t *wtx) del(b *bolt.Bucket, key []byte) error {
	t.dirty = true
	return b.Delete(key)
}

// update queues fn and returns when what it did is durable, or with fn's error, or with the commit's. When ctx ends
// while fn still waits in the queue it is not run.
func (s *Store) update(ctx context.Context, fn func(*wtx) error) error {
	if s.options.ReadOnly {
		return fmt.Errorf("%w: it was opened so", errs.ErrStoreReadOnly)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &change{fn: fn, done: make(chan error, 1)}
	s.queueMu.Lock()
	if s.closing {
		s.queueMu.Unlock()
		return fmt.Errorf("%w: the store is closed", errs.ErrShutdown)
	}
	s.queue = append(s.queue, c)
	s.queueMu.Unlock()
	s.signal()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		if c.state.CompareAndSwap(changeQueued, changeGivenUp) {
			return ctx.Err()
		}
		return <-c.done // it is being committed: the answer must be true
	}
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// writer runs the changes of the queue until the store is closed and the queue is empty.
func (s *Store) writer() {
	defer close(s.ended)
	debug.SetPanicOnFault(true)
	for range s.wake {
		for {
			s.queueMu.Lock()
			n := min(len(s.queue), maxBatch)
			batch := s.queue[:n:n]
			s.queue = s.queue[n:]
			closing := s.closing
			s.queueMu.Unlock()
			if n == 0 {
				if closing {
					return
				}
				break
			}
			taken := batch[:0]
			for _, c := range batch {
				if c.state.CompareAndSwap(changeQueued, changeTaken) {
					taken = append(taken, c)
				}
			}
			s.runBatch(taken)
		}
	}
}

// runBatch runs changes in one transaction. One that fails after it wrote is taken out, and run alone afterwards: what
// it failed at may have been another's work. Answers are given when the commit has succeeded, since also a refusal may
// rest on what the batch wrote.
func (s *Store) runBatch(batch []*change) {
	var alone []*change
	for len(batch) > 0 {
		results := make([]error, len(batch))
		spoiler, err := s.runOnce(batch, results)
		if spoiler >= 0 && len(batch) > 1 {
			alone = append(alone, batch[spoiler])
			batch = append(batch[:spoiler:spoiler], batch[spoiler+1:]...)
			continue
		}
		for i, c := range batch {
			if err != nil {
				c.done <- err
			} else {
				c.done <- results[i]
			}
		}
		break
	}
	for _, c := range alone {
		s.runBatch([]*change{c})
	}
}

// runOnce runs changes in one transaction and commits it. spoiler >= 0: that one failed after it wrote, and the
// transaction was rolled back.
func (s *Store) runOnce(batch []*change, results []error) (spoiler int, err error) {
	if p := s.failed.Load(); p != nil {
		return -1, *p
	}
	var before [2][]byte
	committing, committed := false, false
	defer func() {
		if r := recover(); r != nil {
			err = corrupt("writing: %v", r)
			s.panicked = true // bbolt's locks and lists are in an unknown state
			s.fail(err)
		} else if committing && !committed {
			err = s.afterFailedCommit(err, before)
		}
	}()
	tx, err := s.db.Begin(true)
	if err != nil {
		return -1, classify(err)
	}
	t := &wtx{tx: tx, now: s.options.Now()}
	wrote := false
	for i, c := range batch {
		t.dirty = false
		results[i] = c.fn(t)
		if results[i] != nil && t.dirty {
			tx.Rollback()
			return i, results[i]
		}
		wrote = wrote || t.dirty
	}
	if !wrote {
		tx.Rollback()
		return -1, nil
	}
	if before, err = s.rawMetas(); err == nil {
		err = s.inPlace()
	}
	if err != nil {
		tx.Rollback()
		return -1, err
	}
	id := tx.ID()
	committing = true
	if err := tx.Commit(); err != nil {
		return -1, fmt.Errorf("commit %d: %w", id, err)
	}
	committed = true
	s.commits.Add(1)
	s.watchers.wake()
	return -1, nil
}

// inPlace is an error when the store's name leads to no file or another by now: what is written to this one is lost
// with this process.
func (s *Store) inPlace() error {
	open, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", errs.ErrStoreFailed, err)
	}
	named, err := os.Stat(s.path)
	if err == nil && !os.SameFile(open, named) {
		err = errors.New("another file has its name")
	}
	if err != nil {
		return fmt.Errorf("%w: it was moved, removed or replaced while it was in use (%w); policyd must be started anew", errs.ErrStoreFailed, err)
	}
	return nil
}

// rawMetas reads both meta pages as they are in the file.
func (s *Store) rawMetas() (metas [2][]byte, err error) {
	for i := range metas {
		metas[i] = make([]byte, metaEnd)
		if _, err := s.file.ReadAt(metas[i], int64(i*s.db.Info().PageSize)); err != nil {
			return metas, classify(fmt.Errorf("read meta page %d: %w", i, err))
		}
	}
	return metas, nil
}

// afterFailedCommit makes "nothing was changed" true. When bbolt fails before it writes its meta page, it is. When it
// fails after that (the last fdatasync), readers see the new meta page though it may never reach the disk, and pages
// of the old state could be written over. So the meta page is put back durably and the file opened anew; if that does
// not work either, the store refuses every further change.
func (s *Store) afterFailedCommit(cause error, before [2][]byte) error {
	cause = classify(cause)
	after, err := s.rawMetas()
	if err == nil && bytes.Equal(after[0], before[0]) && bytes.Equal(after[1], before[1]) {
		return cause
	}
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	for i := range before {
		if err == nil {
			_, err = s.file.WriteAt(before[i], int64(i*s.db.Info().PageSize))
		}
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		if err = s.closeDB(); err == nil {
			err = s.openDB()
		}
	}
	if err != nil {
		s.fail(fmt.Errorf("%w: %w; the commit could not be undone (%w) and policyd must be started anew", errs.ErrStoreFailed, cause, err))
		return *s.failed.Load()
	}
	return cause
}

func (s *Store) fail(err error) { s.failed.CompareAndSwap(nil, &err) }
