package landlock

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
)

// refuse makes a system call fail with EIO on this thread from now on, when its
// argument arg is value (any, for arg -1).
func refuse(nr uint32, arg int, value uint32) error { return answer(nr, arg, value, unix.EIO) }

// answer is refuse with another error; 0 is that the call has worked, though it was not made.
func answer(nr uint32, arg int, value uint32, errno unix.Errno) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return filter(nr, arg, value, errno)
}

func filter(nr uint32, arg int, value uint32, errno unix.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: nr},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(16 + 8*max(arg, 0))}, // seccomp_data.args, low half
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: value},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if arg < 0 {
		filter[3] = unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA} // to the next
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	return nil
}

// lowestFree are the numbers the next n descriptors will have.
func lowestFree(t *testing.T, n int) []int {
	t.Helper()
	var fds []int
	for range n {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return fds
}

// TestBuildFaults makes each system call of Build fail, for the first layer and
// for a later one: no ruleset is handed out or kept, and no descriptor stays open.
func TestBuildFaults(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	dir := tree(t, "f")
	ls := layers("one", "two", "three")
	b := profile.NewBuilder(ls)
	for i := range ls {
		b.AddPath(i, dir, read, false, profile.Fail)
		b.AddPath(i, "/nonexistent/skipped", read, false, profile.Skip)
	}
	paths, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	withPorts := *paths
	if sup.ABI >= 4 {
		for i := range ls {
			ls[i].Net = profile.Handled(profile.Net, 4)
		}
		b := profile.NewBuilder(ls)
		for i := range ls {
			b.AddPath(i, dir, read, false, profile.Fail)
			b.AddPorts(i, 80, 81, profile.Handled(profile.Net, 4), false)
		}
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		withPorts = *p
	}
	flat := *paths
	flat.Flatten, flat.AcceptSharedInode, flat.AcceptReferFlatten = true, true, true
	const netPort = 2 // LANDLOCK_RULE_NET_PORT
	fd := lowestFree(t, 3)
	for _, tc := range []struct {
		name  string
		p     *profile.Profile
		nr    uint32
		arg   int
		value uint32
		want  []string
	}{
		{"create", paths, unix.SYS_LANDLOCK_CREATE_RULESET, -1, 0, []string{"landlock_create_ruleset", `layer "one"`}},
		{"create flat", &flat, unix.SYS_LANDLOCK_CREATE_RULESET, -1, 0, []string{"landlock_create_ruleset"}},
		{"add path", paths, unix.SYS_LANDLOCK_ADD_RULE, -1, 0, []string{"landlock_add_rule", dir, `layer "one"`}},
		{"add path to a later layer", paths, unix.SYS_LANDLOCK_ADD_RULE, 0, uint32(fd[1]), []string{"landlock_add_rule", dir, `layer "two"`}},
		{"add path to the last layer", paths, unix.SYS_LANDLOCK_ADD_RULE, 0, uint32(fd[2]), []string{"landlock_add_rule", dir, `layer "three"`}},
		{"add path flat", &flat, unix.SYS_LANDLOCK_ADD_RULE, -1, 0, []string{"landlock_add_rule", dir}},
		{"add port", &withPorts, unix.SYS_LANDLOCK_ADD_RULE, 1, netPort, []string{"landlock_add_rule", "port 80"}},
		{"open", paths, unix.SYS_OPENAT2, -1, 0, []string{dir}},
		{"statx", paths, unix.SYS_STATX, -1, 0, []string{dir}},
		{"readlink", paths, unix.SYS_READLINKAT, -1, 0, []string{dir}},
		{"statfs", paths, unix.SYS_FSTATFS, -1, 0, []string{dir}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.p == &withPorts && sup.ABI < 4 {
				t.Skip("the kernel has no rules for ports")
			}
			leakCheck(t)
			c := NewCache(4)
			defer c.Close()
			onThread(func() {
				if err := refuse(tc.nr, tc.arg, tc.value); err != nil {
					t.Error(err)
					return
				}
				rs, err := Build(tc.p, sup)
				if rs != nil || !errors.Is(err, unix.EIO) {
					t.Errorf("built %v, error %v", rs, err)
				}
				for _, want := range tc.want {
					if err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("%v does not say %q", err, want)
					}
				}
				if rs, release, err := c.Get(tc.p, "digest", sup); err == nil || rs != nil || release != nil || c.Len() != 0 {
					t.Errorf("cache: %v, error %v, %d kept", rs, err, c.Len())
				}
			})
			// What failed once is built anew.
			if _, release, err := c.Get(tc.p, "digest", sup); err != nil {
				t.Errorf("after the fault: %v", err)
			} else {
				release()
			}
		})
	}
}

// TestNoDescriptorForLayer: the table of descriptors is full in the middle of the layers.
func TestNoDescriptorForLayer(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	p := newProfile(t, layers("one", "two", "three"), rule{path: tree(t, "f"), access: read})
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for room := range 3 {
		limit := old
		limit.Cur = uint64(lowestFree(t, 4)[room])
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		rs, err := Build(p, sup)
		if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
			t.Fatal(rerr)
		}
		if rs != nil || !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "landlock_create_ruleset") {
			t.Errorf("room for %d: built %v, error %v", room, rs, err)
		}
	}
}
