package preflight

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// openRegular opens a regular file for reading. It never waits: what a path
// names may be a pipe without a writer or a device.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if st.Mode().IsRegular() {
		// O_NONBLOCK for a path that becomes a pipe between the two.
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		if err != nil {
			return nil, nil, err
		}
		if st, err = f.Stat(); err == nil && st.Mode().IsRegular() {
			return f, st, nil
		}
		f.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%s: %w", path, errNotRegular)
}

// readBounded reads a whole regular file of at most max bytes.
func readBounded(path string, max int64) ([]byte, error) {
	f, st, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Size() > max {
		return nil, fmt.Errorf("%s: %d bytes are more than the %d read of such a file", path, st.Size(), max)
	}
	return io.ReadAll(io.LimitReader(f, max))
}

// fileID names an object on this host.
type fileID struct{ dev, ino uint64 }

func idOf(st os.FileInfo) fileID {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return fileID{s.Dev, s.Ino}
	}
	return fileID{}
}
