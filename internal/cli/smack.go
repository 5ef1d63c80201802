package cli

import (
	"fmt"
	"os"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// smackCurrent is the label of the calling thread; it is there when Smack is active.
const smackCurrent = "/proc/thread-self/attr/smack/current"

// SetSmackLabel labels the calling thread, which must be locked, and reads the
// label again: what was asked for is what the program
// gets. Errors wrap errs.ErrSmackUnavailable.
func SetSmackLabel(label string) error {
	if err := os.WriteFile(smackCurrent, []byte(label), 0); err != nil {
		return fmt.Errorf("label %q: %w: %w", label, errs.ErrSmackUnavailable, err)
	}
	got, err := os.ReadFile(smackCurrent)
	if err != nil {
		return fmt.Errorf("label %q: %w: %w", label, errs.ErrSmackUnavailable, err)
	}
	if have := strings.TrimRight(string(got), "\n\x00"); have != label {
		return fmt.Errorf("label %q: %w: the kernel made %q of it", label, errs.ErrSmackUnavailable, have)
	}
	return nil
}
