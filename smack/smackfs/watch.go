package smackfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ruleFiles are the files by which the rules of load2 change.
var ruleFiles = []string{fileLoad, fileLoad2, fileChange, fileRevoke}

// watchable is an [FS] that can tell whether others used the files of rules.
type watchable interface {
	watchRules() (watch, error)
}

// watch tells whether another process than this one wrote one of [ruleFiles], or closed one it could have written. The
// second is for writes that fail after their first rules, of which the kernel tells nobody (vfs_write).
type watch interface {
	// quiet reports whether none did since the call before, or since the watch began. An error is a no.
	quiet() bool
	close()
}

// watchOf begins a watch; an FS that has none, and a process that may not watch (CAP_SYS_ADMIN), give an error.
func watchOf(fs FS) (watch, error) {
	for {
		if w, ok := fs.(watchable); ok {
			return w.watchRules()
		}
		u, ok := fs.(interface{ Unwrap() FS })
		if !ok {
			return nil, errors.ErrUnsupported
		}
		fs = u.Unwrap()
	}
}

// kernelWatch is a fanotify(7) group. Of the kernel's ways to watch it is the one that names who: events of one process
// are joined, those of two never (fanotify_should_merge in fs/notify/fanotify/fanotify.c), so that a write of somebody
// else is seen beside our own.
type kernelWatch struct {
	fd  int
	pid int32
	buf [4096]byte
}

const sizeofEvent = int(unsafe.Sizeof(unix.FanotifyEventMetadata{}))

func (d Dir) watchRules() (watch, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fanotify_init", err)
	}
	for _, name := range ruleFiles {
		path := filepath.Join(string(d), name)
		err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_MODIFY|unix.FAN_CLOSE_WRITE, unix.AT_FDCWD, path)
		if err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("watch %s: %w", path, err)
		}
	}
	return &kernelWatch{fd: fd, pid: int32(os.Getpid())}, nil
}

func (w *kernelWatch) close() { unix.Close(w.fd) }

func (w *kernelWatch) quiet() bool {
	quiet := true
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(w.fd, w.buf[:]) })
		if errors.Is(err, unix.EAGAIN) {
			return quiet
		}
		if err != nil || n < sizeofEvent {
			return false
		}
		for b := w.buf[:n]; len(b) >= sizeofEvent; {
			// struct fanotify_event_metadata: event_len, vers, reserved, metadata_len, mask, fd, pid.
			size := int(binary.NativeEndian.Uint32(b))
			mask := binary.NativeEndian.Uint64(b[8:])
			fd := int32(binary.NativeEndian.Uint32(b[16:]))
			pid := int32(binary.NativeEndian.Uint32(b[20:]))
			if fd >= 0 {
				unix.Close(int(fd))
			}
			if pid != w.pid || mask&unix.FAN_Q_OVERFLOW != 0 {
				quiet = false
			}
			if size <= 0 || size > len(b) {
				return false
			}
			b = b[size:]
		}
		if n < len(w.buf)-sizeofEvent {
			return quiet // there was room for another one
		}
	}
}
