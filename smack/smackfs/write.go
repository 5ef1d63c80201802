package smackfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// pieces is how many chunks one writev(2) takes along: a system call costs as much as loading a chunk where calls are
// slow, and more than these save little and keep a load that is to be ended waiting.
const pieces = 16

// writer writes rules to load2, in chunks of whole rules that the kernel takes each as one write.
type writer struct {
	fs     FS
	load2  File // from the first write on; it does not move its offset, so that it takes many
	buf    []byte
	chunks []chunk // in buf

	writes, bytes, written int
}

type chunk struct {
	text  []byte
	rules int
}

func (w *writer) close() {
	if w.load2 != nil {
		w.load2.Close()
	}
	w.load2 = nil
}

// write writes the steps, up to the first error. Before every write it looks whether ctx has ended.
func (w *writer) write(ctx context.Context, todo iter.Seq[smack.Rule]) error {
	if w.buf == nil {
		w.buf = make([]byte, 0, pieces*maxWrite+2*maxLabel+16) // chunks are parts of it: it must not grow
	}
	w.buf, w.chunks = w.buf[:0], w.chunks[:0]
	start, rules := 0, 0
	for r := range todo {
		at := len(w.buf)
		w.buf = r.Append(w.buf)
		if len(w.buf)-start > maxWrite {
			w.chunks = append(w.chunks, chunk{w.buf[start:at], rules})
			start, rules = at, 0
			if len(w.chunks) == pieces {
				if err := w.flush(ctx); err != nil {
					return err
				}
				w.buf, start = w.buf[:copy(w.buf, w.buf[at:])], 0
			}
		}
		rules++
	}
	if len(w.buf) > start {
		w.chunks = append(w.chunks, chunk{w.buf[start:], rules})
	}
	return w.flush(ctx)
}

// flush writes the chunks: together as far as the kernel takes them, and by itself the one it did not take whole.
func (w *writer) flush(ctx context.Context) error {
	todo := w.chunks
	w.chunks = w.chunks[:0]
	for len(todo) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := w.together(todo)
		if err != nil {
			return explain(w.fs, err)
		}
		if n == 0 {
			switch err := w.put(todo[0].text); {
			case errors.Is(err, unix.EINVAL):
				return w.bisect(ctx, todo[0].text)
			case err != nil:
				return explain(w.fs, err)
			}
			n = 1
		}
		for _, c := range todo[:n] {
			w.written += c.rules
		}
		todo = todo[n:]
	}
	return nil
}

// together tells how many of several chunks the kernel took whole in one writev(2), which writes one after the other and
// ends at the first that is refused or cut (do_loop_readv_writev in fs/read_write.c). 0: the first must be written alone.
func (w *writer) together(chunks []chunk) (n int, err error) {
	if len(chunks) < 2 {
		return 0, nil
	}
	if err := w.open(); err != nil {
		return 0, err
	}
	f, ok := w.load2.(piecesWriter)
	if !ok {
		return 0, nil
	}
	texts := make([][]byte, len(chunks))
	for i, c := range chunks {
		texts[i] = c.text
	}
	w.writes++
	taken, err := f.WritePieces(texts)
	if errors.Is(err, unix.EINVAL) {
		return 0, nil
	}
	for n < len(texts) && taken >= len(texts[n]) {
		w.bytes += len(texts[n])
		taken -= len(texts[n])
		n++
	}
	return n, err
}

func (w *writer) open() error {
	if w.load2 != nil {
		return nil
	}
	f, err := w.fs.Open(fileLoad2, unix.O_WRONLY)
	if err == nil {
		w.load2 = f
	}
	return err
}

// try is [CanWrite] for this writer.
func (w *writer) try() error {
	err := w.open()
	if err == nil {
		_, err = w.load2.Write(nil)
	}
	return explain(w.fs, err)
}

// put makes one write(2) of whole rules. Should the kernel take less, it goes on at the rule it did not take whole;
// writing a rule again changes nothing.
func (w *writer) put(chunk []byte) error {
	if err := w.open(); err != nil {
		return err
	}
	for len(chunk) > 0 {
		w.writes++
		n, err := w.load2.Write(chunk)
		if err != nil {
			return err
		}
		w.bytes += n
		if n == len(chunk) {
			return nil
		}
		for n > 0 && chunk[n-1] != '\n' {
			n--
		}
		if n <= 0 {
			return fmt.Errorf("load2: the kernel took less than one rule of %.80q: %w", chunk, unix.EIO)
		}
		chunk = chunk[n:]
	}
	return nil
}

// bisect finds the rule for which the kernel refused a chunk. The rules before it are loaded, then or now.
func (w *writer) bisect(ctx context.Context, chunk []byte) error {
	for {
		rules := bytes.Count(chunk, []byte("\n"))
		half := chunk
		for range rules / 2 {
			half = half[bytes.IndexByte(half, '\n')+1:]
		}
		half = chunk[:len(chunk)-len(half)]
		if rules == 1 {
			half = chunk
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := w.put(half)
		line := bytes.TrimSuffix(chunk, []byte("\n"))
		switch {
		case err != nil && !errors.Is(err, unix.EINVAL):
			return explain(w.fs, err)
		case rules == 1 && err == nil:
			return fmt.Errorf("%w: the kernel refused rules and then took each of them, the last being %q", errs.ErrSmackRefused, line)
		case rules == 1:
			return fmt.Errorf("%w: rule %q: %w", errs.ErrSmackRefused, line, err)
		case err == nil:
			w.written += rules / 2
			chunk = chunk[len(half):]
		default:
			chunk = half
		}
	}
}

func text(r smack.Rule) string { return r.Subject + " " + r.Object + " " + r.Access.String() }

// Revoke takes every rule of a subject away, whoever loaded it, with one write. A label the kernel does not know is no
// error, and is not made.
func Revoke(fs FS, subject string) error {
	if err := smack.CheckLabel(subject); err != nil {
		return fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	err := writeFile(fs, fileRevoke, []byte(subject))
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: subject %q: %w", errs.ErrSmackRefused, subject, err)
	}
	return explain(fs, err)
}
