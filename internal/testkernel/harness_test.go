package testkernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// caseEnv makes TestCase behave as the harness's tests want to see it reported.
const caseEnv = "TESTKERNEL_CASE"

// TestCase is what the harness's tests run, on the host, in a test binary of its own.
func TestCase(t *testing.T) {
	which := os.Getenv(caseEnv)
	if which == "" {
		t.Skip("run by the harness's tests only")
	}
	fn := func(t *testing.T) {
		if _, guest := insideGuest(); !guest {
			return
		}
		switch which {
		case "pass":
			fmt.Println("said in the guest")
		case "fail":
			t.Error("wrong in the guest")
		case "skip":
			t.Skip("no reason")
		case "lack":
			RequireTool(t, "no-such-program", "build it")
		case "panic":
			panic("of the test")
		case "exit":
			os.Exit(0)
		case "kernel":
			// The Go runtime's answer to SIGQUIT ends process 1, and with it the kernel.
			_ = unix.Kill(1, unix.SIGQUIT)
			select {}
		case "hang", "slow":
			fmt.Println("hanging now")
			time.Sleep(time.Hour)
		}
	}
	if which == "nested" {
		t.Run("with space (and) a/slash", func(t *testing.T) { Each(t, Landlock, fn) })
		return
	}
	timeout := time.Minute
	if which == "slow" {
		timeout = 6 * time.Second
	}
	Each(t, Landlock, fn, Timeout(timeout))
}

// caseCommand is the test binary running TestCase.
func caseCommand(t *testing.T, which string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestCase$", "-test.v")
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "CI=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(append(cmd.Env, caseEnv+"="+which), env...)
	return cmd
}

func requireKernel(t *testing.T, name string) {
	t.Helper()
	if _, err := cached(name, "linux"); err != nil {
		Skip(t, "kernel "+name, "make kernels")
	}
}

func TestEach(t *testing.T) {
	requireKernel(t, UML73)
	empty := "POLICYD_KERNEL_CACHE=" + t.TempDir()
	for _, tc := range []struct {
		name, which string
		env         []string
		ok          bool
		want        []string // in the output
	}{
		{name: "passes", which: "pass", ok: true, want: []string{"--- PASS: TestCase/uml-7.3", "guest| said in the guest"}},
		{name: "passes in ci", which: "pass", env: []string{"CI=true"}, ok: true, want: []string{"--- PASS: TestCase/uml-7.3"}},
		{name: "fails", which: "fail", want: []string{"--- FAIL: TestCase/uml-7.3", "wrong in the guest", "exit status 1"}},
		{name: "skips", which: "skip", ok: true, want: []string{"--- SKIP: TestCase/uml-7.3", "no reason"}},
		{name: "lacks a tool", which: "lack", ok: true, want: []string{"--- SKIP: TestCase/uml-7.3", "no-such-program", "build it"}},
		{name: "lacks a tool in ci", which: "lack", env: []string{"CI=true"}, want: []string{"--- FAIL: TestCase/uml-7.3", "build it"}},
		{name: "panics", which: "panic", want: []string{"--- FAIL: TestCase/uml-7.3", "panic: of the test", "exit status 2"}},
		{name: "leaves early", which: "exit", want: []string{"--- FAIL: TestCase/uml-7.3", "the subtest did not run"}},
		{name: "kernel panics", which: "kernel", want: []string{"--- FAIL: TestCase/uml-7.3", "no exit status", "Attempted to kill init"}},
		{name: "takes too long", which: "slow", want: []string{"--- FAIL: TestCase/uml-7.3"}},
		{name: "nested", which: "nested", ok: true, want: []string{"--- PASS: TestCase/with_space_(and)_a/slash/uml-7.3"}},
		{name: "no kernel", which: "pass", env: []string{empty}, ok: true, want: []string{"--- SKIP: TestCase/uml-7.3", "make kernels"}},
		{name: "no kernel in ci", which: "pass", env: []string{empty, "CI=true"}, want: []string{"--- FAIL: TestCase/uml-7.3", "make kernels"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := caseCommand(t, tc.which, tc.env...).CombinedOutput()
			if tc.ok != (err == nil) {
				t.Errorf("test binary: %v", err)
			}
			for _, want := range tc.want {
				if !bytes.Contains(out, []byte(want)) {
					t.Errorf("output lacks %q", want)
				}
			}
			if t.Failed() {
				t.Logf("output:\n%s", out)
			}
		})
	}
}

// TestPlainUser runs a guest as a user who owns nothing but his temporary folder.
func TestPlainUser(t *testing.T) {
	RequireRoot(t)
	requireKernel(t, UML73)
	if _, guest := insideGuest(); guest {
		t.Skip("of the host only")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("/tmp", "testkernel-user-") //nolint:usetesting // the parent of t.TempDir is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := caseCommand(t, "pass", "TMPDIR="+dir, "HOME="+dir, "POLICYD_KERNEL_CACHE="+dir)
	linux, err := cached(UML73, "linux")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, UML73), 0o755); err != nil {
		t.Fatal(err)
	}
	// Neither the cache nor the test binary need be in folders he may search.
	bin := filepath.Join(dir, "plain.test")
	for from, to := range map[string]string{linux: filepath.Join(dir, UML73, "linux"), cmd.Path: bin} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Dir = bin, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestCase/uml-7.3")) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestRun runs programs that are not tests.
