package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func (k *logKeeper) folder(id string) string     { return filepath.Join(k.root, id) }
func (k *logKeeper) statusFile(id string) string { return filepath.Join(k.root, id, statusName) }

// makeFolder makes the folder of a sandbox with its empty logs.
func (k *logKeeper) makeFolder(id string) error {
	path := k.folder(id)
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
