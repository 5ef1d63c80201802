package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

func TestStatus(t *testing.T) {
	s := newTestSpawner(t, 2)
	rs := openPolicy(t, support(t))
	for script, want := range map[string]Status{
		"exit 0":        {},
		"exit 7":        {Code: 7},
		"kill -TERM $$": {Code: 143, Signal: 15},
		"kill -KILL $$": {Code: 137, Signal: 9},
	} {
		if _, got := output(t, s, sh(script), rs); got != want {
			t.Errorf("%s: %+v, want %+v", script, got, want)
		}
	}
}

// TestAttributes: what the command says is what the program has.
func TestAttributes(t *testing.T) {
	s := newTestSpawner(t, 2)
	rs := openPolicy(t, support(t))
	dir := t.TempDir()
	cmd := sh("umask; pwd; ulimit -n; ulimit -H -c; echo $A; ps -o pgid= -p $$ | tr -d ' '; echo $$; grep -E 'SigIgn|SigBlk' /proc/self/status")
	cmd.Umask = ptr(0o027)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "A=b c")
	cmd.Limits = []Limit{{unix.RLIMIT_NOFILE, "nofile", 77, 99}, {unix.RLIMIT_CORE, "core", 0, 0}}
	out, st := output(t, s, cmd, rs)
	got := strings.Split(strings.TrimSpace(out), "\n")
	if st.Code != 0 || len(got) != 9 {
		t.Fatalf("%+v %q", st, out)
	}
	real, _ := filepath.EvalSymlinks(dir)
	for i, want := range []string{"0027", real, "77", "0", "b c", got[6]} {
		if got[i] != want {
			t.Errorf("line %d: %q, want %q", i, got[i], want)
		}
	}
	if got[7] != "SigBlk:\t0000000000000000" {
		t.Errorf("signals are blocked: %q", got[7])
	}
	old := unix.Umask(0o022)
	unix.Umask(old)
	if old == 0o027 {
		t.Error("policyd's own umask changed")
	}
}

func TestCredentials(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		testkernel.RequireRoot(t)
		s := newTestSpawner(t, 2)
		rs := openPolicy(t, support(t))
		cmd := sh("id -u; id -g; id -G; grep CapEff /proc/self/status")
		cmd.Credential = &Credential{UID: 65534, GID: 65533, Groups: []uint32{65532, 4}}
		out, st := output(t, s, cmd, rs)
		if want := "65534\n65533\n65533 4 65532\nCapEff:\t0000000000000000\n"; st.Code != 0 || out != want && out != strings.Replace(want, "4 65532", "65532 4", 1) {
			t.Errorf("%+v %q", st, out)
		}
		cmd.Credential.Groups = nil
		if out, _ := output(t, s, cmd, rs); !strings.HasPrefix(out, "65534\n65533\n65533\n") {
			t.Errorf("without groups: %q", out)
		}
		// The directory is entered as that user.
		cmd.Stdout, cmd.Stderr = nil, nil
		cmd.Dir = t.TempDir()
		os.Chmod(cmd.Dir, 0o700)
		if _, err := s.Start(cmd, rs); !errors.Is(err, errs.ErrStart) || !strings.Contains(err.Error(), "directory") {
			t.Errorf("a folder of root's: %v", err)
		}
	})
}

func TestCredentialsPlainUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("for a plain user; root may become anybody")
	}
	cmd := sh("true")
	cmd.Credential = &Credential{UID: 0, GID: 0}
	if _, err := newTestSpawner(t, 1).Start(cmd, openPolicy(t, support(t))); !errors.Is(err, errs.ErrStart) || !strings.Contains(err.Error(), "uid 0") {
		t.Errorf("error %v", err)
	}
}

