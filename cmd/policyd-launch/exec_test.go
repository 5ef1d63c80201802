package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// With this in the environment the test binary refuses itself the system call of
// that number with that errno and becomes the program of its arguments.
const refuseEnv = "POLICYD_TEST_REFUSE"

// build makes policyd-launch as it is shipped.
var build = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "policyd-launch"); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, os.Chmod(dir, 0o755) // other users execute it too
})

func TestMain(m *testing.M) {
	if v := os.Getenv(refuseEnv); v != "" {
		fmt.Fprintln(os.Stderr, refuseAndExec(v))
		os.Exit(1)
	}
	code := m.Run()
	dir, _ := build()
	os.RemoveAll(dir)
	os.Exit(code)
}

func refuseAndExec(v string) error {
	var nr, errno uint32
	if _, err := fmt.Sscan(v, &nr, &errno); err != nil {
		return err
	}
	os.Unsetenv(refuseEnv)
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: nr},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return e
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

func launcher(t *testing.T) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "policyd-launch")
}

func TestSmallAndStatic(t *testing.T) {
	path := launcher(t)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() > 4<<20 {
		t.Errorf("%d bytes, at most 4 MiB", st.Size())
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a loader")
		}
	}
}

// bench is a folder with a secret that no profile here grants, and the profile.
type bench struct {
	dir, secret, file, digest string
}

var system = []string{"/usr", "/bin", "/lib", "/lib64", "/proc", "/dev"}

func prepare(t *testing.T, change func(*profile.Builder, string)) *bench {
	t.Helper()
	if sup := landlock.Probe(); sup.State != landlock.Available {
		testkernel.Skip(t, "Landlock", sup.Err.Error())
	}
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755|os.ModeSticky) // another user gets here too
		if filepath.Dir(d) == os.TempDir() {
			break
		}
	}
	b := &bench{dir: dir, secret: filepath.Join(dir, "secret"), file: filepath.Join(dir, "profile")}
	put(t, b.secret, "told", 0o644)
	pb := profile.NewBuilder([]profile.Layer{{Name: "box", FS: profile.Handled(profile.FS, 1)}})
	for _, p := range system {
		pb.AddPath(0, p, profile.FSExecute|profile.FSReadFile|profile.FSReadDir, false, profile.Skip)
	}
	pb.AddPath(0, "/dev/null", profile.FSReadFile|profile.FSWriteFile, false, profile.Fail)
	if change != nil {
		change(pb, dir)
	}
	p, err := pb.Build()
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, p)
	return b
}