func TestRun(t *testing.T) {
	requireKernel(t, UML73)
	for _, tc := range []struct {
		name, script, want string
		env                []string
		exit               int
	}{
		{name: "output", script: `printf 'a\r\nb'; printf c >&2`, want: "a\r\nbc"},
		{name: "status", script: "exit 42", exit: 42},
		{name: "signal", script: "kill -KILL $$", exit: 128 + 9},
		{name: "environment", script: `echo "$X $HOME $TMPDIR"; pwd`, env: []string{"X=y"}, want: "y /tmp/home /tmp\n/usr\n"},
		{name: "orphans", script: "(sleep 1000 &) ; echo done", want: "done\n"},
		{name: "much", script: "head -c 300000 /dev/zero | tr '\\0' x", want: strings.Repeat("x", 300000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			g := Guest{Kernel: UML73, Argv: []string{"/bin/sh", "-c", tc.script}, Dir: "/usr", Env: tc.env, Output: &out}
			exit, err := g.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if exit != tc.exit || out.String() != tc.want {
				t.Errorf("status %d, output %.200q; want %d, %.200q", exit, out.String(), tc.exit, tc.want)
			}
		})
	}
}

func TestRunErrors(t *testing.T) {
	requireKernel(t, UML73)
	for _, tc := range []struct {
		name  string
		guest Guest
		want  string
	}{
		{name: "unknown kernel", guest: Guest{Kernel: "uml-0", Argv: []string{"/bin/true"}}, want: "no kernel named"},
		{name: "no program", guest: Guest{Kernel: UML73}, want: "not an absolute path"},
		{name: "relative program", guest: Guest{Kernel: UML73, Argv: []string{"true"}}, want: "not an absolute path"},
		{name: "missing program", guest: Guest{Kernel: UML73, Argv: []string{"/nonexistent"}}, want: "/nonexistent: no such file"},
		{name: "not executable", guest: Guest{Kernel: UML73, Argv: []string{"/etc/passwd"}}, want: "permission denied"},
		{name: "missing folder", guest: Guest{Kernel: UML73, Argv: []string{"/bin/true"}, Dir: "/nonexistent"}, want: "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.guest.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	t.Setenv("POLICYD_KERNEL_CACHE", t.TempDir())
	g := Guest{Kernel: UML73, Argv: []string{"/bin/true"}}
	if _, err := g.Run(t.Context()); !errors.Is(err, ErrNoKernel) {
		t.Errorf("empty cache: %v, want ErrNoKernel", err)
	}
}

// TestCancel holds that a guest whose context ends leaves no process behind.
func TestCancel(t *testing.T) {
	requireKernel(t, UML73)
	adoptOrphans(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &onWrite{f: cancel}
	g := Guest{Kernel: UML73, Argv: []string{"/bin/sh", "-c", "sleep 1000 & echo up; sleep 1000"}, Output: out}
	_, err := g.Run(ctx)
	var ge *GuestError
	if !errors.As(err, &ge) || !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want a GuestError of the context", err)
	}
	if out.String() != "up\n" || !strings.HasSuffix(ge.Console, "up") {
		t.Errorf("output %q, console %q", out.String(), ge.Console)
	}
	waitNoDescendants(t)
}

// onWrite calls f when the first output is there.
type onWrite struct {
	bytes.Buffer
	f func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	defer w.f()
	return w.Buffer.Write(p)
}

// TestKilledHost holds that a guest does not outlive a test binary that is killed.
func TestKilledHost(t *testing.T) {
	requireKernel(t, UML73)
	adoptOrphans(t)
	cmd := caseCommand(t, "hang", "TMPDIR="+t.TempDir())
	pr, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(seen, []byte("hanging now")) {
		n, err := pr.Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
	}
	if len(descendants(t)) < 2 {
		t.Errorf("the guest's processes are not descendants: %v", descendants(t))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitNoDescendants(t)
}

// adoptOrphans makes processes that lose their parent children of this one, so that descendants finds them.
func adoptOrphans(t *testing.T) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
}

// descendants are all processes below this one, but for zombies.
func descendants(t *testing.T) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		// pid (comm) state ppid ..., where comm may hold anything
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		pid, err1 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		ppid, err2 := strconv.Atoi(fields[1])
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %q", path, b)
		}
		if fields[0] != "Z" {
			children[ppid] = append(children[ppid], pid)
		}
	}
	var all []int
	for next := []int{os.Getpid()}; len(next) > 0; next = next[1:] {
		all = append(all, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return all
}

func waitNoDescendants(t *testing.T) {
	t.Helper()
	var left []int
	for range 100 {
		if left = descendants(t); len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond) // a kill takes effect when the process runs next
	}
	for _, pid := range left {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	t.Errorf("processes %v are left", left)
}
