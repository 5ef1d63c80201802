package containers

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// A label that no process can have, or that this kernel cannot give, is an error; none is nothing to do.
func TestAllowLabel(t *testing.T) {
	if err := AllowLabel(""); err != nil {
		t.Error(err)
	}
	for _, label := range []string{"a b", "a/b", "-x", "*", "@", "é", strings.Repeat("x", 256)} {
		if err := AllowLabel(label); !errors.Is(err, ErrSmack) {
			t.Errorf("%.20q: %v", label, err)
		}
	}
	if _, err := os.Stat(relabelSelf); err == nil {
		return // the tests of policyd-runc do the rest, in a container
	}
	if err := AllowLabel("Web"); !errors.Is(err, ErrSmack) || !strings.Contains(err.Error(), "this kernel has no Smack") {
		t.Error(err)
	}
}
