package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// Restore puts a backup in place as the store at path. The backup is written beside it, verified whole (as CheckFile
// does), brought to this code's schema, and gets a log entry of the restore before it takes the place of the old file
// in one step. The old file stays beside it under the name returned; without force one that is there is
// errs.ErrExists. A missing folder is made, for its user alone. Errors wrap errs.ErrStoreLocked while a policyd holds the store, errs.ErrStoreCorrupt when the backup is
// damaged; nothing was changed then.
func Restore(backup io.Reader, path string, force bool) (kept string, err error) {
	path, old, err := holdOld(path)
	if err != nil {
		return "", fmt.Errorf("restore: %w", err)
	}
	if old != nil {
		defer old.Close()
		if !force {
			return "", fmt.Errorf("restore: %w: %s", errs.ErrExists, path)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("restore: %w", classify(err))
	}
	temp, err := tempBeside(path)
	if err != nil {
		return "", fmt.Errorf("restore: %w", classify(err))
	}
	defer removeTemp(temp)
	if err := copyTo(temp, backup); err != nil {
		return "", fmt.Errorf("restore: copy of the backup: %w", err)
	}
	if err := mustCheck(temp); err != nil {
		return "", ofBackup(err, temp)
	}
	s, err := Open(temp, Options{})
	if err != nil {
		return "", ofBackup(err, temp)
	}
	err = s.Append(context.Background(), event(EventRestore, Actor{Name: localActor}, "store", nil))
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = mustCheck(temp)
	}
	if err != nil {
		return "", ofBackup(err, temp)
	}
	if old != nil {
		kept = fmt.Sprintf("%s.before-restore-%s", path, time.Now().UTC().Format("20060102T150405.000000000"))
		if err := os.Link(path, kept); err != nil {
			return "", fmt.Errorf("restore: keep the old file: %w", classify(err))
		}
	}
	if err := replace(temp, path, old); err != nil {
		return kept, fmt.Errorf("restore: %w", err)
	}
	return kept, nil
}

// backupError is an error of the copy of a backup, told of the backup.
type backupError struct {
	text string
	err  error
}

func (e *backupError) Error() string { return e.text }
func (e *backupError) Unwrap() error { return e.err }

// ofBackup takes the name of the copy out of an error: it means nothing to whoever restores, and is gone by then.
func ofBackup(err error, temp string) error {
	text := strings.ReplaceAll(err.Error(), "open store "+temp+": ", "")
	text = strings.ReplaceAll(text, temp, "its copy")
	damaged := errs.ErrStoreCorrupt.Error() + ": "
	text = strings.ReplaceAll(text, damaged+damaged, damaged)
	return &backupError{"restore: backup: " + text, err}
}

// Compact writes the store at path anew without its free pages, verified, and puts it in place in one step. It returns
// the sizes before and after, bytes. Errors wrap errs.ErrStoreLocked while a policyd holds the store.
func Compact(path string) (before, after int64, err error) {
	path, old, err := holdOld(path)
	if err == nil && old == nil {
		err = fmt.Errorf("%w: %s", errs.ErrNotFound, path)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("compact: %w", err)
	}
	defer old.Close()
	info, err := old.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("compact: %w", classify(err))
	}
	if err := verifyFile(old, info.Size()); err != nil {
		return 0, 0, fmt.Errorf("compact: %w", err)
	}
	temp, err := tempBeside(path)
	if err != nil {
		return 0, 0, fmt.Errorf("compact: %w", classify(err))
	}
	defer removeTemp(temp)
	if err := compactInto(temp, path, old); err != nil {
		return 0, 0, fmt.Errorf("compact: %w", classify(err))
	}
	if err := mustCheck(temp); err != nil {
		return 0, 0, fmt.Errorf("compact: %w", err)
	}
	compacted, err := os.Stat(temp)
	if err != nil {
		return 0, 0, fmt.Errorf("compact: %w", classify(err))
	}
	if err := replace(temp, path, old); err != nil {
		return 0, 0, fmt.Errorf("compact: %w", err)
	}
	return info.Size(), compacted.Size(), nil
}

// compactInto copies the store that old has open and locked into the file temp. bbolt is given the same open file, so
// that the lock is never let go.
func compactInto(temp, path string, old *os.File) (err error) {
	o := boltOptions(Options{ReadOnly: true, Timeout: defaultTimeout})
	o.OpenFile = func(string, int, os.FileMode) (*os.File, error) {
		fd, err := unix.FcntlInt(old.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), path), nil
	}
	o.InitialMmapSize = 0
	src, err := bolt.Open(path, 0, o)
	if err != nil {
		return err
	}
	defer src.Close()
	o = boltOptions(Options{Timeout: defaultTimeout})
	o.InitialMmapSize = 0
	dst, err := bolt.Open(temp, 0o600, o)
	if err != nil {
		return err
	}
	dst.AllocSize = 0 // no room to grow: the file is as large as its pages
	const perCommit = 16 << 20
	err = bolt.Compact(dst, src, perCommit)
	if closeErr := dst.Close(); err == nil {
		err = closeErr
	}
	return err
}

// holdOld resolves path and locks the file there; nil when there is none.
func holdOld(path string) (string, *os.File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, nil, nil
	}
	if err != nil {
		if _, named := errors.AsType[*os.PathError](err); !named {
			err = &os.PathError{Op: "open", Path: path, Err: err} // EvalSymlinks says a bare ENOTDIR
		}
		return "", nil, classify(err)
	}
	old, err := openLocked(real, false, defaultTimeout)
	return real, old, err
}

func copyTo(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return classify(err)
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return classify(err)
	}
	return err // nil, or the reader's own
}

// mustCheck is CheckFile with problems as an error.
func mustCheck(path string) error {
	problems, _, _, err := CheckFile(context.Background(), path)
	if err == nil && len(problems) > 0 {
		err = corrupt("%s", strings.Join(problems, "; "))
	}
	return err
}

// replace puts temp in the place of path, with the mode and the owner of the old file (nil: none), durably.
func replace(temp, path string, old *os.File) error {
	f, err := os.OpenFile(temp, os.O_RDWR, 0)
	if err != nil {
		return classify(err)
	}
	defer f.Close()
	if old != nil {
		var st unix.Stat_t
		if err := unix.Fstat(int(old.Fd()), &st); err != nil {
			return classify(err)
		}
		var own unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &own); err != nil {
			return classify(err)
		}
		if own.Uid != st.Uid || own.Gid != st.Gid {
			if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return classify(fmt.Errorf("owner of the new file: %w", err))
			}
		}
		if err := f.Chmod(os.FileMode(st.Mode & 0o777)); err != nil {
			return classify(err)
		}
	}
	if err := f.Sync(); err != nil {
		return classify(err)
	}
	if err := os.Rename(temp, path); err != nil {
		return classify(err)
	}
	return syncDir(path)
}

// removeTemp removes a temporary store and the copy its migration put beside it.
func removeTemp(temp string) {
	os.Remove(temp)
	for schema := range schemaVersion {
		os.Remove(fmt.Sprintf("%s.schema-%d", temp, schema))
	}
}
