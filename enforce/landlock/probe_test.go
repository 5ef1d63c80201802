package landlock

import (
	"errors"
	"strings"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

func TestProbeKernels(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		want, err := testkernel.ABI()
		if err != nil {
			t.Fatal(err)
		}
		s := Probe()
		if s.State != Available || s.Claimed != want || s.ABI != min(want, profile.MaxABI) || s.Err != nil {
			t.Errorf("%+v, the kernel says ABI %d", s, want)
		}
		if want >= 7 && len(s.Errata) == 0 {
			t.Error("no errata fixed")
		}
	})
}

// fake is a kernel of that ABI which claims another, or fails.
func fake(claims, has int, err error) kernel {
	return kernel{
		version: func() (int, error) { return claims, err },
		errata:  func() (int, error) { return 0b101, nil },
		create: func(attr *ll.RulesetAttr) error {
			full := fullAttr(has)
			if attr.HandledAccessFS&^full.HandledAccessFS|attr.HandledAccessNet&^full.HandledAccessNet|attr.Scoped&^full.Scoped != 0 {
				return unix.EINVAL
			}
			if has < abiQuiet && attr.QuietAccessFS != 0 {
				return unix.E2BIG
			}
			return nil
		},
	}
}

func TestProbe(t *testing.T) {
	tests := []struct {
		name  string
		k     kernel
		state State
		abi   int
		class error
		words string
	}{
		{"all", fake(11, 11, nil), Available, 11, nil, ""},
		{"newer than known", fake(40, 40, nil), Available, profile.MaxABI, nil, ""},
		{"backport ahead of itself", fake(6, 4, nil), Available, 4, nil, ""},
		{"quiet claimed, not there", fake(10, 9, nil), Available, 9, nil, ""},
		{"nothing works", fake(3, 0, nil), Disabled, 0, errs.ErrLandlockDisabled, "refuses every ruleset"},
		{"not built", fake(0, 0, unix.ENOSYS), NotBuilt, 0, errs.ErrLandlockNotBuilt, "CONFIG_SECURITY_LANDLOCK"},
		{"disabled", fake(0, 0, unix.EOPNOTSUPP), Disabled, 0, errs.ErrLandlockDisabled, "lsm="},
		{"blocked", fake(0, 0, unix.EPERM), Blocked, 0, errs.ErrLandlockBlocked, "filter"},
		{"odd", fake(0, 0, unix.EFAULT), Blocked, 0, errs.ErrLandlockBlocked, "bad address"},
	}
	for _, tt := range tests {
		s := probe(tt.k)
		if s.State != tt.state || s.ABI != tt.abi || !errors.Is(s.Err, tt.class) {
			t.Errorf("%s: %+v", tt.name, s)
		}
		if tt.class != nil && !strings.Contains(s.Err.Error(), tt.words) {
			t.Errorf("%s: %v does not say %q", tt.name, s.Err, tt.words)
		}
		if tt.state == Available && (len(s.Errata) != 2 || s.Errata[0] != 1 || s.Errata[1] != 3) {
			t.Errorf("%s: errata %v", tt.name, s.Errata)
		}
	}
	// The creating call may be refused where the question is not.
	k := fake(5, 5, nil)
	k.create = func(*ll.RulesetAttr) error { return unix.EPERM }
	if s := probe(k); s.State != Blocked {
		t.Errorf("%+v", s)
	}
}

func TestLimit(t *testing.T) {
	s := Support{ABI: 7, Claimed: 7}
	for abi, want := range map[int]int{11: 7, 7: 7, 3: 3, 1: 1, 0: 0, -1: 0} {
		l := s.Limit(abi)
		if l.ABI != want || (l.State == Available) != (want > 0) || (l.Err == nil) != (want > 0) {
			t.Errorf("Limit(%d): %+v", abi, l)
		}
	}
}
