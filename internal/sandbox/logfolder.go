package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// spareFolders is how many folders with empty logs are kept ready: to make an inode takes
// longer than to start a program on some file systems, to rename one does not.
const spareFolders = 16

// spareRetry is the pause after such a folder could not be made.
const spareRetry = 10 * time.Second

// sparePrefix begins the names of such folders; no id does.
const sparePrefix = ".spare-"

func (k *logKeeper) folder(id string) string     { return filepath.Join(k.root, id) }
func (k *logKeeper) statusFile(id string) string { return filepath.Join(k.root, id, statusName) }

// mkdir makes the folder of a sandbox with its empty logs.
func (k *logKeeper) mkdir(id string) error {
	select {
	case spare := <-k.spares:
		if err := os.Rename(filepath.Join(k.root, spare), k.folder(id)); err == nil {
			return nil
		}
		// Somebody tidied up: make one.
	default:
	}
	return k.makeFolder(k.folder(id))
}

func (k *logKeeper) makeFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	for _, name := range []string{stdoutLog, stderrLog} {
		f, err := os.OpenFile(filepath.Join(path, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return errors.Join(fmt.Errorf("logs: %w", err), os.RemoveAll(path))
		}
		f.Close()
	}
	return nil
}

// fillSpares makes folders in advance until ctx ends, and removes those left then.
func (k *logKeeper) fillSpares(ctx context.Context) {
	for {
		spare := sparePrefix + newID()
		if err := k.makeFolder(filepath.Join(k.root, spare)); err != nil {
			// A full disk, say: the next start tells who asked for it.
			k.log.Warn("folder for logs could not be made in advance", "error", err)
			select {
			case <-time.After(spareRetry):
			case <-ctx.Done():
			}
			if ctx.Err() == nil {
				continue
			}
		}
		select {
		case k.spares <- spare:
		case <-ctx.Done():
			if err := k.removeSpares(); err != nil {
				k.log.Warn("folders made in advance could not be removed", "error", err)
			}
			return
		}
	}
}

// removeSpares removes what was made in advance, by an earlier policyd as well.
func (k *logKeeper) removeSpares() error {
	entries, err := os.ReadDir(k.root)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), sparePrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(k.root, e.Name())))
		}
	}
	return err
}

// open opens the log files of a detached sandbox for the child to write.
func (k *logKeeper) open(id string) (*stdio, error) {
	s := &stdio{}
	for i, name := range []string{stdoutLog, stderrLog} {
		f, err := os.OpenFile(filepath.Join(k.folder(id), name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			s.closeChild()
			return nil, fmt.Errorf("logs: %w", err)
		}
		s.child[i+1] = f
	}
	return s, nil
}