// TestRefusals: what cannot be started, in which class and words.
func TestRefusals(t *testing.T) {
	sup := support(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	usr := []rule{{"/usr", readExec}, {dir, readExec}}
	noExec := []rule{{"/usr/bin", readExec}, {"/usr/lib", readAll}, {dir, readExec}}
	noInterp := []rule{{"/usr/lib", readExec}, {dir, readExec}}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		cmd   Command
		rules []rule
		class error
		words string
	}{
		{"missing", Command{Path: "/nonexistent"}, usr, errs.ErrProgramNotFound, "/nonexistent"},
		{"below a file", Command{Path: "/etc/passwd/x"}, usr, errs.ErrProgramNotFound, "/etc/passwd/x"},
		{"no permission", Command{Path: write("plain", "x", 0o644)}, usr, errs.ErrProgramRefused, "permission denied"},
		{"directory", Command{Path: dir}, usr, errs.ErrProgramRefused, "not a regular file"},
		{"named pipe", Command{Path: fifo}, usr, errs.ErrProgramRefused, "not a regular file"},
		{"no format", Command{Path: write("junk", "\x00\x01junk", 0o755)}, usr, errs.ErrProgramRefused, "no format"},
		{"interpreter missing", Command{Path: write("lost", "#!/no/such/interp\n", 0o755)}, usr, errs.ErrProgramNotFound, "/no/such/interp"},
		{"interpreter refused", Command{Path: write("script", "#!/bin/sh\n", 0o755)}, noInterp, errs.ErrProgramRefused, `interpreter "/bin/sh"`},
		{"loader refused", Command{Path: "/usr/bin/true"}, noExec, errs.ErrProgramRefused, `ELF interpreter`},
		{"program refused", Command{Path: "/usr/bin/true"}, []rule{{"/usr/lib", readExec}}, errs.ErrProgramRefused, `layer "test" lacks execute, read_file`},
		{"directory missing", Command{Path: "/usr/bin/true", Dir: "/no/such/dir"}, usr, errs.ErrStart, `directory "/no/such/dir"`},
		{"directory is a file", Command{Path: "/usr/bin/true", Dir: "/etc/passwd"}, usr, errs.ErrStart, `directory "/etc/passwd"`},
		{"NUL", Command{Path: "/usr/bin/true", Argv: []string{"a\x00b"}}, usr, errs.ErrStart, "invalid argument"},
		{"too much", Command{Path: "/usr/bin/true", Argv: []string{strings.Repeat("x", 1<<20)}}, usr, errs.ErrStart, "too large"},
		{"no path", Command{Path: "true"}, usr, errs.ErrStart, "needs a path"},
		{"relative dir", Command{Path: "/usr/bin/true", Dir: "x"}, usr, errs.ErrStart, "not absolute"},
		{"no terminal", Command{Path: "/usr/bin/true", TTY: true}, usr, errs.ErrStart, "terminal"},
		{"bad umask", Command{Path: "/usr/bin/true", Umask: ptr(0o1000)}, usr, errs.ErrStart, "umask"},
	}
	s := newTestSpawner(t, 2)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rs := build(t, newProfile(t, layerFor("test", sup.ABI), existing(tt.rules)...), sup)
			c, err := s.Start(&tt.cmd, rs)
			if err == nil {
				wait(t, c)
				t.Fatal("it started")
			}
			if !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("error %q; want class %q and words %q", err, tt.class, tt.words)
			}
		})
	}
	if _, err := s.Start(sh("true"), nil); !errors.Is(err, errs.ErrStart) {
		t.Errorf("without rulesets: %v", err)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644)
	tests := []struct {
		name, path, dir, want string
		err                   error
	}{
		{"sh", "PATH=/usr/bin:/bin", "", "/usr/bin/sh", nil},
		{"sh", "", "", "/usr/bin/sh", nil},
		{"plain", "PATH=" + dir + ":/usr/bin", "", "", errs.ErrProgramRefused},
		{"no-such-program", "PATH=/usr/bin", "", "", errs.ErrProgramNotFound},
		{"sh", "PATH=:usr/bin", "/", "", errs.ErrProgramNotFound},
		{"bin/sh", "", "/usr", "/usr/bin/sh", nil},
		{"./sh", "", "/usr/bin", "/usr/bin/sh", nil},
		{"/usr/bin", "", "", "", errs.ErrProgramRefused},
		{"/nonexistent", "", "", "", errs.ErrProgramNotFound},
		{"", "", "", "", errs.ErrProgramNotFound},
		{"a\x00", "", "", "", errs.ErrProgramNotFound},
	}
	for _, tt := range tests {
		var env []string
		if tt.path != "" {
			env = []string{tt.path}
		}
		got, err := LookPath(tt.name, env, tt.dir)
		if !errors.Is(err, tt.err) || err == nil && got != tt.want {
			t.Errorf("LookPath(%q, %q, %q) = %q, %v", tt.name, tt.path, tt.dir, got, err)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for value, want := range map[string][2]uint64{
		"0": {0, 0}, "64": {64, 64}, "64:128": {64, 128}, "1K:1M": {1024, 1 << 20}, "unlimited": {Unlimited, Unlimited}, "5:unlimited": {5, Unlimited},
	} {
		l, err := ParseLimit("nofile", value)
		if err != nil || l.Soft != want[0] || l.Hard != want[1] || l.Resource != unix.RLIMIT_NOFILE {
			t.Errorf("%s: %+v %v", value, l, err)
		}
	}
	for _, bad := range []string{"", "-1", "x", "1:", ":1", "2:1", "1:2:3", "99999999999999999999", "18446744073709551615T", "K", "0x10", "unlimited:5"} {
		if l, err := ParseLimit("nofile", bad); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %+v %v", bad, l, err)
		}
	}
	if _, err := ParseLimit("nosuch", "1"); !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), "nofile") {
		t.Errorf("unknown name: %v", err)
	}
}

