package smackfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Names of smackfs's files.
const (
	fileLoad     = "load"
	fileLoad2    = "load2"
	fileSelf     = "load-self"
	fileSelf2    = "load-self2"
	fileChange   = "change-rule"
	fileRevoke   = "revoke-subject"
	fileAccess   = "access"
	fileAccess2  = "access2"
	fileCipso    = "cipso"
	fileCipso2   = "cipso2"
	fileNetlabel = "netlabel"
	fileIPv6     = "ipv6host"
	fileDoi      = "doi"
	fileDirect   = "direct"
	fileMapped   = "mapped"
	fileAmbient  = "ambient"
	fileOnlycap  = "onlycap"
	fileRelabel  = "relabel-self"
	fileUnconf   = "unconfined"
	fileSyslog   = "syslog"
	fileLogging  = "logging"
	filePtrace   = "ptrace"
)

// FS is a smackfs. Errors are *os.PathError with the kernel's errno.
type FS interface {
	// Open opens a file with O_RDONLY, O_WRONLY or O_RDWR.
	Open(name string, flag int) (File, error)
}

// File is one open file of a smackfs. Each Write is exactly one write(2): a short count is not an error, and is not
// resumed. Read gives io.EOF at the end.
type File interface {
	io.ReadWriteCloser
}

// piecesReader is a [File] of which much is read at once.
type piecesReader interface {
	ReadPieces(pieces [][]byte) (int, error)
}

// piecesWriter is a [File] that takes several writes in one system call.
type piecesWriter interface {
	WritePieces(pieces [][]byte) (int, error)
}

// Dir is a mounted smackfs by its folder.
type Dir string

// Open opens a file of the folder.
func (d Dir) Open(name string, flag int) (File, error) {
	path := filepath.Join(string(d), name)
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(path, flag|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &dirFile{fd: fd, path: path}, nil
}

type dirFile struct {
	fd   int
	path string
}

func (f *dirFile) Read(p []byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(f.fd, p) })
	switch {
	case err != nil:
		return 0, &os.PathError{Op: "read", Path: f.path, Err: err}
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// ReadPieces reads as many pieces of a buffer as one system call fills. A read of smackfs's lists gives a page at most, and formats the
// entry that no longer fits in vain; readv(2) reads piece by piece there, and smaller ones end within an entry, of which the
// kernel keeps the rest.
func (f *dirFile) ReadPieces(pieces [][]byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Readv(f.fd, pieces) })
	switch {
	case err != nil:
		return 0, &os.PathError{Op: "readv", Path: f.path, Err: err}
	case n == 0 && len(pieces) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (f *dirFile) Write(p []byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Write(f.fd, p) })
	if err != nil {
		return 0, &os.PathError{Op: "write", Path: f.path, Err: err}
	}
	return n, nil
}

// WritePieces makes a write of each piece, up to the first that is refused or taken in part; the count is of bytes taken,
// and the error that of the first piece.
func (f *dirFile) WritePieces(pieces [][]byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Writev(f.fd, pieces) })
	if err != nil {
		return 0, &os.PathError{Op: "writev", Path: f.path, Err: err}
	}
	return n, nil
}

func (f *dirFile) Close() error {
	if f.fd < 0 {
		return &os.PathError{Op: "close", Path: f.path, Err: os.ErrClosed}
	}
	fd := f.fd
	f.fd = -1
	if err := unix.Close(fd); err != nil {
		return &os.PathError{Op: "close", Path: f.path, Err: err}
	}
	return nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readFile reads a file to its end. The kernel gives NUL-terminated files only to a buffer that holds them whole.
func readFile(fs FS, name string) ([]byte, error) {
	f, err := fs.Open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, 0, 16<<10)
	for {
		if cap(buf)-len(buf) < 8<<10 {
			buf = append(make([]byte, 0, 4*cap(buf)), buf...)
		}
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

// writeFile makes one write(2) of all of data to a file.
func writeFile(fs FS, name string, data []byte) error {
	f, err := fs.Open(name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := f.Write(data)
	if err != nil {
		return err
	}
	if n != len(data) {
		return fmt.Errorf("%s: the kernel took %d of %d bytes", name, n, len(data))
	}
	return nil
}
