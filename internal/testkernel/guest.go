package testkernel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guest describes one program run in a user-mode-linux guest.
type Guest struct {
	Kernel    string    // UML61 or UML73
	Argv      []string  // Argv[0] is an absolute path
	Dir       string    // the program's working directory; empty means /
	Env       []string  // added to the host's environment without XDG_*; HOME and TMPDIR are folders of the guest
	MemoryMiB int       // 0 means 512; the host gives only what the guest touches
	Audit     bool      // enable audit at boot
	Output    io.Writer // gets the program's stdout and stderr, in one stream; nil discards it
}

// GuestError says that a guest gave no result: it did not boot, panicked, or was killed because the context ended.
type GuestError struct {
	Kernel  string
	Reason  string
	Console string // the last of what the guest's console showed
	Err     error  // the context's error, if that was the reason; or nil
}

func (e *GuestError) Error() string {
	return fmt.Sprintf("guest %s: %s; the console ends with:\n%s", e.Kernel, e.Reason, e.Console)
}

func (e *GuestError) Unwrap() error { return e.Err }

// Run boots the guest, runs the program in it as root, and returns its exit status, 128+n if signal n killed it. The
// program's stdin is /dev/null. The running binary is the guest's init, so any test binary that links this package can
// call it. When ctx ends, all processes of the guest are killed and the error is a [*GuestError] that wraps ctx's.
func (g *Guest) Run(ctx context.Context) (int, error) {
	res, err := g.run(ctx)
	return res.exit, err
}

// result is what a guest's console told.
type result struct {
	exit int
	ran  map[string]string // subtest name: pass, fail or skip
}

func (g *Guest) run(ctx context.Context) (result, error) {
	k, ok := kernelByName(g.Kernel)
	if !ok {
		return result{}, fmt.Errorf("no kernel named %q", g.Kernel)
	}
	if len(g.Argv) == 0 || !filepath.IsAbs(g.Argv[0]) {
		return result{}, fmt.Errorf("program %q of a guest is not an absolute path", g.Argv)
	}
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	dir, err := os.MkdirTemp("", "testkernel-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	return launch(ctx, machine{
		kernel: k, memoryMiB: g.MemoryMiB, audit: g.Audit, dir: dir, output: g.Output, grace: killGrace,
	}, newJob(g, self))
}

// machine is what is to be known of a guest to boot it.
type machine struct {
	kernel    kernel
	memoryMiB int // 0 means 512
	audit     bool
	dir       string        // a folder of this guest's own, for the job and the kernel's files
	output    io.Writer     // may be nil
	grace     time.Duration // how long it may take to power off after it has told its exit status
}

// launch boots a guest whose init is the running binary with the job, and waits until all of it is gone.
func launch(ctx context.Context, m machine, j job) (result, error) {
	cmd, err := m.command(j, "null")
	if err != nil {
		return result{}, err
	}
	return boot(ctx, cmd, j, m.output, m.grace)
}

// command writes the job and gives the kernel's command line. input is what its console reads: null, or fd:0.
func (m machine) command(j job, input string) (*exec.Cmd, error) {
	linux, err := cached(m.kernel.name, "linux")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := writeJob(j, filepath.Join(m.dir, "job.json")); err != nil {
		return nil, err
	}
	// The kernel splits its command line at blanks; links keep the paths on it under our control.
	if err := os.Symlink(self, filepath.Join(m.dir, "init")); err != nil {
		return nil, err
	}
	if strings.ContainsAny(m.dir, " \t\"") {
		return nil, fmt.Errorf("temporary folder %q has characters a kernel command line cannot carry", m.dir)
	}
	mem := m.memoryMiB
	if mem == 0 {
		mem = 512
	}
	args := []string{
		fmt.Sprintf("mem=%dM", mem),
		"rootfstype=hostfs", "root=/dev/root", "rootflags=/", "ro",
		"init=" + filepath.Join(m.dir, "init"),
		jobEnv + "=" + filepath.Join(m.dir, "job.json"),
		"uml_dir=" + m.dir,
		"con=null", "con0=" + input + ",fd:1", "console=tty0", "quiet",
		"noreboot", // a guest that boots again would not end
	}
	args = append(args, m.kernel.args...)
	if m.audit {
		args = append(args, "audit=1")
	}
	cmd := exec.Command(linux, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + m.dir, "TMPDIR=" + memoryDir(int64(mem)<<20)}
	return cmd, nil
}

// memoryDir is where user-mode-linux puts the file that is the guest's memory: a tmpfs when it has the room, since a
// full one would kill the guest with SIGBUS.
func memoryDir(size int64) string {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err == nil && unix.Access("/dev/shm", unix.W_OK) == nil &&
		st.Flags&unix.ST_NOEXEC == 0 && int64(st.Bavail)*st.Bsize > 2*size {
		return "/dev/shm"
	}
	return os.TempDir()
}

func writeJob(j job, path string) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// killGrace is how long a guest that has told its exit status may take to power off, when there is nothing to stop.
const killGrace = 5 * time.Second

// boot starts the kernel and returns what its console told, after every process of the guest is gone.
func boot(ctx context.Context, cmd *exec.Cmd, j job, out io.Writer, patience time.Duration) (result, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return result{}, err
	}
	defer pr.Close()
	cmd.Stdout, cmd.Stderr = pw, pw
	// All processes of a guest share its process group. Should this process die, the kernel kills the guest's main
	// process, and with it those it traces.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	started := make(chan error)
	exited := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the parent-death signal is that of the thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		pw.Close()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return result{}, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	kill := func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }

	con := newConsole(j.inside, out)
	con.all = j.Root != nil // how it is shut down
	read := make(chan error, 1)
	go func() { read <- con.readFrom(pr) }()

	var waitErr error
	reason := ""
	grace := (<-chan time.Time)(nil)
	told := con.told
wait:
	for {
		select {
		case waitErr = <-exited:
			break wait
		case <-told:
			told, grace = nil, time.After(patience)
		case <-grace:
			if j.Root != nil {
				reason = fmt.Sprintf("it was not shut down within %v", patience)
			}
			kill()
			waitErr = <-exited
			break wait
		case <-ctx.Done():
			reason = fmt.Sprintf("killed: %v", context.Cause(ctx))
			kill()
			waitErr = <-exited
			break wait
		}
	}
	kill() // what the main process left behind holds the console open
	readErr := <-read
	switch {
	case con.failure != "":
		return con.result, con.error("its init failed: "+con.failure, nil)
	case con.done && reason == "":
		return con.result, nil
	case reason != "":
		return con.result, con.error(reason, ctx.Err())
	case readErr != nil:
		return con.result, con.error("read the console: "+readErr.Error(), readErr)
	case waitErr != nil:
		return con.result, con.error("no exit status of the program was seen: "+waitErr.Error(), nil)
	default:
		return con.result, con.error("no exit status of the program was seen", nil)
	}
}
