package smackfs

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// writer writes steps to load2 and revoke-subject, in whole-rule chunks that the kernel takes in one write.
type writer struct {
	fs    FS
	load2 File

	chunk []byte
	rules []smack.Rule // of the chunk

	writes, bytes, written int
}

func (w *writer) close() {
	if w.load2 != nil {
		w.load2.Close()
		w.load2 = nil
	}
}

// write writes the steps, up to the first error. Before every write it looks whether ctx has ended.
func (w *writer) write(ctx context.Context, todo []step) error {
	for _, s := range todo {
		if s.rule.Object == "" {
			if err := w.flush(ctx); err != nil {
				return err
			}
			if err := w.revoke(ctx, s.rule.Subject); err != nil {
				return err
			}
			continue
		}
		at := len(w.chunk)
		w.chunk = s.rule.Append(w.chunk)
		if len(w.chunk) > maxWrite {
			w.chunk = w.chunk[:at]
			if err := w.flush(ctx); err != nil {
				return err
			}
			w.chunk = s.rule.Append(w.chunk)
		}
		w.rules = append(w.rules, s.rule)
	}
	return w.flush(ctx)
}

func (w *writer) flush(ctx context.Context) error {
	chunk, rules := w.chunk, w.rules
	w.chunk, w.rules = w.chunk[:0], w.rules[:0]
	if len(rules) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := w.put(chunk)
	switch {
	case err == nil:
		w.written += len(rules)
		return nil
	case errors.Is(err, unix.EINVAL):
		return w.bisect(ctx, rules, err)
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
func (w *writer) bisect(ctx context.Context, rules []smack.Rule, refused error) error {
	for len(rules) > 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		half := rules[:len(rules)/2]
		var chunk []byte
		for _, r := range half {
			chunk = r.Append(chunk)
		}
		switch err := w.put(chunk); {
		case err == nil:
			w.written += len(half)
			rules = rules[len(half):]
		case errors.Is(err, unix.EINVAL):
			rules, refused = half, err
		default:
			return explain(w.fs, err)
		}
	}
	if err := w.put(rules[0].Append(nil)); err == nil {
		return fmt.Errorf("%w: the kernel refused rules and then took each of them, the last being %q", errs.ErrSmackRefused, text(rules[0]))
	} else if errors.Is(err, unix.EINVAL) {
		refused = err
	} else {
		return explain(w.fs, err)
	}
	return fmt.Errorf("%w: rule %q: %w", errs.ErrSmackRefused, text(rules[0]), refused)
}

func text(r smack.Rule) string { return r.Subject + " " + r.Object + " " + r.Access.String() }

func (w *writer) revoke(ctx context.Context, subject string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.writes++
	if err := writeFile(w.fs, fileRevoke, []byte(subject)); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%w: subject %q: %w", errs.ErrSmackRefused, subject, err)
		}
		return explain(w.fs, err)
	}
	w.bytes += len(subject)
	w.written++
	return nil
}

// Revoke takes every rule of a subject away, whoever loaded it, with one write. A label the kernel does not know is no
// error, and is not made.
func Revoke(fs FS, subject string) error {
	if err := smack.CheckLabel(subject); err != nil {
		return fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	w := writer{fs: fs}
	return w.revoke(context.Background(), subject)
}
