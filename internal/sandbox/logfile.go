package sandbox

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// recall learns from the file itself how much of it is gone: the first data lies
// behind the hole (lseek(2), SEEK_DATA). On a file system that tells no holes apart
// everything counts as kept, which errs towards dropping sooner.
func (f *logFile) recall() {
	f.stat()
	file, err := os.Open(f.path)
	if err != nil {
		return
	}
	defer file.Close()
	_ = control(file, func(fd int) error {
		switch off, err := unix.Seek(fd, 0, unix.SEEK_DATA); {
		case err == nil:
			f.start = off
		case errors.Is(err, unix.ENXIO): // nothing but a hole
			f.start = f.size
		}
		return nil
	})
}

// stat reads the size. A program may truncate its own log: then nothing before the
// end is kept.
func (f *logFile) stat() {
	var st unix.Stat_t
	if err := unix.Stat(f.path, &st); err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = st.Size
	f.start = min(f.start, f.size)
}

func (f *logFile) kept() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.size - f.start
}

// logReader reads one log from its oldest kept byte, or from its last lines.
type logReader struct {
	log  *logFile
	file *os.File
	off  int64
	// gone is what was dropped before the reader got there and has not been told.
	gone    int64
	emptied int64 // log.dropped as it was seen
	// until is where to stop, so that a reader that does not follow comes to an end;
	// -1: nowhere.
	until int64
}

// open positions a reader; with tail > 0 at the last lines. One that does not follow
// reads what is there now.
func (f *logFile) open(tail uint32, follow bool) (*logReader, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	r := &logReader{log: f, file: file, until: -1}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if err := r.position(tail, follow); err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}

// position wants log.mu.
func (r *logReader) position(tail uint32, follow bool) error {
	if !follow {
		st, err := r.file.Stat()
		if err != nil {
			return err
		}
		r.until = st.Size()
	}
	r.emptied = r.log.dropped
	if tail > 0 {
		off, err := lastLines(r.file, r.log.start, tail)
		if err != nil || off > r.log.start {
			r.off = off
			return err
		}
	}
	r.gone = r.log.dropped
	return r.catchUp()
}

func (r *logReader) close() { r.file.Close() }

// catchUp moves over what was dropped, to the beginning of a line; wants log.mu.
func (r *logReader) catchUp() error {
	if n := r.log.dropped - r.emptied; n > 0 {
		// The file was emptied: what was read of it is not lost.
		r.gone += max(n-r.off, 0)
		r.emptied, r.off = r.log.dropped, 0
	}
	if r.off >= r.log.start {
		return nil
	}
	to := r.log.start
	// The first line behind a hole is cut off: leave it out, unless it is so long
	// that it may not be a line at all.
	buf := make([]byte, chunk)
	n, err := r.file.ReadAt(buf, to)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
		to += int64(i) + 1
	}
	r.gone += to - r.off
	r.off = to
	return nil
}

// next reads the next bytes; n is 0 when there are none now. dropped is what has to
// be told before them.
func (r *logReader) next(p []byte) (n int, dropped int64, err error) {
	r.log.mu.RLock()
	defer r.log.mu.RUnlock()
	if err := r.catchUp(); err != nil {
		return 0, 0, err
	}
	if r.until >= 0 {
		p = p[:min(int64(len(p)), max(r.until-r.off, 0))]
	}
	n, err = r.file.ReadAt(p, r.off)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	if n == 0 && r.until < 0 {
		// A program that truncated its own log: go on where it is now.
		if st, serr := r.file.Stat(); serr == nil && st.Size() < r.off {
			r.off = st.Size()
		}
	}
	r.off += int64(n)
	dropped, r.gone = r.gone, 0
	return n, dropped, nil
}

// lastLines finds where the last lines begin, reading backwards from the end and not
// before start. A rest without end of line counts as a line.
func lastLines(f *os.File, start int64, lines uint32) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, chunk)
	left := lines
	for off := end; off > start; {
		n := min(off-start, chunk)
		off -= n
		if _, err := f.ReadAt(buf[:n], off); err != nil {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] != '\n' || off+i == end-1 {
				continue
			}
			if left--; left == 0 {
				return off + i + 1, nil
			}
		}
	}
	return start, nil
}
