package systemd_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestByHand is no test: test/vm.sh runs it to give a person the machine of the tests.
func TestByHand(t *testing.T) {
	if os.Getenv("POLICYD_VM") == "" {
		t.Skip("make vm runs it")
	}
	s := newMachine(t)
	if deb := os.Getenv("PACKAGE"); deb != "" {
		s = bareMachine()
		s.Folders["/root/package"] = filepath.Dir(deb)
	} else {
		s.Start = []string{"policyd.socket"}
	}
	if state := os.Getenv("STATE"); state != "" {
		s.Folders["/var/lib/policyd"] = state
	}
	if err := s.ByHand(t.Context()); err != nil {
		t.Fatal(err)
	}
}
