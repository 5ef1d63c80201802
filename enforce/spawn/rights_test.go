package spawn

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/testkernel"
)

// try runs operations in a child under rs and gives their answers.
func try(t *testing.T, s *Spawner, rs *landlock.Rulesets, ops ...string) []string {
	t.Helper()
	return tryAs(t, s, rs, nil, ops...)
}

func tryAs(t *testing.T, s *Spawner, rs *landlock.Rulesets, change func(*Command), ops ...string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &Command{Path: exe, Env: []string{
		opEnv + "=" + strings.Join(ops, "\n"),
		"GORACE=atexit_sleep_ms=0", // a race-enabled test binary sleeps for a second otherwise
	}}
	if change != nil {
		change(cmd)
	}
	out, st := output(t, s, cmd, rs)
	got := strings.Split(strings.TrimSpace(out), "\n")
	if st.Code != 0 || len(got) != len(ops) {
		t.Fatalf("status %+v, output %q", st, out)
	}
	return got
}

// rightCase is one right: an operation that needs it. %g is a place where the
// right is granted beside readExec, %d one where it is not.
type rightCase struct {
	right string
	op    string
	errno string         // denied
	extra profile.Access // granted in both places
}

var rightCases = []rightCase{
	{right: "write_file", op: "write %/file", errno: "EACCES"},
	{right: "read_file", op: "read %/file", errno: "EACCES"},
	{right: "read_dir", op: "list %/dir", errno: "EACCES"},
	{right: "execute", op: "exec %/true", errno: "EACCES", extra: profile.FSReadFile},
	{right: "remove_dir", op: "rmdir %/dir", errno: "EACCES"},
	{right: "remove_file", op: "unlink %/file", errno: "EACCES"},
	{right: "make_char", op: "mkchar %/new", errno: "EACCES"},
	{right: "make_dir", op: "mkdir %/new", errno: "EACCES"},
	{right: "make_reg", op: "create %/new", errno: "EACCES", extra: profile.FSWriteFile},
	{right: "make_sock", op: "mksock %/new", errno: "EACCES"},
	{right: "make_fifo", op: "mkfifo %/new", errno: "EACCES"},
	{right: "make_block", op: "mkblock %/new", errno: "EACCES"},
	{right: "make_sym", op: "symlink %/new", errno: "EACCES"},
	{right: "refer", op: "rename %/file %/dir/file", errno: "EXDEV", extra: profile.FSMakeReg | profile.FSRemoveFile},
	{right: "truncate", op: "truncate %/file", errno: "EACCES", extra: profile.FSWriteFile},
	{right: "ioctl_dev", op: "ioctl %/dev", errno: "EACCES", extra: profile.FSReadFile},
	{right: "resolve_unix", op: "connunix %/sock", errno: "EACCES", extra: profile.FSWriteFile},
}

// TestRightsFS starts children under a profile at each ABI from 1 up: where the
// right is granted the operation works, where it is not it is refused, and a
// right the ABI does not have restricts nothing.
func TestRightsFS(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		host := support(t)
		s := newTestSpawner(t, 2)
		for abi := 1; abi <= host.ABI; abi++ {
			t.Run(fmt.Sprintf("abi%d", abi), func(t *testing.T) {
				for _, c := range rightCases {
					t.Run(c.right, func(t *testing.T) { testRight(t, s, host.Limit(abi), c) })
				}
			})
		}
	})
}

func testRight(t *testing.T, s *Spawner, sup landlock.Support, c rightCase) {
	r, ok := profile.RightByName(profile.FS, c.right)
	if !ok {
		t.Fatal("no such right")
	}
	if strings.HasPrefix(c.op, "mkchar") || strings.HasPrefix(c.op, "mkblock") {
		testkernel.RequireRoot(t)
	}
	exe, _ := os.Executable()
	granted, denied := place(t), place(t)
	rules := []rule{
		{"/usr", readExec},
		{"/lib", readExec},
		{"/lib64", readExec},
		{exe, profile.FSReadFile | profile.FSExecute},
		{"/proc", readAll},
		{"/sys", readAll},
		{granted, c.extra | r.Bit},
		{denied, c.extra},
	}
	if c.right == "ioctl_dev" { // file rules through symbolic links: a file system of tests may have no devices
		for dir, device := range map[string]string{granted: "/dev/zero", denied: "/dev/full"} {
			link := filepath.Join(dir, "dev")
			if err := os.Symlink(device, link); err != nil {
				t.Fatal(err)
			}
			access := c.extra
			if dir == granted {
				access |= r.Bit
			}
			rules = append(rules, rule{link, access})
		}
	}
	rules = existing(rules)
	rs := build(t, newProfile(t, layerFor("rights", sup.ABI), rules...), sup)
	got := try(t, s, rs, strings.ReplaceAll(c.op, "%", granted), strings.ReplaceAll(c.op, "%", denied))
	want := []string{"ok", "ok"}
	if r.ABI <= sup.ABI {
		want[1] = c.errno
	}
	if c.right == "refer" && sup.ABI < 2 {
		want = []string{"EXDEV", "EXDEV"} // no right to grant it yet
	}
	if got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%s: granted %s, denied %s, want %v", c.op, got[0], got[1], want)
	}
}

