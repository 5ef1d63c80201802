package depth

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// What is on file systems that are mounted nowhere is opened and executed under
// any rules: profile.Facts.Internal.
func TestInternalFilesAreNotMediated(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, internalFiles)
}

func internalFiles(t *testing.T) {
	n, dir := newNested(t, 1)
	s := newStack(t, dir, 1, 2)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.MemfdCreate("policyd-depth", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	defer unix.Close(memory)
	thread := n.confine(t, s.p)
	fd := func(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd) }
	for path, facts := range map[string]profile.Facts{
		fd(pipe[0]):                          {Type: profile.Fifo, Internal: true},
		fd(memory):                           {Type: profile.RegularFile, Internal: true},
		"/proc/thread-self/ns/user":          {Type: profile.RegularFile, Internal: true},
		"/proc/thread-self/status":           {Type: profile.RegularFile},
		dir + "/" + dirName + "/" + fileName: {Type: profile.RegularFile},
	} {
		var errno error
		thread.do(func() {
			var fd int
			if fd, errno = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); errno == nil {
				unix.Close(fd)
			}
		})
		a := s.p.Decide(profile.Operation{Kind: profile.OpOpen, Path: path, Open: profile.OpenRead}, facts)
		if (errno == nil) != (a.Verdict != profile.Deny) || errno != nil && errno != error(a.Errno) {
			t.Errorf("%s: the kernel says %v, the engine %v %v", path, errno, a.Verdict, a.Errno)
		}
	}
}
