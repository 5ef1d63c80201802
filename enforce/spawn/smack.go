package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"policyd.dev/policyd/internal/errs"
)

const smackCurrent = "/proc/thread-self/attr/smack/current"

// setSmackLabel gives the calling thread a label, which its child inherits, and
// reads back what the kernel made of it.
func setSmackLabel(label string) error {
	if err := step(stepSmackOpen); err != nil {
		return err
	}
	f, err := os.OpenFile(smackCurrent, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: label %q: %w", errs.ErrSmackUnavailable, label, err)
	}
	defer f.Close()
	if err := step(stepSmackWrite); err != nil {
		return err
	}
	if _, err := f.WriteString(label); err != nil {
		return fmt.Errorf("%w: label %q: %w", errs.ErrSmackUnavailable, label, err)
	}
	if err := step(stepSmackRead); err != nil {
		return err
	}
	var buf [512]byte
	n, err := f.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: reading the label back: %w", errs.ErrSmackUnavailable, err)
	}
	if got := bytes.TrimRight(buf[:n], "\n\x00"); string(got) != label {
		return fmt.Errorf("%w: asked for label %q and got %q", errs.ErrSmackUnavailable, label, got)
	}
	return nil
}