func existing(rules []rule) []rule {
	var out []rule
	for _, r := range rules {
		if r.access == 0 {
			continue
		}
		if _, err := os.Stat(r.path); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// place makes a folder with one of each that the operations are about.
func place(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "true"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	sock, err := shortListener(t, filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	return dir
}

// shortListener listens on a path that may be too long for a socket's address.
func shortListener(t *testing.T, path string) (net.Listener, error) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "s") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	short := filepath.Join(dir, "s")
	l, err := net.Listen("unix", short)
	if err != nil {
		return nil, err
	}
	return l, os.Rename(short, path)
}

// TestRightsNet covers ports (a range among them) and the scopes at each ABI.
func TestRightsNet(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		host := support(t)
		s := newTestSpawner(t, 2)
		cases := []struct {
			op    string // on 7000..7002, granted; on 7010, not
			right string
		}{
			{"bindtcp", "bind_tcp"}, {"conntcp", "connect_tcp"}, {"bindudp", "bind_udp"}, {"connudp", "connect_send_udp"},
		}
		for abi := 1; abi <= host.ABI; abi++ {
			t.Run(fmt.Sprintf("abi%d", abi), func(t *testing.T) {
				sup := host.Limit(abi)
				layer := layerFor("net", abi)
				b := profile.NewBuilder([]profile.Layer{layer})
				b.AddPath(0, "/", readExec&layer.FS, false, profile.Fail)
				for _, c := range cases {
					if r, _ := profile.RightByName(profile.Net, c.right); r.ABI <= abi {
						b.AddPorts(0, 7000, 7002, r.Bit, false)
						if c.op == "connudp" { // the source port is bound on the way
							b.AddPorts(0, 0, 0, profile.NetBindUDP, false)
						}
					}
				}
				p, err := b.Build()
				if err != nil {
					t.Fatal(err)
				}
				rs := build(t, p, sup)
				for _, c := range cases {
					got := try(t, s, rs, c.op+" 7000", c.op+" 7002", c.op+" 7010")
					want := "ok"
					if r, _ := profile.RightByName(profile.Net, c.right); r.ABI <= abi {
						want = "EACCES"
					}
					if got[0] != "ok" || got[1] != "ok" || got[2] != want {
						t.Errorf("%s: %v, want ok ok %s", c.op, got, want)
					}
				}
			})
		}
	})
}

// TestScopes: a scoped child neither signals nor reaches an abstract socket outside.
func TestScopes(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		host := support(t)
		if host.ABI < 6 {
			testkernel.Skip(t, "Landlock ABI 6", "make kernels")
		}
		name := fmt.Sprintf("@policyd-test-%d", os.Getpid())
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := newTestSpawner(t, 2)
		for _, abi := range slices.Compact([]int{6, host.ABI}) {
			sup := host.Limit(abi)
			for scope, want := range map[profile.Access][2]string{
				0:                                 {"ok", "ok"},
				profile.ScopeSignal:               {"EPERM", "ok"},
				profile.ScopeAbstractUnixSocket:   {"ok", "EPERM"},
				profile.Handled(profile.Scope, 6): {"EPERM", "EPERM"},
			} {
				layer := layerFor("scope", abi)
				layer.Scope = scope
				rs := build(t, newProfile(t, layer, rule{"/", readExec}), sup)
				got := try(t, s, rs, fmt.Sprintf("signal %d", os.Getpid()), "connunix "+name)
				if got[0] != want[0] || got[1] != want[1] {
					t.Errorf("ABI %d, scope %s: %v, want %v", abi, profile.Scope.Format(scope), got, want)
				}
			}
		}
	})
}

// TestQuietAndLogFlags: the kernel takes every flag and quiet rule it has, and
// they change nothing of what is denied.
func TestQuietAndLogFlags(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		host := support(t)
		s := newTestSpawner(t, 2)
		for abi := 1; abi <= host.ABI; abi++ {
			layer := layerFor("quiet", abi)
			if abi >= 7 {
				layer.Log = profile.LogSameExecOff | profile.LogNewExecOn | profile.LogSubdomainsOff
			}
			quiet := abi >= 10
			if quiet {
				layer.QuietFS, layer.QuietNet = layer.FS, layer.Net
				layer.Scope, layer.QuietScope = profile.ScopeSignal, profile.ScopeSignal
			}
			b := profile.NewBuilder([]profile.Layer{layer})
			b.AddPath(0, "/", readExec&layer.FS, quiet, profile.Fail)
			if quiet {
				b.AddPath(0, "/etc", 0, true, profile.Fail)
				b.AddPorts(0, 80, 81, 0, true)
			}
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			got := try(t, s, build(t, p, host.Limit(abi)), "read /etc/passwd", "write /dev/null", "nnp")
			if got[0] != "ok" || got[1] != "EACCES" || got[2] != "ok" {
				t.Errorf("abi %d: %v", abi, got)
			}
		}
	})
}
