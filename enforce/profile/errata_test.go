package profile

import (
	"strings"
	"syscall"
	"testing"
)

func TestErrata(t *testing.T) {
	for i, e := range Errata() {
		if e.Number != i+1 || KernelOf(e.ABI) == "" || e.Before == "" || e.Facts == "" {
			t.Errorf("erratum %d: %+v", i+1, e)
		}
	}
}

// What the facts say is how the answer of a kernel with the fault is had.
func TestErrataByFacts(t *testing.T) {
	p := mustBuild(t, NewBuilder([]Layer{{Name: "a", FS: FSMakeChar, Net: NetBindTCP, Scope: ScopeSignal}}))
	tests := []struct {
		erratum       int
		op            Operation
		mended, fault Facts
		errno         syscall.Errno // of the kernel with the fault
	}{
		{2, Operation{Kind: OpSignal}, Facts{SameProcess: true}, Facts{}, syscall.EPERM},
		{
			4,
			Operation{Kind: OpRename, Path: "/a/whiteout", NewPath: "/a/b"},
			Facts{Type: RegularFile},
			Facts{Type: CharDevice},
			syscall.EACCES,
		},
	}
	for _, tt := range tests {
		if a := p.Decide(tt.op, tt.mended); a.Verdict == Deny {
			t.Errorf("erratum %d mended: %v", tt.erratum, a.Errno)
		}
		if a := p.Decide(tt.op, tt.fault); a.Errno != tt.errno {
			t.Errorf("erratum %d: %v", tt.erratum, a.Errno)
		}
	}
	if e := Errata()[0]; !strings.Contains(e.Before, "MPTCP") || p.Decide(Operation{Kind: OpBindTCP}, Facts{}).Errno != syscall.EACCES {
		t.Errorf("erratum 1: %+v", e)
	}
}
