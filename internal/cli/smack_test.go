package cli

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// The calling thread has the label, or an error says why not.
func TestSetSmackLabel(t *testing.T) {
	testkernel.Each(t, testkernel.Smack, func(t *testing.T) {
		for label, fits := range map[string]bool{"Web": true, "-bad": false, "": false, strings.Repeat("x", 300): false} {
			type answer struct {
				err error
				got []byte
			}
			done := make(chan answer)
			go func() {
				runtime.LockOSThread() // never unlocked: the thread ends with its label
				err := SetSmackLabel(label)
				got, _ := os.ReadFile("/proc/thread-self/attr/smack/current")
				done <- answer{err, got}
			}()
			a := <-done
			if has := strings.TrimRight(string(a.got), "\n\x00") == label; has != fits || (a.err == nil) != fits {
				t.Errorf("label %q: %v, the thread has %q", label, a.err, a.got)
			}
			if a.err != nil && !errors.Is(a.err, errs.ErrSmackUnavailable) {
				t.Errorf("label %q: %v", label, a.err)
			}
		}
	})
}
