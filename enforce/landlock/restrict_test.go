package landlock

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// TestAnswered: a seccomp filter that answers calls in the kernel's place, saying
// that they worked, is found out, also when it does so for one number alone.
func TestAnswered(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	dir := tree(t, "f")
	p := newProfile(t, layers("box"), rule{dir, read, profile.Fail})
	next := uint32(lowestFree(t, 2)[1]) // behind the ruleset
	for _, tc := range []struct {
		name  string
		nr    uint32
		arg   int
		value uint32
		want  error
	}{
		{"the thread is restricted", unix.SYS_LANDLOCK_RESTRICT_SELF, -1, 0, errs.ErrLandlockBlocked},
		{"the thread is restricted by that number", unix.SYS_LANDLOCK_RESTRICT_SELF, 0, next, errs.ErrLandlockBlocked},
		{"there is a ruleset", unix.SYS_LANDLOCK_CREATE_RULESET, -1, 0, errs.ErrLandlockBlocked},
		{"the number leads to the ruleset", unix.SYS_DUP3, -1, 0, unix.EBADF},
		{"a path is open", unix.SYS_OPENAT2, -1, 0, errs.ErrPathRefused},
		{"whatever is open", unix.SYS_OPENAT, -1, 0, errs.ErrLandlockBlocked},
		{"/proc is looked at", unix.SYS_STATFS, -1, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leakCheck(t)
			onThread(func() {
				if err := answer(tc.nr, tc.arg, tc.value, 0); err != nil {
					t.Error(err)
					return
				}
				sup := sup
				if tc.nr == unix.SYS_LANDLOCK_CREATE_RULESET {
					sup = Probe()
				}
				r, err := Build(p, sup)
				if err == nil {
					err = r.RestrictThread()
					r.Release()
				}
				if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("%v; want %v", err, tc.want)
				}
			})
		})
	}
}

// TestAnsweredNoNewPrivs: prctl says it is set, and it is not. The filter itself
// needs CAP_SYS_ADMIN then.
func TestAnsweredNoNewPrivs(t *testing.T) {
	testkernel.RequireRoot(t)
	sup := support(t)
	r, err := Build(newProfile(t, layers("box"), rule{tree(t, "f"), read, profile.Fail}), sup)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	onThread(func() {
		if err := filter(unix.SYS_PRCTL, 0, unix.PR_SET_NO_NEW_PRIVS, 0); err != nil {
			t.Error(err)
			return
		}
		if err := r.RestrictThread(); !errors.Is(err, errs.ErrLandlockBlocked) {
			t.Errorf("%v", err)
		}
	})
}