// TestCleanDescriptors: children started side by side see 0, 1, 2 and the one
// they list with, whatever policyd has open meanwhile.
func TestCleanDescriptors(t *testing.T) {
	leak, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0) // as if inherited: not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	s := newTestSpawner(t, 4)
	eventually(t, "mark descriptors", func() bool {
		flags, err := unix.FcntlInt(uintptr(leak), unix.F_GETFD, 0)
		return err == nil && flags&unix.FD_CLOEXEC != 0
	})
	rs := openPolicy(t, support(t))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 15 {
				out, st := output(t, s, &Command{Path: "/bin/ls", Argv: []string{"ls", "/proc/self/fd"}}, rs)
				if st.Code != 0 || out != "0\n1\n2\n3\n" {
					t.Errorf("%+v %q", st, out)
				}
			}
		})
	}
	wg.Wait()
}

// TestDomainsDoNotMix starts 64 programs at once, each under a profile that
// lets it see one folder of 64.
func TestDomainsDoNotMix(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		const n = 64
		sup := support(t)
		s := newTestSpawner(t, 4)
		var threads restricted
		withFault(t, threads.noting(func(string) error { return nil }))
		root := t.TempDir()
		var sets [n]*landlock.Rulesets
		for i := range sets {
			dir := filepath.Join(root, fmt.Sprint(i))
			os.Mkdir(dir, 0o755)
			os.WriteFile(filepath.Join(dir, "f"), []byte(fmt.Sprintln(i)), 0o644)
			sets[i] = build(t, newProfile(t, layerFor("mix", sup.ABI), existing([]rule{
				{"/usr", readExec}, {"/lib", readExec}, {"/lib64", readExec}, {"/dev/null", readAll | profile.FSWriteFile}, {dir, readAll},
			})...), sup)
		}
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				cmd := sh("for i in $(seq 0 63); do cat $i/f 2>/dev/null; done; true")
				cmd.Dir = root
				if out, st := output(t, s, cmd, sets[i]); st.Code != 0 || out != fmt.Sprintln(i) {
					t.Errorf("%d: %+v %q", i, st, out)
				}
			})
		}
		wg.Wait()
		// The daemon itself was never restricted.
		for i := range n {
			if _, err := os.ReadFile(filepath.Join(root, fmt.Sprint(i), "f")); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o644); err != nil {
			t.Error(err)
		}
		eventually(t, "no restricted thread is left", threads.none)
	})
}

// TestLimitsInScopedDomain: the stop at exec works on a thread that may signal
// and trace nobody outside of its domain.
func TestLimitsInScopedDomain(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		sup := support(t)
		layer := layerFor("scoped", sup.ABI)
		layer.Scope = profile.Handled(profile.Scope, sup.ABI)
		rs := build(t, newProfile(t, layer, rule{"/", readExec}), sup)
		cmd := sh("ulimit -n; ulimit -t; grep TracerPid /proc/self/status")
		cmd.Limits = []Limit{{unix.RLIMIT_NOFILE, "nofile", 55, 55}, {unix.RLIMIT_CPU, "cpu", 9, 9}}
		out, st := output(t, newTestSpawner(t, 1), cmd, rs)
		if want := "55\n9\nTracerPid:\t0\n"; st.Code != 0 || out != want {
			t.Errorf("%+v %q", st, out)
		}
	})
}

// TestExplainExec names the file of the chain and the layer; symbolic links in
// the profile and on the way to the program change nothing.
func TestExplainExec(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	os.WriteFile(script, []byte("#! /bin/sh -e\n"), 0o755)
	link := filepath.Join(dir, "usr")
	os.Symlink("/usr", link)
	layer := layerFor("only", 1)
	for _, tt := range []struct {
		rules []rule
		path  string
		words []string
	}{
		{[]rule{{"/", readExec}}, script, nil},
		{[]rule{{link, readExec}, {dir, readExec}}, script, nil},
		{[]rule{{"/usr", readExec}, {dir, readAll}}, script, []string{"program", script, `"only" lacks execute`}},
		{[]rule{{dir, readExec}}, script, []string{`interpreter "/bin/sh"`, "lacks execute, read_file", "ELF interpreter"}},
		{[]rule{{"/", profile.FSExecute}}, "/usr/bin/true", []string{"lacks read_file"}},
	} {
		got := ExplainExec(newProfile(t, layer, tt.rules...), tt.path)
		if (got == "") != (tt.words == nil) {
			t.Errorf("%s under %v: %q", tt.path, tt.rules, got)
		}
		for _, w := range tt.words {
			if !strings.Contains(got, w) {
				t.Errorf("%q does not say %q", got, w)
			}
		}
	}
}

// FuzzInterpreterOf: no head of a file makes the look at it fail badly.
func FuzzInterpreterOf(f *testing.F) {
	b, err := os.ReadFile("/bin/true")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:4096])
	f.Add([]byte("#!/bin/sh\n"))
	f.Add([]byte("#! \t\n"))
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		next, role, _ := interpreterOf(path)
		if next != "" && role == "" || len(next) > 4096 {
			t.Errorf("%q %q", next, role)
		}
	})
}
