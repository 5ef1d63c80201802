package spawn

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/testkernel"
)

// unreaped starts a program that nobody waits for before the test is over, and
// gives its start ticks.
func unreaped(t *testing.T, script string, cred *syscall.Credential) (pid int, ticks uint64) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ticks, err := startTicks(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, ticks
}

// TestAdoptedNotReaped: an adopted program whose parent never waits for it has a
// status nevertheless, and at once.
func TestAdoptedNotReaped(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		for _, tc := range []struct {
			script string
			want   Status
		}{
			{"sleep 0.1; exit 9", Status{Code: 9}},
			{"sleep 0.1; exit 0", Status{}},
			{"sleep 0.1; kill -KILL $$", Status{Code: 137, Signal: 9}},
			{"exit 3", Status{Code: 3}}, // maybe over when it is adopted
		} {
			for who, cred := range map[string]*syscall.Credential{"same user": nil, "other user": {Uid: 65534, Gid: 65534}} {
				t.Run(tc.script+"/"+who, func(t *testing.T) {
					if cred != nil {
						testkernel.RequireRoot(t)
					}
					c, err := Adopt(unreaped(t, tc.script, cred))
					if err != nil {
						t.Fatal(err)
					}
					if st := wait(t, c); st != tc.want {
						t.Errorf("%+v, want %+v", st, tc.want)
					}
				})
			}
		}
	})
}

// TestNotShown: a user the kernel does not tell the status reads a 0, which is
// not taken for one.
func TestNotShown(t *testing.T) {
	testkernel.RequireRoot(t)
	for _, script := range []string{"exit 9", "exit 0"} {
		pid, ticks := unreaped(t, script, nil)
		var st Status
		var err error
		eventually(t, "it ended", func() bool {
			st, err = zombieStatus(pid, ticks)
			return err == nil
		})
		if st.Code != 0 != (script == "exit 9") {
			t.Errorf("%s: root sees %+v", script, st)
		}
		if _, err := zombieStatus(pid, ticks+1); err == nil {
			t.Error("another process of that number has its status")
		}
		seen := make(chan error)
		onOwnThread(func() {
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
				seen <- e
				return
			}
			_, err := zombieStatus(pid, ticks)
			seen <- err
		})
		if err := <-seen; !errors.Is(err, errNotShown) {
			t.Errorf("%s: another user is told, or not why: %v", script, err)
		}
	}
}

// TestAdoptedGone: of a program that was waited for before it is asked about the
// kernel tells by pidfd, or nobody does.
func TestAdoptedGone(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ticks, err := startTicks(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Adopt(cmd.Process.Pid, ticks)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it is gone from /proc
	if st := wait(t, c); st.Signal != int(unix.SIGKILL) && (kernelTells(t) || !st.Unknown) {
		t.Errorf("%+v", st)
	}
}

// kernelTells: from 6.15 on, by pidfd.
func kernelTells(t *testing.T) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil && info.Supported_mask&unix.PIDFD_INFO_EXIT != 0
}
