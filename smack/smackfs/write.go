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

// writer writes rules to load2, in whole-rule chunks that the kernel takes in one write.
type writer struct {
	fs    FS
	load2 File // from the first write on; it does not move its offset, so that it takes many
	chunk []byte
	rules int // in the chunk

	writes, bytes, written int
}

func (w *writer) close() {
	if w.load2 != nil {
		w.load2.Close()
	}
	w.load2 = nil
}

// write writes the steps, up to the first error. Before every write it looks whether ctx has ended.
func (w *writer) write(ctx context.Context, todo iter.Seq[smack.Rule]) error {
	if w.chunk == nil {
		w.chunk = make([]byte, 0, maxWrite+2*maxLabel+16)
	}
	w.chunk, w.rules = w.chunk[:0], 0
	for r := range todo {
		at := len(w.chunk)
		w.chunk = r.Append(w.chunk)
		if len(w.chunk) > maxWrite {
			if err := w.flush(ctx, at); err != nil {
				return err
			}
		}
		w.rules++
	}
	return w.flush(ctx, len(w.chunk))
}

// flush writes the first n bytes of the chunk and keeps the rest, which is one rule or nothing.
func (w *writer) flush(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := w.put(w.chunk[:n])
	switch {
	case err == nil:
		w.written += w.rules
		w.chunk, w.rules = w.chunk[:copy(w.chunk, w.chunk[n:])], 0
		return nil
	case errors.Is(err, unix.EINVAL):
		return w.bisect(ctx, w.chunk[:n])
	}
	return explain(w.fs, err)
}

// put makes one write(2) of whole rules. Should the kernel take less, it goes on at the rule it did not take whole;
// writing a rule again changes nothing.
func (w *writer) put(chunk []byte) error {
	if w.load2 == nil {
		f, err := w.fs.Open(fileLoad2, unix.O_WRONLY)
		if err != nil {
			return err
		}
		w.load2 = f
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
