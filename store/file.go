package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// classify adds the sentinel to an error of the file system. bbolt wraps some errors without %w, so their text counts.
func classify(err error) error {
	for _, s := range []error{
		errs.ErrStoreLocked, errs.ErrStoreCorrupt, errs.ErrStoreReadOnly, errs.ErrStoreFull,
		errs.ErrStoreFailed, errs.ErrStoreNewer, errs.ErrShutdown, errs.ErrNotFound,
	} {
		if errors.Is(err, s) {
			return err
		}
	}
	is := func(list ...syscall.Errno) bool {
		for _, e := range list {
			if errors.Is(err, e) || strings.HasSuffix(err.Error(), e.Error()) {
				return true
			}
		}
		return false
	}
	switch {
	case is(syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG):
		return fmt.Errorf("%w: %w", errs.ErrStoreFull, err)
	case is(syscall.EROFS, syscall.EACCES, syscall.EPERM):
		return fmt.Errorf("%w: %w", errs.ErrStoreReadOnly, err)
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: %w", errs.ErrStoreLocked, err)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %w", errs.ErrNotFound, err)
	}
	return fmt.Errorf("%w: %w", errs.ErrStoreFailed, err)
}

// lockRetry is the time between attempts to lock a file.
const lockRetry = 20 * time.Millisecond

// openLocked opens the file at path and locks it, exclusively unless readOnly, as bbolt does again on the same
// open file (flock(2): a lock belongs to the open file description). A file that was replaced while we waited for
// its lock is opened again.
func openLocked(path string, readOnly bool, timeout time.Duration) (*os.File, error) {
	deadline := time.Now().Add(timeout)
	flag, lock := os.O_RDWR, unix.LOCK_EX
	if readOnly {
		flag, lock = os.O_RDONLY, unix.LOCK_SH
	}
	for {
		f, err := os.OpenFile(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, classify(err)
		}
		opened, err := f.Stat()
		if err == nil && !opened.Mode().IsRegular() {
			err = corrupt("%s is not a regular file but %s", path, opened.Mode())
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), lock|unix.LOCK_NB)
		if err == nil {
			if now, err := os.Stat(path); err == nil && os.SameFile(opened, now) {
				return f, nil
			}
		}
		f.Close()
		if err != nil && err != unix.EWOULDBLOCK && err != unix.EINTR {
			return nil, classify(fmt.Errorf("lock %s: %w", path, err))
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w: %s was not let go within %v", errs.ErrStoreLocked, path, timeout)
		}
		time.Sleep(lockRetry)
	}
}

// create makes a new store at path: whole, or not at all. When another process made one meanwhile, that one stays.
func create(path string, o Options) (err error) {
	temp, err := tempBeside(path)
	if err != nil {
		return classify(err)
	}
	defer os.Remove(temp)
	bo := boltOptions(o)
	bo.InitialMmapSize = 0
	db, err := bolt.Open(temp, 0o600, bo)
	if err != nil {
		return classify(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		t := &wtx{tx: tx, now: o.Now()}
		if err := initSchema(t); err != nil {
			return err
		}
		return t.log(event("create", Actor{Name: localActor}, "store", nil))
	})
	if closeErr := db.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return classify(err)
	}
	if err := os.Link(temp, path); err != nil && !errors.Is(err, os.ErrExist) {
		return classify(err)
	}
	return syncDir(path)
}

// localActor is who does what no peer asked for: making, migrating, restoring a store.
const localActor = "policyd"

// tempBeside makes an empty file that only its owner can read in the folder of path and returns its name.
func tempBeside(path string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*")
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// staleAfter is the age at which a temporary file beside a store is one that a killed process left.
const staleAfter = time.Hour

// removeStale removes what killed makings, restores and compactions have left beside path.
func removeStale(path string) {
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new-*"))
	if err != nil {
		return // a folder with a pattern's signs in its name: nothing is removed
	}
	for _, name := range left {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > staleAfter {
			os.Remove(name)
		}
	}
}

// syncDir makes the entry of path in its folder durable.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return classify(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return classify(err)
	}
	return nil
}