func (b *bench) write(t *testing.T, p *profile.Profile) {
	t.Helper()
	enc := p.Encode()
	put(t, b.file, string(enc), 0o644)
	b.digest = profile.Digest(enc)
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) command(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(launcher(t), append([]string{"exec", "--file", b.file, "--digest", b.digest, "--"}, argv...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "FIRST=1"}
	cmd.Dir = b.dir
	return cmd
}

func run(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

func TestExecConfines(t *testing.T) {
	b := prepare(t, nil)
	code, out, errOut := run(t, b.command(t, "cat", b.secret))
	if code != 1 || out != "" || !strings.Contains(errOut, "Permission denied") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	code, out, errOut = run(t, b.command(t, "sh", "-c", "grep NoNewPrivs /proc/self/status; exit 7"))
	if code != 7 || out != "NoNewPrivs:\t1\n" {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
}

func TestExecByDescriptor(t *testing.T) {
	b := prepare(t, nil)
	f, err := os.Open(b.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := b.command(t)
	cmd.Args = []string{cmd.Path, "exec", "--fd", "3", "--digest", b.digest, "--", "sh", "-c", "cat " + b.secret + " || ls /proc/self/fd"}
	cmd.ExtraFiles = []*os.File{f}
	code, out, errOut := run(t, cmd)
	// Without the launcher 3 is what ls has open of the folder it lists.
	_, want, _ := run(t, exec.Command("ls", "/proc/self/fd"))
	if code != 0 || out != want || !strings.Contains(errOut, "Permission denied") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
}

// The program has its own arguments, environment, limits and descriptors, and
// those that were handed on to it.
func TestExecLeavesNothing(t *testing.T) {
	b := prepare(t, nil)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	write.WriteString("handed on")
	write.Close()
	cmd := b.command(t, "sh", "-c", `tr '\0' ' ' </proc/$$/cmdline; echo; tr '\0' ' ' </proc/$$/environ; echo; cat <&3; echo; ls /proc/$$/fd; ulimit -Sn`, "--", "-x")
	cmd.ExtraFiles = []*os.File{read}
	bare := exec.Command("sh", "-c", "ls /proc/$$/fd; true") // whatever else the tests have inherited
	bare.ExtraFiles = cmd.ExtraFiles
	_, fds, _ := run(t, bare)
	// A soft limit below the hard one: the Go runtime raises its own.
	cmd.Args = append([]string{"sh", "-c", `ulimit -Sn 99; exec "$@"`, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	code, out, errOut := run(t, cmd)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != 0 || len(lines) < 5 {
		t.Fatalf("exit %d, %q, %q", code, out, errOut)
	}
	if strings.Contains(lines[0], "exec") || !strings.HasPrefix(lines[0], "sh -c tr ") || !strings.HasSuffix(lines[0], "ulimit -Sn -- -x ") {
		t.Errorf("arguments %q", lines[0])
	}
	// The shell in between adds PWD.
	for kv := range strings.FieldsSeq(lines[1]) {
		if name, _, _ := strings.Cut(kv, "="); name != "PATH" && name != "FIRST" && name != "PWD" {
			t.Errorf("environment: %q", kv)
		}
	}
	if last := len(lines) - 1; lines[2] != "handed on" || strings.Join(lines[3:last], "\n")+"\n" != fds || lines[last] != "99" {
		t.Errorf("%q", lines[2:])
	}
}

func TestExecFindsTheProgram(t *testing.T) {
	b := prepare(t, func(pb *profile.Builder, dir string) {
		os.MkdirAll(filepath.Join(dir, "granted"), 0o755)
		pb.AddPath(0, filepath.Join(dir, "granted"), profile.FSExecute|profile.FSReadFile, false, profile.Fail)
	})
	put(t, filepath.Join(b.dir, "granted/prog"), "#!/bin/sh\necho \"$0\"\n", 0o755)
	put(t, filepath.Join(b.dir, "granted/orphan"), "#!/no/such/interpreter\n", 0o755)
	put(t, filepath.Join(b.dir, "plain"), "#!/bin/sh\n", 0o644)
	put(t, filepath.Join(b.dir, "refused"), "#!/bin/sh\n", 0o755)
	if err := os.Mkdir(filepath.Join(b.dir, "cat"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path string
		code       int
		out        string
	}{
		{"granted/prog", "/usr/bin", 0, "granted/prog\n"},
		{"./granted/prog", "/usr/bin", 0, "./granted/prog\n"},
		{"prog", "/nowhere:" + b.dir + "/granted", 0, b.dir + "/granted/prog\n"},
		{"cat", b.dir + ":/usr/bin:/bin", 0, ""}, // a directory of that name is passed over
		{"prog", "/usr/bin", exitNotFound, ""},
		{"prog", "granted", exitNoExec, ""}, // found through a relative part of PATH
		{"plain", b.dir, exitNotFound, ""},
		{"./plain", "/usr/bin", exitNoExec, ""},
		{b.dir, "/usr/bin", exitNoExec, ""},
		{"./refused", "/usr/bin", exitNoExec, ""}, // by the policy
		{"./absent", "/usr/bin", exitNotFound, ""},
		{"./plain/absent", "/usr/bin", exitNotFound, ""},
		{"granted/orphan", "/usr/bin", exitNotFound, ""},
		{"sh", "", exitNotFound, ""},
	} {
		cmd := b.command(t, tc.name)
		cmd.Env = []string{"PATH=" + tc.path}
		code, out, errOut := run(t, cmd)
		if code != tc.code || out != tc.out {
			t.Errorf("%q in %q: exit %d, %q, %q; want %d, %q", tc.name, tc.path, code, out, errOut, tc.code, tc.out)
		}
	}
}

// None of these may run the program.
func TestExecRefuses(t *testing.T) {
	b := prepare(t, nil)
	missing := prepare(t, func(pb *profile.Builder, dir string) {
		pb.AddPath(0, filepath.Join(dir, "absent"), profile.FSReadFile, false, profile.Fail)
	})
	cut := prepare(t, nil)
	enc, err := os.ReadFile(cut.file)
	if err != nil {
		t.Fatal(err)
	}
	put(t, cut.file, string(enc[:len(enc)-1]), 0o644)
	cutDigest := profile.Digest(enc[:len(enc)-1])
	for name, args := range map[string][]string{
		"missing path":    {"--file", missing.file, "--digest", missing.digest, "--", "echo", "ran"},
		"cut off":         {"--file", cut.file, "--digest", cutDigest, "--", "echo", "ran"},
		"other digest":    {"--file", b.file, "--digest", cutDigest, "--", "echo", "ran"},
		"no digest":       {"--file", b.file, "--", "echo", "ran"},
		"no file":         {"--digest", b.digest, "--", "echo", "ran"},
		"file and fd":     {"--file", b.file, "--fd", "3", "--digest", b.digest, "--", "echo", "ran"},
		"absent file":     {"--file", b.file + "x", "--digest", b.digest, "--", "echo", "ran"},
		"closed fd":       {"--fd", "77", "--digest", b.digest, "--", "echo", "ran"},
		"stdin":           {"--fd", "0", "--digest", b.digest, "--", "echo", "ran"},
		"no program":      {"--file", b.file, "--digest", b.digest, "--"},
		"nameless":        {"--file", b.file, "--digest", b.digest, "--", ""},
		"unknown option":  {"--file", b.file, "--digest", b.digest, "--lenient", "--", "echo", "ran"},
		"a folder's file": {"--file", b.dir, "--digest", b.digest, "--", "echo", "ran"},
	} {
		cmd := b.command(t)
		cmd.Args = append([]string{cmd.Path, "exec"}, args...)
		if code, out, errOut := run(t, cmd); code != exitPolicy || out != "" || !strings.HasPrefix(errOut, "policyd-launch: ") {
			t.Errorf("%s: exit %d, %q, %q", name, code, out, errOut)
		}
	}
}

// A seccomp filter that refuses what the launcher needs starts nothing, also
// where the policy says degrade: that is about kernels.
func TestExecUnderSeccomp(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := prepare(t, nil)
	degrade := prepare(t, nil)
	enc, _ := os.ReadFile(degrade.file)
	p, err := profile.Decode(enc)
	if err != nil {
		t.Fatal(err)
	}
	p.Degrade = true
	degrade.write(t, p)
	for name, nr := range map[string]int{
		"landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET, "landlock_add_rule": unix.SYS_LANDLOCK_ADD_RULE,
		"landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF, "openat2": unix.SYS_OPENAT2,
	} {
		for _, errno := range []syscall.Errno{unix.ENOSYS, unix.EPERM, unix.EOPNOTSUPP, unix.EINVAL} {
			for which, b := range map[string]*bench{"strict": b, "degrade": degrade} {
				want := exitPolicy
				if nr == unix.SYS_OPENAT2 && errno == unix.ENOSYS {
					want = 1 // cat's: paths are opened without that call, and the program is confined
				}
				for _, cmd := range []*exec.Cmd{b.command(t, "cat", b.secret), b.unitCommand(t, b.attached(t, nil), "cat", "cat", b.secret)} {
					cmd.Args = append([]string{self}, cmd.Args...)
					cmd.Path = self
					cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d %d", refuseEnv, nr, errno))
					if code, out, errOut := run(t, cmd); code != want || out != "" {
						t.Errorf("%s: %s: %v: %q: exit %d, %q, %q; want %d", which, name, errno, cmd.Args, code, out, errOut, want)
					}
				}
			}
		}
	}
}

func TestExecAsAnotherUser(t *testing.T) {
	testkernel.RequireRoot(t)
	b := prepare(t, nil)
	cmd := b.command(t, "sh", "-c", "id -u; cat "+b.secret)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	code, out, errOut := run(t, cmd)
	if code != 1 || out != "65534\n" || !strings.Contains(errOut, "Permission denied") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
}
