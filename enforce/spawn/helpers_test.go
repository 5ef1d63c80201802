package spawn

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

const (
	readAll  = profile.FSReadFile | profile.FSReadDir
	readExec = readAll | profile.FSExecute
)

// rule is a path rule of the one layer most tests have.
type rule struct {
	path   string
	access profile.Access
}

// layerFor handles everything an ABI has.
func layerFor(name string, abi int) profile.Layer {
	return profile.Layer{Name: name, FS: profile.Handled(profile.FS, abi), Net: profile.Handled(profile.Net, abi)}
}

// newProfile makes a profile of one layer.
func newProfile(t testing.TB, layer profile.Layer, rules ...rule) *profile.Profile {
	t.Helper()
	b := profile.NewBuilder([]profile.Layer{layer})
	for _, r := range rules {
		b.AddPath(0, r.path, r.access&layer.FS, false, profile.Fail)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// openPolicy grants reading and executing everything, and no more.
func openPolicy(t testing.TB, sup landlock.Support, more ...rule) *landlock.Rulesets {
	t.Helper()
	return build(t, newProfile(t, layerFor("test", sup.ABI), append([]rule{{"/", readExec}, {"/dev/null", readAll | profile.FSWriteFile}}, more...)...), sup)
}

func build(t testing.TB, p *profile.Profile, sup landlock.Support) *landlock.Rulesets {
	t.Helper()
	rs, err := landlock.Build(p, sup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rs.Release)
	return rs
}

func support(t testing.TB) landlock.Support {
	t.Helper()
	sup := landlock.Probe()
	if sup.State != landlock.Available {
		t.Fatal(sup.Err)
	}
	return sup
}

func newTestSpawner(t testing.TB, n int) *Spawner {
	s := NewSpawner(n)
	t.Cleanup(s.Close)
	return s
}

// output starts a command with its output in a pipe and waits for its end.
func output(t testing.TB, s *Spawner, cmd *Command, rs *landlock.Rulesets) (string, Status) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	c, err := s.Start(cmd, rs)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), wait(t, c)
}

func wait(t testing.TB, c *Child) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	st, err := c.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// sh is a shell script as a command.
func sh(script string) *Command {
	return &Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

// terminal gives the slave of a new pseudo terminal.
func terminal(t testing.TB) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testkernel.Skip(t, "pseudo terminals", err.Error())
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return slave
}

func threads(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// fds lists the process's descriptors with what they are, but for the one of the listing.
func fds(t testing.TB) []string {
	t.Helper()
	runtime.GC() // os.Files nobody holds any more
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, n := range names {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", n.Name()))
		if err == nil && !strings.HasPrefix(target, "/proc/") {
			list = append(list, n.Name()+" "+target)
		}
	}
	return list
}

// eventually waits for what happens soon after, on other threads.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for range 500 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it did not come to be: %s", what)
}

func ptr[T any](v T) *T { return &v }
