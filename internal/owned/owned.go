// Package owned reads files that say what is confined, and how: those that nobody but root and the calling user can have
// written. It imports the standard library only, since programs that must start quickly use it.
package owned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrOthers is the error of a file that somebody else can have written, or that is none.
var ErrOthers = errors.New("no file that only root and this user can write")

// Open opens a regular file to be read. It follows no link in the last place and waits for no fifo. Errors are those of
// open(2), and [ErrOthers] wrapped.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = Check(path, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Check looks at what stat(2) told of a path. The error wraps [ErrOthers] and says what is to be mended.
func Check(path string, st fs.FileInfo) error {
	owner, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !st.Mode().IsRegular():
		return fmt.Errorf("%s: %w: no regular file", path, ErrOthers)
	case owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("%s: %w: it belongs to uid %d; nobody but root and uid %d may be able to write it", path, ErrOthers, owner.Uid, os.Geteuid())
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: %w: others may write it (mode %04o); nobody but root and uid %d may be able to write it", path, ErrOthers, st.Mode().Perm(), os.Geteuid())
	}
	return nil
}
